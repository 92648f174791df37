// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of ptx.hpp do what their comments say: on a GPU this tests the comments, elsewhere their emulation.
// Covers: <tutti/kernel/cuda/ptx.hpp> <tutti/kernel/cuda/launch.hpp>
#include <tutti/core/bfloat16.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include "cuda/support.hpp"
#include "kernel/support.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace tutti;
using test::OnDevice;

struct ProductArgs {
  std::uint16_t const* a;  ///< (16, 16) bfloat16
  std::uint16_t const* b;  ///< (16, 8), stored (8, 16)
  float* d;                ///< (16, 8)
};

/// One warp: a by asynchronous copies and ldmatrix, b by words.
__global__ void multiply(ProductArgs args) {
  auto* const tile = cuda::dynamic_shared<std::uint16_t>();
  int const lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  kernel::cuda::copy_async(tile + 8 * lane, args.a + 8 * lane);
  kernel::cuda::copy_async_commit();
  kernel::cuda::copy_async_wait<0>();
  __syncwarp();
  std::uint32_t a[4], b[2];
  // Matrices in the order of the fragments: rows 0 and 8, then columns 0 and 8.
  kernel::cuda::load_matrices(a, tile + (lane % 16) * 16 + lane / 16 * 8);
  for (int word = 0; word < 2; ++word) {
    std::uint16_t const* const at = args.b + g * 16 + 2 * t + 8 * word;
    b[word] = at[0] | static_cast<std::uint32_t>(at[1]) << 16;
  }
  float d[4];
  for (int index = 0; index < 4; ++index) d[index] = args.d[(g + index / 2 * 8) * 8 + 2 * t + index % 2];
  kernel::cuda::mma_bfloat16(d, a, b);
  for (int index = 0; index < 4; ++index) args.d[(g + index / 2 * 8) * 8 + 2 * t + index % 2] = d[index];
}

std::vector<std::uint16_t> rounded(std::vector<float> const& values) {
  std::vector<std::uint16_t> bits;
  for (float const value : values) bits.push_back(bfloat16(value).bits);
  return bits;
}
double exact(std::uint16_t bits) { return static_cast<double>(static_cast<float>(bfloat16::from_bits(bits))); }

struct AddNeighbours {
  int const* from;
  int* to;
};

/// to[i] = from[i] + from[i + 1], of 1024: a block needs what another one wrote.
__global__ void add_neighbours(AddNeighbours args) {
  kernel::cuda::begin_kernel();
  unsigned const i = blockIdx.x * 64 + threadIdx.x;
  args.to[i] = static_cast<int>(static_cast<unsigned>(args.from[i]) + static_cast<unsigned>(args.from[(i + 1) % 1024]));
}

}  // namespace

TEST_CASE("kernels that overlap see what those before them wrote, on a stream and in a captured graph") {
  auto const& stream = test::cuda_context().stream();
  std::vector<int> values(1024), expected(1024);
  for (std::size_t i = 0; i < 1024; ++i) values[i] = static_cast<int>(i % 7);
  expected = values;
  for (int round = 0; round < 3 * 20; ++round) {
    std::vector<int> next(1024);
    for (std::size_t i = 0; i < 1024; ++i)
      next[i] = static_cast<int>(static_cast<unsigned>(expected[i]) + static_cast<unsigned>(expected[(i + 1) % 1024]));
    expected = next;
  }
  OnDevice const a(values), b(values);
  auto const enqueue = [&] {
    for (int round = 0; round < 20; ++round)
      kernel::cuda::launch_own(stream, {.grid = 16, .block = 64}, add_neighbours,
                               {round % 2 == 0 ? a.data() : b.data(), round % 2 == 0 ? b.data() : a.data()});
  };
  enqueue();
  cuda::Graph const graph = cuda::Graph::capture(stream, enqueue);
  CHECK(graph.size() == 20);
  graph.launch(stream);
  graph.launch(stream);
  CHECK(a.read() == expected);
}

namespace {

struct TurnArgs {
  unsigned* drawn;  ///< how many blocks have begun
  unsigned* turns;  ///< of each of the sums, how many blocks have added
  float* sums;      ///< (sums, 64)
  int count;        ///< of sums
};

/// Of every block's number: s = s / 2 + number, an order of which every other one gives another result.
__global__ void add_in_turns(TurnArgs args) {
  kernel::cuda::begin_kernel();
  __shared__ unsigned number;
  if (threadIdx.x == 0) number = atomicAdd(args.drawn, 1u);
  __syncthreads();
  for (int sum = 0; sum < args.count; ++sum) {
    if (threadIdx.x == 0) kernel::cuda::wait_for_turn(args.turns + sum, number);
    __syncthreads();
    float* const at = args.sums + sum * 64 + static_cast<int>(threadIdx.x + number * 7) % 64;  // another thread's
    __stcg(at, __ldcg(at) / 2 + static_cast<float>(number));
    __syncthreads();
    if (threadIdx.x == 0) kernel::cuda::hand_on(args.turns + sum, number + 1);
  }
}

}  // namespace

