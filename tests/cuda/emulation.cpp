// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The emulation finds what it promises to find. Each kernel here makes one mistake.
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include <tutti/kernel/cuda/context.hpp>

#include "support/catch.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace tutti;
using cuda::LaunchShape;
using cuda::Stream;

struct Args {
  int* out;
};

/// The diagnosis of a launch that fails, after which the device is as new.
std::string diagnosis_of(Stream const& stream, LaunchShape shape, void (*kernel)(Args), int* out = nullptr) {
  std::string text;
  try {
    cuda::launch(stream, shape, kernel, {out});
    stream.wait();
  } catch (Error const& error) {
    text = error.native();
  }
  cudaDeviceReset();
  return text;
}

__global__ void exits_before_a_barrier(Args) {
  if (threadIdx.x == 5) return;
  __syncthreads();
}
__global__ void diverges(Args) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}
__global__ void waits_for_an_absent_lane(Args) {
  if (threadIdx.x % 32 != 7) __syncwarp();
  __syncthreads();
}
__global__ void mixes_operations(Args) {
  if (threadIdx.x % 2 == 0) __syncwarp();
  else __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void all_wait(Args) { kernel::cuda::wait_for_previous_kernel(); }
__global__ void one_does_not_wait(Args) {
  if (blockIdx.x != 1 || threadIdx.x != 9) kernel::cuda::wait_for_previous_kernel();
}
__global__ void waits_for_the_next_block(Args args) {
  auto* const turns = reinterpret_cast<unsigned*>(args.out);
  if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x) kernel::cuda::wait_for_turn(turns + blockIdx.x + 1, 1);
  __syncthreads();
  if (threadIdx.x == 0) kernel::cuda::hand_on(turns + blockIdx.x, 1);
}
__global__ void is_not_in_its_mask(Args) { __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void traps(Args) { __trap(); }

}  // namespace

TEST_CASE("a device that the program holds no code for gets a sentence when its context is made") {
  emulated::hold_code(false);
  REQUIRE_ERROR(
      kernel::cuda::Context(), ErrorKind::unavailable,
      "holds no code for device 0, whose compute capability is 9.0. Build it on this machine, or by nvcc with "
      "-gencode=arch=compute_90,code=sm_90");
  emulated::hold_code(true);
  CHECK_NOTHROW(kernel::cuda::Context());
}

TEST_CASE("barriers that not all threads reach are found, with their place") {
  Stream const stream(0);
  auto const text = diagnosis_of(stream, {2, 64}, exits_before_a_barrier);
  CAPTURE(text);
  CHECK(test::contains(text, "emulation.cpp:"));
  CHECK(test::contains(text, "have left the kernel"));
  CHECK(test::contains(diagnosis_of(stream, {1, 64}, diverges), "diverges"));
  CHECK(test::contains(diagnosis_of(stream, {1, 64}, traps), "__trap"));
  CHECK(diagnosis_of(stream, {1, 32}, diverges).empty());
}

TEST_CASE("operations of a warp that not all lanes of the mask reach are found") {
  Stream const stream(0);
  CHECK(!diagnosis_of(stream, {1, 32}, waits_for_an_absent_lane).empty());
  CHECK(test::contains(diagnosis_of(stream, {1, 32}, mixes_operations), "meets"));
  CHECK(test::contains(diagnosis_of(stream, {1, 32}, is_not_in_its_mask), "own mask"));
  CHECK(test::contains(diagnosis_of(stream, {1, 16}, mixes_operations), "does not have"));
}

namespace {

/// Every thread reads what its neighbour wrote, without a barrier between.
__global__ void reads_too_early(Args args) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  args.out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}
/// A barrier after the write, none before the next write.
__global__ void overwrites_too_early(Args args) {
  __shared__ int values[64];
  int sum = 0;
  for (int turn = 0; turn < 4; ++turn) {
    values[threadIdx.x] = turn;
    __syncthreads();
    sum += values[(threadIdx.x + 33) % 64];
  }
  args.out[threadIdx.x] = sum;
}
/// Lanes of one warp, without __syncwarp.
__global__ void relies_on_lockstep(Args args) {
  int* const values = cuda::dynamic_shared<int>();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  args.out[threadIdx.x] = values[31 - threadIdx.x];
}
/// Reads a copy that it has not waited for.
__global__ void reads_a_copy_too_early(Args args) {
  __shared__ __align__(16) int values[128];
  kernel::cuda::copy_async(values + 4 * threadIdx.x, args.out + 4 * threadIdx.x);
  kernel::cuda::copy_async_commit();
  kernel::cuda::copy_async_wait<1>();
  args.out[4 * threadIdx.x] = values[4 * threadIdx.x];
}
__global__ void reads_what_nobody_wrote(Args args) {
  __shared__ int values[32];
  if (threadIdx.x == 0) values[0] = 1;
  __syncthreads();
  args.out[threadIdx.x] = values[threadIdx.x];
}

