// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a GPU can do: bytes copied by the second, read and written ones counted, and what a launch costs on a stream
/// and in a captured graph.

#include "bench.hpp"

#include <tutti/exec/cuda/graph.hpp>

#include <chrono>

namespace {

using namespace tutti;
using bench::Array;
using bench::Contender;
using std::int64_t;

struct Nothing {
  int* to;
};
__global__ void do_nothing(Nothing const args) {
  if (args.to != nullptr) *args.to = 1;
}

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  cuda::Stream const& stream = context.stream();
  {
    int64_t const count = flags.tiny ? 4096 : int64_t{1} << 29;  // 2 GiB, far more than caches hold
    auto const from = bench::random_array<float>(context, count, 1);
    Array<float> const to(context, count);
    std::vector<Contender> contenders{
        {"copy", [&] { cuda::copy_on_device(stream, to.data(), from.data(), from.bytes()); }}};
    contenders[0].run();
    bench::require(to.read(count - 16, 16) == from.read(count - 16, 16), "the copy");
    bench::take_turns(context, contenders, flags.rounds);
    report.add("copy_bandwidth", 2e-6 * static_cast<double>(from.bytes()) / contenders[0].median(), "GB/s");
  }
  auto const launch = [&] { cuda::launch(stream, {.grid = dim3(1), .block = dim3(32)}, do_nothing, Nothing{nullptr}); };
  auto const launches = [&](int count) {
    for (int i = 0; i < count; ++i) launch();
  };
  int const many = flags.tiny ? 3 : 300;
  launch();  // graphs record what ran before
  stream.wait();
  auto const one = cuda::Graph::capture(stream, [&] { launches(1); });
  auto const hundreds = cuda::Graph::capture(stream, [&] { launches(many); });
  bench::require(one.size() == 1 && hundreds.size() == static_cast<std::size_t>(many), "a captured graph");
  // By the host's clock, from the call to the end of the work: what a step of many small kernels waits for.
  struct Case {
    char const* name;
    std::function<void()> enqueue;
    std::vector<double> microseconds{};
  };
  Case cases[] = {{"stream_1_kernel_until_done", [&] { launch(); }},
                  {"stream_300_kernels_until_done", [&] { launches(many); }},
                  {"graph_1_kernel_until_done", [&] { one.launch(stream); }},
                  {"graph_300_kernels_until_done", [&] { hundreds.launch(stream); }}};
  for (int round = -3; round < 4 * flags.rounds; ++round)
    for (Case& each : cases) {
      auto const begin = std::chrono::steady_clock::now();
      each.enqueue();
      stream.wait();
      std::chrono::duration<double, std::micro> const time = std::chrono::steady_clock::now() - begin;
      if (round >= 0) each.microseconds.push_back(time.count());
    }
  for (Case& each : cases) {
    std::sort(each.microseconds.begin(), each.microseconds.end());
    report.add(each.name, each.microseconds[each.microseconds.size() / 2], "us");
  }
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }
