// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What this machine can do now, on 1 to N threads: multiply-adds of each type, memory bandwidth, and the cost of a
/// parallel region. Other benchmarks begin with the same lines.
///
///   peaks [--threads N] [--isa NAME] [--head] [--json FILE]
///     --threads   0, the default: as many as the process may use
///     --head      N threads only, as the head of another report

#include "peaks.hpp"
#include "rows.hpp"

#include <tutti/core/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using namespace tutti;

void add_rows(bench::Rows& rows, int threads, bench::Peaks const& peaks) {
  std::string const on = " on " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  rows.add("peak float32" + on, peaks.flops, "FLOP/s");
  rows.add("peak float64" + on, peaks.float64, "FLOP/s");
  rows.add("peak bfloat16" + on, peaks.bfloat16, "FLOP/s");
  rows.add("peak int8" + on, peaks.int8, "OP/s");
  rows.add("read bandwidth" + on, peaks.read, "B/s");
  rows.add("copy bandwidth" + on, peaks.copy, "B/s");
  rows.add("parallel region" + on, peaks.region * 1e9, "ns");
  rows.add("barrier" + on, peaks.barrier * 1e9, "ns");
}

int run(int argc, char** argv) {
  exec::ContextOptions options;
  std::string json;
  bool head = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view const flag = argv[i];
    if (flag == "--head") head = true;
    else if (flag == "--threads" && i + 1 < argc) options.threads = std::atoi(argv[++i]);
    else if (flag == "--isa" && i + 1 < argc) options.isa = bench::isa_of(argv[++i]);
    else if (flag == "--json" && i + 1 < argc) json = argv[++i];
    else throw std::runtime_error("usage: peaks [--threads N] [--isa NAME] [--head] [--json FILE]");
  }
  int const most = options.threads > 0 ? options.threads : exec::available_processors();
  bench::Rows rows(json);
  bench::print_machine(options.isa);
  for (int threads = head ? most : 1; threads <= most; ++threads) {
    options.threads = threads;
    exec::Context context(options);
    bench::Peaks const peaks = bench::measure_peaks(context);
    bench::print_peaks(threads, options.isa, peaks);
    std::fflush(stdout);
    add_rows(rows, threads, peaks);
  }
  rows.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(run, argc, argv); }
