// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Matrix products of GPT-2 124M in float32 and float64 against OpenBLAS, those of bfloat16 and int8 against oneDNN and
/// our own of float32, and attention against our own matrix product, in one process, in random order. Every result is
/// verified before anything is timed. Ratios above 1 mean that tutti is faster; the rates of products stand beside the
/// multiply-add rate of the same run, too, as rows `NAME/peak`.
///
///   kernels [--threads N] [--isa NAME] [--rows M] [--json FILE] [Google Benchmark's flags]

#include "attention.hpp"
#include "peaks.hpp"
#include "products.hpp"
#include "rows.hpp"

#ifdef TUTTI_BENCH_ONEDNN
#include "onednn.hpp"
#endif

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
void openblas_set_num_threads(int);
char* openblas_get_corename(void);
char* openblas_get_config(void);
}

namespace {

using namespace tutti;
using bench::Form, bench::MatrixProduct, bench::Types;
using std::int64_t;

/// Seconds an iteration of every repetition, by name: of the processor for one thread, of the clock for several.
struct Collector : benchmark::BenchmarkReporter {
  bool processor_time = false;
  std::map<std::string, std::vector<double>> seconds;
  bool ReportContext(Context const&) override { return true; }
  void ReportRuns(std::vector<Run> const& runs) override {
    for (Run const& run : runs)
      if (run.run_type == Run::RT_Iteration && !run.error_occurred)
        seconds[run.run_name.function_name].push_back(
            (processor_time ? run.cpu_accumulated_time : run.real_accumulated_time) /
            static_cast<double>(run.iterations));
  }
  double median(std::string const& name) {
    auto& values = seconds[name];
    if (values.empty()) return NAN;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  }
};

template <class F>
void time(std::string const& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& state) {
    for (auto _ : state) f();
  })->UseRealTime();
}

/// What is compared with one rival, under one title. `peak`: the multiply-add rate that bounds ours, where this table
/// is the one that says so.
struct Table {
  std::string title, rival;
  double peak = 0;
  struct Row {
    std::string name, ours, rival;
    double work, rival_work;
  };
  std::vector<Row> rows = {};
  void add(std::string const& name, std::string const& ours_of, std::string const& rival_of, double work) {
    rows.push_back({name, ours_of, rival_of, work, work});
  }
};

struct Tables {
  Table float32, prepacked, float64, bfloat16, rounded, int8, int8_prepacked, bfloat16_onednn, int8_onednn;
  explicit Tables(bench::Peaks const& peaks)
      : float32{"product", "OpenBLAS", peaks.flops},
        prepacked{"right operand prepacked", "OpenBLAS", peaks.flops},
        float64{"float64 product", "OpenBLAS", peaks.float64},
        bfloat16{"bfloat16 product", "own fp32", peaks.bfloat16},
        rounded{"product rounded to bfloat16", "own fp32"},
        int8{"int8 product", "own fp32", peaks.int8},
        int8_prepacked{"int8, right operand prepacked", "own fp32", peaks.int8},
        bfloat16_onednn{"bfloat16 product", "oneDNN"},
        int8_onednn{"int8 product", "oneDNN"} {}
};

template <kernel::Product Of>
void multiply(exec::Context& context, kernel::Gemm const& g) {
  kernel::cpu::gemm<Of>(context, g);
}
template <>
void multiply<kernel::Product::float32>(exec::Context& context, kernel::Gemm const& g) {
  kernel::cpu::gemm(context, g);
}