TEST_CASE("blocks that take turns by number add in one order, however many run at once") {
  for (int const blocks : {1, 2, 700}) {
    CAPTURE(blocks);
    int const count = 5;
    OnDevice const drawn(std::vector<unsigned>(1, 0u)), turns(std::vector<unsigned>(count, 0u));
    OnDevice const sums(std::vector<float>(count * 64, 0.0f));
    kernel::cuda::launch_own(test::cuda_context().stream(), {.grid = dim3(static_cast<unsigned>(blocks)), .block = 64},
                             add_in_turns, {drawn.data(), turns.data(), sums.data(), count});
    float expected = 0;
    for (int number = 0; number < blocks; ++number) expected = expected / 2 + static_cast<float>(number);
    CHECK(sums.read() == std::vector<float>(count * 64, expected));
    CHECK(turns.read() == std::vector<unsigned>(count, static_cast<unsigned>(blocks)));
  }
}

TEST_CASE("a product of bfloat16 on tensor cores, its operand by asynchronous copies and ldmatrix") {
  test::Random random(1);
  auto const a = rounded(random.floats(16 * 16)), b = rounded(random.floats(8 * 16));
  auto const before = random.floats(16 * 8);
  OnDevice const on_a(a), on_b(b);
  OnDevice const d(before);
  cuda::launch(test::cuda_context().stream(), {1, 32, 512}, multiply, {on_a.data(), on_b.data(), d.data()});
  std::vector<double> expected;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double sum = static_cast<double>(before[test::length(row * 8 + column)]);
      for (int k = 0; k < 16; ++k)
        sum += exact(a[test::length(row * 16 + k)]) * exact(b[test::length(column * 16 + k)]);
      expected.push_back(sum);
    }
  auto const result = d.read();
  test::require_close(result.data(), expected, 1e-6, 16, "d");
}

namespace {

struct Tf32Args {
  float const* a;  ///< (16, 8)
  float const* b;  ///< (8, 8)
  float* d;        ///< (16, 8)
};

__global__ void multiply_tf32(Tf32Args args) {
  int const lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  std::uint32_t a[4], b[2];
  for (int word = 0; word < 4; ++word)
    a[word] = kernel::cuda::to_tf32(args.a[(g + word % 2 * 8) * 8 + t + word / 2 * 4]);
  for (int word = 0; word < 2; ++word) b[word] = kernel::cuda::to_tf32(args.b[(t + word * 4) * 8 + g]);
  float d[4] = {};
  kernel::cuda::mma_tf32(d, a, b);
  for (int index = 0; index < 4; ++index) args.d[(g + index / 2 * 8) * 8 + 2 * t + index % 2] = d[index];
}

/// To 11 bits, ties away from zero.
double tf32(float value) {
  int exponent = 0;
  double const fraction = std::frexp(static_cast<double>(value), &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
}

}  // namespace

TEST_CASE("a product of TF32 on tensor cores rounds its operands to 11 bits") {
  test::Random random(2);
  auto const a = random.floats(16 * 8), b = random.floats(8 * 8);
  OnDevice const on_a(a), on_b(b);
  OnDevice<float> const d(16 * 8);
  cuda::launch(test::cuda_context().stream(), {1, 32}, multiply_tf32, {on_a.data(), on_b.data(), d.data()});
  std::vector<double> expected;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double sum = 0;
      for (int k = 0; k < 8; ++k) sum += tf32(a[test::length(row * 8 + k)]) * tf32(b[test::length(k * 8 + column)]);
      expected.push_back(sum);
    }
  auto const result = d.read();
  test::require_close(result.data(), expected, 1e-6, 8, "d");
}