/// Whether out becomes something else than `expected` under one of a few seeds.
bool differs(void (*kernel)(Args), unsigned threads, std::vector<int> const& expected, std::size_t shared_bytes = 0) {
  bool found = false;
  for (unsigned seed = 0; seed < 6; ++seed) {
    emulated::set_seed(seed);
    Stream const stream(0);
    cuda::DeviceMemory const out(stream, expected.size() * sizeof(int));
    cuda::fill_bytes(stream, out.data(), 0, out.bytes());
    cuda::launch(stream, {1, threads, shared_bytes}, kernel, {static_cast<int*>(out.data())});
    std::vector<int> values(expected.size());
    cuda::copy_to_host(stream, values.data(), out.data(), out.bytes());
    found = found || values != expected;
  }
  emulated::set_seed(1);
  return found;
}

}  // namespace

TEST_CASE("a kernel that may overlap with the one before it, and a thread of which does not wait for it, is found") {
  Stream const stream(0);
  LaunchShape const overlapping{.grid = 2, .block = 64, .overlaps = true};
  CHECK(diagnosis_of(stream, overlapping, all_wait).empty());
  CHECK(diagnosis_of(stream, overlapping, one_does_not_wait).find("did not wait for it") != std::string::npos);
  CHECK(diagnosis_of(stream, {.grid = 2, .block = 64}, one_does_not_wait).empty());
  cuda::Event const event(0);
  event.record(Stream(0));
  stream.wait_for(event);  // a kernel behind an event overlaps with none
  CHECK(diagnosis_of(stream, overlapping, one_does_not_wait).empty());
}

TEST_CASE("a block that waits for one that may not have begun is found") {
  Stream const stream(0);
  cuda::DeviceMemory const turns(stream, 64 * sizeof(unsigned));
  cuda::fill_bytes(stream, turns.data(), 0, turns.bytes());
  CHECK(test::contains(diagnosis_of(stream, {64, 32}, waits_for_the_next_block, static_cast<int*>(turns.data())),
                       "wait_for_turn: for a block that has not begun"));
}

TEST_CASE("a missing barrier makes results differ under some seed") {
  std::vector<int> neighbours(64), reversed(32), sums(64, 0 + 1 + 2 + 3);
  for (int index = 0; index < 64; ++index) neighbours[static_cast<std::size_t>(index)] = (index + 1) % 64;
  for (int index = 0; index < 32; ++index) reversed[static_cast<std::size_t>(index)] = 31 - index;
  CHECK(differs(reads_too_early, 64, neighbours));
  CHECK(differs(overwrites_too_early, 64, sums));
  CHECK(differs(relies_on_lockstep, 32, reversed, 32 * sizeof(int)));
  CHECK(differs(reads_a_copy_too_early, 32, std::vector<int>(128, 0)));
  CHECK(differs(reads_what_nobody_wrote, 32, std::vector<int>(32, 1)));
}