/// Registers every contender for one product that its operands have types for. Errors: std::runtime_error (a wrong
/// result, whoever computed it).
void add(exec::Context& context, std::shared_ptr<MatrixProduct> p, Types types, Tables& tables) {
  std::string const name = p->name();
  double const work = p->flops();
  enum class Check { float32, float64, bytes };
  auto const contender = [&name, p](char const* end, Check check, auto f) {
    f();
    if (!p->is_right(check == Check::float64, check == Check::bytes))
      throw std::runtime_error(name + end + ": the result is wrong");
    time(name + end, f);
    return name + end;
  };
  auto const prepacked = [p, &context]<kernel::Product Of>(kernel::Gemm g) {
    auto const packed = std::make_shared<kernel::cpu::PackedRight>(context, g);
    g.b_panels = &packed->panels();
    return [p, packed, g, &context] { multiply<Of>(context, g); };
  };
  using kernel::Product;

  std::string const ours = contender("/tutti", Check::float32, [p, &context] {
    kernel::cpu::gemm(context, p->float32_product());
  });
  std::string const openblas = contender("/openblas", Check::float32, [p] { p->openblas(); });
  tables.float32.add(name, ours, openblas, work);
  if (p->form != Form::tn) {  // whose right operand is never a weight
    std::string const packed = contender("/prepacked", Check::float32,
                                         prepacked.template operator()<Product::float32>(p->float32_product()));
    tables.prepacked.add(packed, packed, openblas, work);
  }
  std::string const narrow = contender("/bf16", Check::float32, [p, &context] {
    kernel::cpu::gemm(context, p->bfloat16_product(true));
  });
  tables.bfloat16.add(narrow, narrow, ours, work);
  std::string const rounded = contender("/rounded", Check::float32, [p, &context] {
    kernel::cpu::gemm(context, p->bfloat16_product(false));
  });
  tables.rounded.add(rounded, rounded, ours, work);
#ifdef TUTTI_BENCH_ONEDNN
  kernel::Gemm const g = p->float32_product();
  auto const onednn = [&](auto const& a, auto const& b, float scale) {
    auto const product = std::make_shared<bench::OneDnnProduct>(p->m, p->n, p->k, a.data(), g.a_row, g.a_column,
                                                                b.data(), g.b_row, g.b_column, p->c.data(),
                                                                context.threads(), scale);
    return [p, product] { (*product)(); };
  };
  tables.bfloat16_onednn.add(narrow, narrow, contender("/onednn", Check::float32, onednn(p->narrow_a, p->narrow_b, 0)),
                             work);
#endif
  if (types != Types::all) return;

  std::string const wide = contender("/float64", Check::float64, [p, &context] {
    kernel::cpu::gemm<Product::float64>(context, p->float64_product());
  });
  tables.float64.add(wide, wide, contender("/dgemm", Check::float64, [p] { p->openblas_float64(); }), work);
  std::string const int8 = contender("/int8", Check::bytes, [p, &context] {
    kernel::cpu::gemm<Product::int8>(context, p->int8_product());
  });
  tables.int8.add(int8, int8, ours, work);
  if (p->form != Form::tn) {
    std::string const packed = contender("/int8_prepacked", Check::bytes,
                                         prepacked.template operator()<Product::int8>(p->int8_product()));
    tables.int8_prepacked.add(packed, packed, ours, work);
  }
#ifdef TUTTI_BENCH_ONEDNN
  tables.int8_onednn.add(
      int8, int8, contender("/onednn_int8", Check::bytes, onednn(p->bytes_a, p->bytes_b, 1.0f / 127 / 127)), work);
#endif
}

void add_products(exec::Context& context, int64_t m, Tables& tables) {
  auto const add_forms = [&](int64_t out, int64_t in, Types types) {
    for (Form const form : {Form::nt, Form::nn, Form::tn}) {
      // The gradient of a weight sums over the rows of the batch.
      auto const product = form == Form::tn   ? std::make_shared<MatrixProduct>(out, in, m, form, types)
                           : form == Form::nn ? std::make_shared<MatrixProduct>(m, in, out, form, types)
                                              : std::make_shared<MatrixProduct>(m, out, in, form, types);
      add(context, product, types, tables);
    }
  };
  add_forms(768, 768, Types::all), add_forms(2304, 768, Types::all);
  add_forms(3072, 768, Types::all), add_forms(768, 3072, Types::all);
  // The head works on chunks of 256 rows.
  if (m == 256) add_forms(50304, 768, Types::float32_and_bfloat16);
}

/// Prints a table and writes its rows. Rows that a filter left out are not there.
void report(Table const& table, Collector& collector, bench::Rows& written) {
  double logarithms = 0, shares = 0;
  int count = 0;
  bool const plain = table.rival == "OpenBLAS";
  for (Table::Row const& row : table.rows) {
    double const ours = row.work / collector.median(row.ours), rival = row.rival_work / collector.median(row.rival);
    if (!std::isfinite(ours)) continue;
    std::string const name = row.name + (plain ? "" : "/" + table.rival);
    if (std::isfinite(rival)) {
      if (count++ == 0)
        std::printf("%-46s %8s %8s\n", table.title.c_str(), "tutti", table.rival.c_str());
      std::printf("%-46s %8.1f %8.1f GFLOP/s  ratio %.3f", name.c_str(), ours * 1e-9, rival * 1e-9, ours / rival);
      if (table.peak > 0) std::printf("  of the peak %.1f %%", 100 * ours / table.peak);
      std::printf("\n");
      written.add(name, ours, rival, ours / rival, "FLOP/s");
      logarithms += std::log(ours / rival), shares += std::log(ours / table.peak);
    }
    if (table.peak > 0) written.add(row.name + "/peak", ours, table.peak, ours / table.peak, "FLOP/s");
  }
  if (count == 0) return;
  std::printf("geometric mean of %d ratios: %.3f", count, std::exp(logarithms / count));
  if (table.peak > 0) std::printf(", of the peak %.1f %%", 100 * std::exp(shares / count));
  std::printf("\n");
}