namespace {

struct TransposeArgs {
  std::uint16_t const* from;  ///< four matrices (8, 8)
  std::uint16_t* to;          ///< the same, transposed
};

__global__ void transpose(TransposeArgs args) {
  __shared__ __align__(16) std::uint16_t tile[4 * 64];
  int const lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int index = lane; index < 4 * 64; index += 32) tile[index] = args.from[index];
  __syncwarp();
  std::uint32_t words[4];
  kernel::cuda::load_matrices_transposed(words, tile + 8 * lane);
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int half = 0; half < 2; ++half)
      args.to[matrix * 64 + g * 8 + 2 * t + half] = static_cast<std::uint16_t>(words[matrix] >> (16 * half));
}

struct CopyArgs {
  float const* from;
  float* to;
  int count;  ///< elements of `from`; `to` has a multiple of 128
};

/// Two groups in flight, the end filled with zeros.
__global__ void copy_in_groups(CopyArgs args) {
  __shared__ __align__(16) float tile[2][128];
  int const lane = static_cast<int>(threadIdx.x), parts = static_cast<int>((args.count + 127) / 128);
  auto const start = [&](int part) {
    int const at = part * 128 + lane * 4, left = args.count - at;
    unsigned const bytes = part >= parts || left <= 0 ? 0u : left >= 4 ? 16u : static_cast<unsigned>(left) * 4u;
    kernel::cuda::copy_async(tile[part % 2] + lane * 4, bytes == 0 ? args.from : args.from + at, bytes);
    kernel::cuda::copy_async_commit();
  };
  start(0);
  for (int part = 0; part < parts; ++part) {
    start(part + 1);
    kernel::cuda::copy_async_wait<1>();
    __syncwarp();
    for (int index = lane; index < 128; index += 32) args.to[part * 128 + index] = tile[part % 2][index];
    __syncwarp();
  }
}

}  // namespace

TEST_CASE("ldmatrix transposes") {
  std::vector<std::uint16_t> from(4 * 64), expected(4 * 64);
  for (std::size_t index = 0; index < from.size(); ++index) {
    from[index] = static_cast<std::uint16_t>(index);
    expected[index / 64 * 64 + index % 8 * 8 + index / 8 % 8] = from[index];
  }
  OnDevice const on(from);
  OnDevice<std::uint16_t> const to(from.size());
  cuda::launch(test::cuda_context().stream(), {1, 32}, transpose, {on.data(), to.data()});
  REQUIRE(to.read() == expected);
}

TEST_CASE("asynchronous copies complete in groups and fill with zeros") {
  for (int const count : {1, 2, 3, 4, 127, 128, 129, 511, 640}) {
    CAPTURE(count);
    auto values = test::Random(3).floats(count);
    auto expected = values;
    expected.resize(test::length((count + 127) / 128 * 128), 0.0f);
    OnDevice const from(values);
    OnDevice<float> const to(expected.size());
    cuda::launch(test::cuda_context().stream(), {1, 32}, copy_in_groups, {from.data(), to.data(), count});
    REQUIRE(to.read() == expected);
  }
}

namespace {

struct RoundArgs {
  float const* from;
  std::uint32_t* packed;
  float* powers;
  std::int64_t count;
};

__global__ void round_and_raise(RoundArgs args) {
  for (std::int64_t index = threadIdx.x; index < args.count; index += blockDim.x) {
    args.packed[index] = kernel::cuda::pack_bfloat16(args.from[index], -args.from[index]);
    args.powers[index] = kernel::cuda::exp2_approximate(args.from[index]);
  }
}

}  // namespace

TEST_CASE("packed conversion rounds like bfloat16, and powers of two are good to 22 bits") {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = test::Random(4).floats(1000, 200);
  for (float const value :
       {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 3.39e38f, -3.4e38f, 1e-40f, infinity, -infinity, -127.5f, 127.5f})
    values.push_back(value);
  OnDevice const from(values);
  OnDevice<std::uint32_t> const packed(values.size());
  OnDevice<float> const powers(values.size());
  cuda::launch(test::cuda_context().stream(), {1, 128}, round_and_raise,
               {from.data(), packed.data(), powers.data(), static_cast<std::int64_t>(values.size())});
  auto const words = packed.read();
  auto const results = powers.read();
  for (std::size_t index = 0; index < values.size(); ++index) {
    CAPTURE(values[index]);
    CHECK((words[index] & 0xffffu) == bfloat16(values[index]).bits);
    CHECK(words[index] >> 16 == bfloat16(-values[index]).bits);
    double const exact = std::exp2(static_cast<double>(values[index]));
    if (exact < 0x1p-126) CHECK(results[index] == 0.0f);
    else if (exact > 0x1.fffffep127) CHECK(results[index] == infinity);
    else CHECK(std::abs(results[index] - exact) <= 0x1p-22 * exact);
  }
}
