// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/context.hpp> <tutti/kernel/cuda/error_word.hpp> <tutti/kernel/cuda/peak.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/peak.hpp>

#include "cuda/support.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <string>
#include <vector>

using namespace tutti;
using kernel::cuda::Context;
using kernel::cuda::Mistake;

namespace {

struct ReportArgs {
  kernel::cuda::ErrorWord* word;
  Mistake mistake;
  std::int64_t first;
  std::int32_t value;
};

/// Every thread reports another index; the smallest must stay.
__global__ void report_all(ReportArgs args) {
  std::int64_t const index = blockIdx.x * blockDim.x + threadIdx.x;
  kernel::cuda::report(args.word, args.mistake, args.first + index, args.value + static_cast<std::int32_t>(index));
}

std::string mistake_of(Context& context, Mistake mistake, std::int64_t first, std::int32_t value) {
  tutti::cuda::launch(context.stream(), {3, 64}, report_all, {context.error_word(), mistake, first, value});
  try {
    context.wait();
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::out_of_range);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a context knows its device") {
  Context context;
  CHECK(context.device() == 0);
  CHECK(context.properties().processors > 0);
  CHECK(context.properties().capability >= 75);
  CHECK(context.properties().shared_bytes >= std::size_t{48} << 10);
  context.wait();
  REQUIRE_ERROR(Context(1000), ErrorKind::unavailable, "cudaDeviceGetAttribute");
}

TEST_CASE("working memory grows and stays, but not while work is captured") {
  Context context;
  void* const first = context.scratch(1000);
  CHECK(context.scratch(10) == first);
  CHECK(context.scratch(1000) == first);
  void* const second = context.scratch(100000);
  tutti::cuda::fill_bytes(context.stream(), second, 1, 100000);
  CHECK(context.scratch(1000) == second);
  auto const graph = tutti::cuda::Graph::capture(
      context.stream(), [&] { tutti::cuda::fill_bytes(context.stream(), context.scratch(100000), 2, 100000); });
  REQUIRE_ERROR(tutti::cuda::Graph::capture(context.stream(), [&] { context.scratch(100001); }),
                ErrorKind::invalid_argument, "Run the same work once before");
  std::vector<unsigned char> seen(100000);
  graph.launch(context.stream());
  tutti::cuda::copy_to_host(context.stream(), seen.data(), second, 100000);
  CHECK(seen == std::vector<unsigned char>(100000, 2));
}

TEST_CASE("of all reported mistakes the one with the smallest index is thrown, once") {
  Context context;
  auto const token = mistake_of(context, Mistake::token, 5, -7);
  CAPTURE(token);
  CHECK(test::contains(token, "token -7 at index 5 is outside the vocabulary"));
  context.wait();  // it is forgotten
  CHECK(test::contains(mistake_of(context, Mistake::target, 1000, 50257), "target 50257 of row 1000"));
  CHECK(test::contains(mistake_of(context, Mistake::position, 0, 2048), "row 0 is at position 2048"));
  CHECK(test::contains(mistake_of(context, Mistake::token, std::int64_t{1} << 40, 3), "index 16777215"));
}

TEST_CASE("a mistake is read where the step ends and thrown later") {
  Context context;
  tutti::cuda::launch(context.stream(), {1, 32}, report_all, {context.error_word(), Mistake::token, 9, 1});
  context.read_mistake();
  context.forget_mistakes();
  tutti::cuda::Event read(0);
  read.record(context.stream());
  read.wait();
  REQUIRE_ERROR(context.throw_mistake(), ErrorKind::out_of_range, "index 9");
  context.read_mistake();
  context.stream().wait();
  context.throw_mistake();
}

TEST_CASE("the ceilings of a device are measured") {
  kernel::cuda::Blas blas(test::cuda_context(), {.autotune = false, .workspace = std::size_t{1} << 16});
  double const wide = kernel::cuda::measure_peak_flops(blas, kernel::Product::float32),
               narrow = kernel::cuda::measure_peak_flops(blas, kernel::Product::bfloat16),
               copies = kernel::cuda::measure_copy_bandwidth(test::cuda_context());
  INFO(wide << " and " << narrow << " flop/s, " << copies << " bytes/s");
  CHECK((wide > 1e5 && wide < 1e16));
  CHECK((narrow > 1e5 && narrow < 1e16));
  CHECK((copies > 1e6 && copies < 1e14));
}
