// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/exec/cuda/launch.hpp> <tutti/exec/cuda/dynamic_shared.hpp> <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/launch.hpp>

#include "cuda/support.hpp"
#include "support/catch.hpp"

#include <utility>
#include <vector>

using namespace tutti;
using test::OnDevice;

namespace {

struct SumArgs {
  int const* values;
  int* sums;  ///< one a block
};

/// Through dynamic shared memory, every thread's number at the other end of it.
template <int stride>
__global__ void sum_blocks(SumArgs args) {
  int* const shared = cuda::dynamic_shared<int>();
  shared[threadIdx.x * stride] = args.values[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (unsigned thread = 0; thread < blockDim.x; ++thread) sum += shared[thread * stride];
  args.sums[blockIdx.x] = sum;
}

struct AddArgs {
  int* value;
  int by;
};
__global__ void add(AddArgs args) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *args.value += args.by;
}
__global__ void multiply_by(AddArgs args) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *args.value *= args.by;
}

std::vector<int> ones(std::size_t count) { return std::vector<int>(count, 1); }

}  // namespace

TEST_CASE("a launch passes its struct, its shape and its shared memory, more than 48 KiB too") {
  auto const& stream = test::cuda_context().stream();
  OnDevice const values(ones(3 * 96));
  OnDevice<int> const sums(3);
  cuda::launch(stream, {3, 96, 96 * sizeof(int)}, sum_blocks<1>, {values.data(), sums.data()});
  CHECK(sums.read() == std::vector<int>(3, 96));
  OnDevice<int> const more(3);
  cuda::launch(stream, {3, 96, 96 * 160 * sizeof(int)}, sum_blocks<160>, {values.data(), more.data()});
  CHECK(more.read() == std::vector<int>(3, 96));
}

TEST_CASE("an empty grid launches nothing; a shape that is none is refused") {
  auto const& stream = test::cuda_context().stream();
  OnDevice const value(ones(1));
  cuda::launch(stream, {0, 32}, add, {value.data(), 1});
  cuda::launch(stream, {{3, 0}, 32}, add, {value.data(), 1});
  CHECK(value.read() == ones(1));
  REQUIRE_ERROR(cuda::launch(stream, {1, 1025}, add, {value.data(), 1}), ErrorKind::invalid_argument,
                "cudaLaunchKernelEx");
  REQUIRE_ERROR(cuda::launch(stream, {1, 32, std::size_t{1} << 20}, add, {value.data(), 1}),
                ErrorKind::invalid_argument, "cudaFuncSetAttribute");
  CHECK(value.read() == ones(1));
}

TEST_CASE("captured work runs when its graph is launched, as often as that is") {
  auto const& stream = test::cuda_context().stream();
  OnDevice const value(ones(1));
  auto const graph = cuda::Graph::capture(stream, [&] {
    cuda::launch(stream, {1, 32}, add, {value.data(), 2});
    cuda::launch(stream, {1, 32}, multiply_by, {value.data(), 3});
  });
  CHECK(graph.size() == 2);
  CHECK(value.read() == ones(1));
  graph.launch(stream);
  CHECK(value.read() == std::vector<int>{9});
  graph.launch(stream);
  graph.launch(stream);
  CHECK(value.read() == std::vector<int>{105});
  cuda::Graph none;
  REQUIRE_ERROR(none.launch(stream), ErrorKind::invalid_argument, "Graph::capture");
}

TEST_CASE("other streams take part in a capture between events") {
  auto const& stream = test::cuda_context().stream();
  cuda::Stream const beside(0);
  cuda::Event const begun(0), done(0);
  OnDevice const first(ones(1)), second(ones(1));
  auto const graph = cuda::Graph::capture(stream, [&] {
    cuda::launch(stream, {1, 32}, add, {first.data(), 1});
    begun.record(stream);
    beside.wait_for(begun);
    cuda::launch(beside, {1, 32}, multiply_by, {first.data(), 5});
    done.record(beside);
    cuda::launch(stream, {1, 32}, add, {second.data(), 7});
    stream.wait_for(done);
    cuda::launch(stream, {1, 32}, add, {first.data(), 3});
  });
  CHECK(graph.size() == 4);
  graph.launch(stream);
  CHECK(first.read() == std::vector<int>{13});
  CHECK(second.read() == std::vector<int>{8});
}

TEST_CASE("what is thrown while capturing is thrown on, and the stream goes on as before") {
  auto const& stream = test::cuda_context().stream();
  OnDevice const value(ones(1));
  REQUIRE_ERROR(cuda::Graph::capture(stream,
                                     [&] {
                                       cuda::launch(stream, {1, 32}, add, {value.data(), 1});
                                       throw Error(ErrorKind::shape, "test", "a sentence");
                                     }),
                ErrorKind::shape, "a sentence");
  REQUIRE_ERROR(cuda::Graph::capture(stream, [&] { stream.wait(); }), ErrorKind::internal, "cudaStreamSynchronize");
  CHECK(value.read() == ones(1));
  cuda::launch(stream, {1, 32}, add, {value.data(), 1});
  CHECK(value.read() == std::vector<int>{2});
}