int run(int argc, char** argv) {
  exec::ContextOptions options;
  std::string json;
  int64_t only_rows = 0;
  std::vector<char*> rest;
  std::string defaults[] = {"--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=9",
                            "--benchmark_min_time=0.03"};
  rest.push_back(argv[0]);
  for (std::string& flag : defaults) rest.push_back(flag.data());
  for (int i = 1; i < argc; ++i) {
    auto const is = [&](char const* flag) { return std::strcmp(argv[i], flag) == 0 && i + 1 < argc; };
    if (is("--threads")) options.threads = std::atoi(argv[++i]);
    else if (is("--json")) json = argv[++i];
    else if (is("--rows")) only_rows = std::atoll(argv[++i]);
    else if (is("--isa")) options.isa = bench::isa_of(argv[++i]);
    else rest.push_back(argv[i]);
  }
  if (only_rows != 0 && only_rows != 256 && only_rows != 1024 && only_rows != 4096)
    throw std::runtime_error("--rows: there are 256, 1024 and 4096");
  bench::Rows written(json);
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;

  exec::Context context(options);
  openblas_set_num_threads(context.threads());
  bench::Peaks const peaks = bench::print_head(context);
  std::printf("%s, on %s\n", openblas_get_config(), openblas_get_corename());

  Tables tables(peaks);
  for (int64_t const m : {256, 1024, 4096})
    if (only_rows == 0 || m == only_rows) add_products(context, m, tables);

  Table attention{"causal attention", "fp32 gemm"};
  MatrixProduct unit(1024, 768, 768, Form::nt, Types::float32_and_bfloat16);
  std::vector<std::unique_ptr<bench::AttentionRun>> attentions;
  if (only_rows == 0) time("attention_unit/gemm", [&] { kernel::cpu::gemm(context, unit.float32_product()); });
  for (int64_t const tokens : {64, 256, 1024}) {
    if (only_rows != 0) break;
    for (auto const product : {kernel::Product::float32, kernel::Product::bfloat16}) {
      attentions.push_back(std::make_unique<bench::AttentionRun>(1024 / tokens, tokens, product));
      bench::AttentionRun* const run = attentions.back().get();
      std::string const end = "/" + std::to_string(tokens) + (product == kernel::Product::bfloat16 ? "/bf16" : ""),
                        forward = "attention" + end, backward = "attention_gradient" + end;
      run->forward(context), run->backward(context);
      if (!run->is_right()) throw std::runtime_error(forward + " or its gradient: the result is wrong");
      time(forward, [run, &context] { run->forward(context); });
      time(backward, [run, &context] { run->backward(context); });
      attention.rows.push_back({forward, forward, "attention_unit/gemm", run->flops(), unit.flops()});
      attention.rows.push_back({backward, backward, "attention_unit/gemm", 2.5 * run->flops(), unit.flops()});
    }
  }

  Collector collector;
  collector.processor_time = context.threads() == 1;
  benchmark::RunSpecifiedBenchmarks(&collector);
  for (Table const* const table : {&tables.float32, &tables.prepacked, &tables.float64, &tables.bfloat16,
                                   &tables.rounded, &tables.int8, &tables.int8_prepacked, &tables.bfloat16_onednn,
                                   &tables.int8_onednn, &attention})
    report(*table, collector, written);
#ifdef TUTTI_BENCH_ONEDNN
  std::printf("oneDNN %s\n", bench::OneDnnProduct::version().c_str());
#else
  std::printf("SKIPPED: oneDNN, which is not installed (Debian: libdnnl-dev)\n");
#endif
  double const after = kernel::cpu::measure_peak_flops(context, 5);
  if (std::abs(after / peaks.flops - 1) > 0.05)
    std::printf("The peak moved from %.0f to %.0f GFLOP/s meanwhile: the machine was not quiet.\n", peaks.flops * 1e-9,
                after * 1e-9);
  written.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(run, argc, argv); }