namespace {

__global__ void writes_beyond_the_end(Args args) { args.out[threadIdx.x] = 1; }

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("a write beyond the end of a block of memory is found") {
  Stream const stream(0);
  cuda::DeviceMemory const out(stream, 31 * sizeof(int));
  CHECK(test::contains(diagnosis_of(stream, {1, 32}, writes_beyond_the_end, static_cast<int*>(out.data())), "beyond"));
  CHECK(diagnosis_of(stream, {1, 31}, writes_beyond_the_end, static_cast<int*>(out.data())).empty());
}
#endif

TEST_CASE("copies name their sides") {
  Stream const stream(0);
  cuda::DeviceMemory const memory(stream, 64);
  std::vector<char> host(64);
  CHECK(cudaMemcpyAsync(host.data(), memory.data(), 64, cudaMemcpyHostToDevice, stream.native()) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(memory.data(), host.data(), 64, cudaMemcpyDeviceToHost, stream.native()) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(memory.data(), host.data(), 65, cudaMemcpyHostToDevice, stream.native()) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(memory.data(), host.data(), 64, cudaMemcpyDefault, stream.native()) == cudaSuccess);
}

TEST_CASE("work waits until something waits for it, and a missing wait shows") {
  emulated::set_seed(0);
  Stream const first(0), second(0);
  cuda::DeviceMemory const memory(first, sizeof(int));
  cuda::PinnedMemory const host(sizeof(int));
  auto const& seen = *static_cast<int const*>(host.data());
  cuda::fill_bytes(first, memory.data(), 0, sizeof(int));
  SECTION("of the host") {
    cuda::copy_to_host(first, host.data(), memory.data(), sizeof(int));
    CHECK(seen == -1);
    CHECK(emulated::work_waiting() == 2);
    first.wait();
    CHECK(seen == 0);
  }
  SECTION("of another stream") {
    cuda::copy_to_host(second, host.data(), memory.data(), sizeof(int));
    second.wait();
    CHECK(seen == -1);
  }
  SECTION("and an event is enough") {
    cuda::Event const filled(0);
    filled.record(first);
    second.wait_for(filled);
    cuda::copy_to_host(second, host.data(), memory.data(), sizeof(int));
    second.wait();
    CHECK(seen == 0);
  }
  first.wait();
  emulated::set_seed(1);
}

TEST_CASE("what a copy will write on the host is poison until then, but not before earlier copies have read it") {
  emulated::set_seed(0);
  Stream const first(0), second(0);
  cuda::DeviceMemory const memory(first, sizeof(int)), other(first, sizeof(int));
  cuda::PinnedMemory const host(sizeof(int));
  auto& seen = *static_cast<int*>(host.data());
  seen = 5;
  cuda::fill_bytes(first, other.data(), 0, sizeof(int));
  cuda::copy_to_device(first, memory.data(), host.data(), sizeof(int));
  cuda::Event const read(0);
  read.record(first);
  second.wait_for(read);
  cuda::copy_to_host(second, host.data(), other.data(), sizeof(int));
  CHECK(seen == 5);
  second.wait();
  CHECK(seen == 0);
  cuda::copy_to_host(first, host.data(), memory.data(), sizeof(int));
  CHECK(seen == -1);
  first.wait();
  CHECK(seen == 5);
  emulated::set_seed(1);
}

TEST_CASE("memory is poison before it is written and after it is freed") {
  Stream const stream(0);
  std::vector<std::uint32_t> values(4);
  {
    cuda::DeviceMemory const memory(stream, 16);
    cuda::copy_to_host(stream, values.data(), memory.data(), 16);
    CHECK(values == std::vector<std::uint32_t>(4, 0xffffffffu));
  }
}

namespace {

/// A fill on one stream and a copy of the same memory on another, captured; with or without an event between the two.
std::vector<std::uint32_t> captured_fill_and_copy(bool ordered) {
  Stream const stream(0), beside(0);
  cuda::DeviceMemory const memory(stream, 16);
  cuda::PinnedMemory const host(16);
  cuda::Event const begun(0), filled(0), copied(0);
  auto const graph = cuda::Graph::capture(stream, [&] {
    begun.record(stream);
    cuda::fill_bytes(stream, memory.data(), 7, 16);
    filled.record(stream);
    beside.wait_for(ordered ? filled : begun);
    cuda::copy_to_host(beside, host.data(), memory.data(), 16);
    copied.record(beside);
    stream.wait_for(copied);
  });
  graph.launch(stream);
  stream.wait();
  auto const* const words = static_cast<std::uint32_t const*>(host.data());
  return {words, words + 4};
}

}  // namespace

TEST_CASE("captured work without an event between runs in either order") {
  std::vector<std::uint32_t> const expected(4, 0x07070707u);
  bool differs = false;
  for (unsigned seed = 0; seed < 6; ++seed) {
    emulated::set_seed(seed);
    CHECK(captured_fill_and_copy(true) == expected);
    differs = differs || captured_fill_and_copy(false) != expected;
  }
  CHECK(differs);
  emulated::set_seed(1);
}

TEST_CASE("a stream that does not come back to the one that is captured is found") {
  Stream const stream(0), beside(0);
  cuda::DeviceMemory const memory(stream, 16);
  cuda::Event const begun(0);
  REQUIRE_ERROR(cuda::Graph::capture(stream,
                                     [&] {
                                       begun.record(stream);
                                       beside.wait_for(begun);
                                       cuda::fill_bytes(beside, memory.data(), 1, 16);
                                     }),
                ErrorKind::internal, "cudaErrorStreamCaptureUnjoined");
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("the address sanitizer knows where blocks of device memory end") {
  Stream const stream(0);
  cuda::DeviceMemory out(stream, 31 * sizeof(int));
  auto const* const words = static_cast<int const*>(out.data());
  CHECK(!__asan_address_is_poisoned(words + 30));
  CHECK(__asan_address_is_poisoned(words + 31));
  out = cuda::DeviceMemory();
  stream.wait();
  CHECK(__asan_address_is_poisoned(words));
}
#endif
