// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Matrix products of GPT-2 124M in float32 and float64 against OpenBLAS, those of bfloat16 and int8 against oneDNN and
/// our own of float32, and attention against our own matrix product, in one process, in random order. Results are
/// verified before anything is timed, but for the gradient of attention, which has tests alone. Ratios above 1 mean
/// that tutti is faster.
///
///   kernels [--threads N] [--isa NAME] [--rows M] [--json FILE] [Google Benchmark's flags]

#include "peaks.hpp"
#include "rows.hpp"

#ifdef TUTTI_BENCH_ONEDNN
#include "onednn.hpp"
#endif

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include <benchmark/benchmark.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // its complex types are C99
#include <cblas.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
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
using std::int64_t;

enum class Form { nt, nn, tn };  // y = x w^T; dx = dy w; dw = dy^T x

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = draw(engine);
  return result;
}

struct Product {
  int64_t m, n, k;
  Form form;
  std::vector<float> a, b, c;
  std::vector<tutti::bfloat16> narrow_a, narrow_b;
  std::vector<double> wide_a, wide_b, wide_c;
  std::vector<std::int8_t> bytes_a, bytes_b;
  std::vector<float> scales_a, scales_b;  // of rows of the left operand and columns of the right one
  Product(int64_t rows, int64_t columns, int64_t terms, Form which)
      : m(rows),
        n(columns),
        k(terms),
        form(which),
        a(random_floats(rows * terms, 1)),
        b(random_floats(terms * columns, 2)),
        c(static_cast<std::size_t>(rows * columns), NAN) {
    for (float& value : a) narrow_a.push_back(tutti::bfloat16(value)), value = narrow_a.back();
    for (float& value : b) narrow_b.push_back(tutti::bfloat16(value)), value = narrow_b.back();
    wide_a.assign(a.begin(), a.end()), wide_b.assign(b.begin(), b.end()), wide_c.assign(c.size(), NAN);
    // The values of a whole operand have one range: any scales do.
    auto const to_bytes = [](std::vector<float> const& from) {
      std::vector<std::int8_t> bytes;
      for (float const value : from) bytes.push_back(static_cast<std::int8_t>(std::lrint(value * 127)));
      return bytes;
    };
    bytes_a = to_bytes(a), bytes_b = to_bytes(b);
    scales_a.assign(static_cast<std::size_t>(m), 1.0f / 127), scales_b.assign(static_cast<std::size_t>(n), 1.0f / 127);
  }
  std::string name() const {
    char const* const forms[] = {"nt", "nn", "tn"};
    return std::string("gemm_") + forms[static_cast<int>(form)] + "/" + std::to_string(m) + "x" + std::to_string(n) +
           "x" + std::to_string(k);
  }
  kernel::Gemm ours() {
    kernel::Gemm g;
    g.m = m, g.n = n, g.k = k, g.a = a.data(), g.b = b.data(), g.c = c.data(), g.c_row = n;
    g.a_row = form == Form::tn ? 1 : k;
    g.a_column = form == Form::tn ? m : 1;
    g.b_row = form == Form::nt ? 1 : n;
    g.b_column = form == Form::nt ? k : 1;
    return g;
  }
  /// The same of bfloat16 operands, stored so or rounded from float32 on the way.
  kernel::Gemm bfloat16_product(bool stored) {
    kernel::Gemm g = ours();
    g.product = kernel::Product::bfloat16;
    if (!stored) return g;
    g.a = narrow_a.data(), g.b = narrow_b.data();
    g.a_dtype = g.b_dtype = DType::bfloat16;
    return g;
  }
  kernel::Gemm float64_product() {
    kernel::Gemm g = ours();
    g.product = kernel::Product::float64;
    g.a = wide_a.data(), g.b = wide_b.data(), g.c = wide_c.data();
    g.a_dtype = g.b_dtype = g.c_dtype = DType::float64;
    return g;
  }
  /// The same of int8 operands, with scales.
  kernel::Gemm int8_product() {
    kernel::Gemm g = ours();
    g.product = kernel::Product::int8;
    g.a = bytes_a.data(), g.b = bytes_b.data();
    g.a_dtype = g.b_dtype = DType::int8;
    g.epilogue.row_scales = scales_a.data(), g.epilogue.column_scales = scales_b.data();
    return g;
  }
  void rival() {
    auto const size = [](int64_t x) { return static_cast<blasint>(x); };
    cblas_sgemm(CblasRowMajor, form == Form::tn ? CblasTrans : CblasNoTrans,
                form == Form::nt ? CblasTrans : CblasNoTrans, size(m), size(n), size(k), 1.0f, a.data(),
                size(form == Form::tn ? m : k), b.data(), size(form == Form::nt ? k : n), 0.0f, c.data(), size(n));
  }
  void float64_rival() {
    auto const size = [](int64_t x) { return static_cast<blasint>(x); };
    cblas_dgemm(CblasRowMajor, form == Form::tn ? CblasTrans : CblasNoTrans,
                form == Form::nt ? CblasTrans : CblasNoTrans, size(m), size(n), size(k), 1.0, wide_a.data(),
                size(form == Form::tn ? m : k), wide_b.data(), size(form == Form::nt ? k : n), 0.0, wide_c.data(),
                size(n));
  }
  /// Puts what a float64 product computed where the others do.
  void narrow_result() {
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(wide_c[i]), wide_c[i] = NAN;
  }
  /// Whether sampled elements are near sums in double: operands are numbers of bfloat16 in any case, or `bytes`.
  bool right(bool bytes) {
    kernel::Gemm const g = ours();
    std::mt19937_64 engine(3);
    for (int sample = 0; sample < 200; ++sample) {
      int64_t const i = static_cast<int64_t>(engine() % static_cast<std::uint64_t>(m)),
                    j = static_cast<int64_t>(engine() % static_cast<std::uint64_t>(n));
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        auto const left = static_cast<std::size_t>(i * g.a_row + p * g.a_column),
                   right = static_cast<std::size_t>(p * g.b_row + j * g.b_column);
        sum += bytes ? bytes_a[left] * bytes_b[right] / (127.0 * 127.0) : double(a[left]) * double(b[right]);
      }
      if (!(std::abs(sum - double(c[static_cast<std::size_t>(i * n + j)])) <= 1e-6 * static_cast<double>(k)))
        return false;
    }
    std::fill(c.begin(), c.end(), NAN);
    return true;
  }
};

bool verified(Product& product, char const* what, bool bytes = false) {
  bool const right = product.right(bytes);
  if (!right) std::fprintf(stderr, "%s: %s\n", product.name().c_str(), what);
  return right;
}

struct AttentionRun {
  int64_t batch, tokens, heads = 12, head_size = 64;
  kernel::Product product;
  std::vector<float> qkv, out, lse, dout, dqkv;
  AttentionRun(int64_t batches, int64_t length, kernel::Product kind) : batch(batches), tokens(length), product(kind) {
    int64_t const size = batch * tokens * heads * head_size;
    qkv = random_floats(3 * size, 4), dout = random_floats(size, 5);
    out.resize(static_cast<std::size_t>(size)), dqkv.resize(static_cast<std::size_t>(3 * size));
    lse.resize(static_cast<std::size_t>(batch * heads * tokens));
  }
  double flops() const {
    return 2.0 * static_cast<double>(batch * heads * tokens * (tokens + 1) * head_size);
  }  // two products, half of each
  void forward(exec::Context& context) {
    kernel::cpu::attention(context, {batch, tokens, heads, head_size, 0.125f, qkv.data(), out.data(), lse.data(), 0,
                                     product});
  }
  /// Some rows of some heads against double precision.
  bool right() const {
    double const tolerance = product == kernel::Product::bfloat16 ? 2e-2 : 1e-5;
    int64_t const channels = heads * head_size;
    for (int64_t const h : {int64_t{0}, heads - 1})
      for (int64_t const t : {int64_t{0}, tokens / 3, tokens - 1}) {
        auto const at = [&](int64_t token, int64_t part, int64_t i) {
          return double(qkv[static_cast<std::size_t>(token * 3 * channels + part * channels + h * head_size + i)]);
        };
        std::vector<double> p(static_cast<std::size_t>(t + 1));
        double sum = 0;
        for (int64_t key = 0; key <= t; ++key) {
          double score = 0;
          for (int64_t i = 0; i < head_size; ++i) score += at(t, 0, i) * at(key, 1, i);
          sum += p[static_cast<std::size_t>(key)] = std::exp(0.125 * score);
        }
        for (int64_t i = 0; i < head_size; ++i) {
          double exact = 0;
          for (int64_t key = 0; key <= t; ++key) exact += p[static_cast<std::size_t>(key)] / sum * at(key, 2, i);
          if (!(std::abs(exact - double(out[static_cast<std::size_t>(t * channels + h * head_size + i)])) <= tolerance))
            return false;
        }
      }
    return true;
  }
  void backward(exec::Context& context) {
    kernel::cpu::attention_gradient(context, {batch, tokens, heads, head_size, 0.125f, dout.data(), qkv.data(),
                                              out.data(), lse.data(), dqkv.data(), 0, product});
  }
};

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

struct Row {
  std::string name, ours, rival;
  double work;
};

template <class F>
void add(std::string const& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& state) {
    for (auto _ : state) f();
  })->UseRealTime();
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

  std::vector<std::unique_ptr<Product>> products;
  std::vector<std::unique_ptr<AttentionRun>> attentions;
  std::vector<Row> rows, packed_rows, narrow_rows, onednn_rows, int8_rows, int8_onednn_rows, float64_rows;
  int64_t const shapes[][2] = {{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}};
  for (int64_t m : {256, 1024, 4096}) {
    if (only_rows != 0 && m != only_rows) continue;
    for (auto const& shape : shapes)
      for (Form form : {Form::nt, Form::nn, Form::tn}) {
        // The gradient of a weight sums over the rows of the batch.
        auto product = form == Form::tn ? std::make_unique<Product>(shape[0], shape[1], m, form)
                                        : std::make_unique<Product>(m, shape[0], shape[1], form);
        Product* const p = product.get();
        kernel::cpu::gemm(context, p->ours());
        if (!verified(*p, "tutti's result is wrong")) return 1;
        p->rival();
        if (!verified(*p, "the rival's result is wrong")) return 1;
        Row row{p->name(), p->name() + "/tutti", p->name() + "/openblas",
                2.0 * static_cast<double>(p->m * p->n * p->k)};
        add(row.ours, [p, &context] { kernel::cpu::gemm(context, p->ours()); });
        add(row.rival, [p] { p->rival(); });
        rows.push_back(row);
        if (form != Form::tn) {  // whose right operand is never a weight
          auto const packed = std::make_shared<kernel::cpu::PackedRight>(context, p->ours());
          auto const product_of = [p, packed, &context] {
            kernel::Gemm g = p->ours();
            g.b_panels = &packed->panels();
            kernel::cpu::gemm(context, g);
          };
          product_of();
          if (!verified(*p, "tutti's prepacked result is wrong")) return 1;
          add(p->name() + "/prepacked", product_of);
          packed_rows.push_back({p->name() + "/prepacked", p->name() + "/prepacked", row.rival, row.work});
        }
        for (bool const stored : {true, false}) {
          std::string const name = p->name() + (stored ? "/bf16" : "/rounded");
          kernel::cpu::gemm(context, p->bfloat16_product(stored));
          if (!verified(*p, stored ? "tutti's bfloat16 result is wrong" : "tutti's rounded result is wrong")) return 1;
          add(name, [p, stored, &context] { kernel::cpu::gemm(context, p->bfloat16_product(stored)); });
          narrow_rows.push_back({name, name, row.ours, row.work});
        }
        auto const float64 = [p, &context] {
          kernel::cpu::gemm<kernel::Product::float64>(context, p->float64_product());
        };
        float64();
        p->narrow_result();
        if (!verified(*p, "tutti's float64 result is wrong")) return 1;
        p->float64_rival();
        p->narrow_result();
        if (!verified(*p, "the rival's float64 result is wrong")) return 1;
        Row const float64_row{p->name() + "/float64", p->name() + "/float64", p->name() + "/dgemm", row.work};
        add(float64_row.ours, float64);
        add(float64_row.rival, [p] { p->float64_rival(); });
        float64_rows.push_back(float64_row);
        auto const int8 = [p, &context] { kernel::cpu::gemm<kernel::Product::int8>(context, p->int8_product()); };
        int8();
        if (!verified(*p, "tutti's int8 result is wrong", true)) return 1;
        add(p->name() + "/int8", int8);
        int8_rows.push_back({p->name() + "/int8", p->name() + "/int8", row.ours, row.work});
        if (form != Form::tn) {
          auto const packed = std::make_shared<kernel::cpu::PackedRight>(context, p->int8_product());
          auto const product_of = [p, packed, &context] {
            kernel::Gemm g = p->int8_product();
            g.b_panels = &packed->panels();
            kernel::cpu::gemm<kernel::Product::int8>(context, g);
          };
          product_of();
          if (!verified(*p, "tutti's prepacked int8 result is wrong", true)) return 1;
          add(p->name() + "/int8_prepacked", product_of);
          int8_rows.push_back({p->name() + "/int8_prepacked", p->name() + "/int8_prepacked", row.ours, row.work});
        }
#ifdef TUTTI_BENCH_ONEDNN
        kernel::Gemm const g = p->ours();
        auto const rival = std::make_shared<bench::OneDnnProduct>(p->m, p->n, p->k, p->narrow_a.data(), g.a_row,
                                                                  g.a_column, p->narrow_b.data(), g.b_row, g.b_column,
                                                                  p->c.data(), context.threads());
        (*rival)();
        if (!verified(*p, "oneDNN's result is wrong")) return 1;
        add(p->name() + "/onednn", [rival] { (*rival)(); });
        onednn_rows.push_back({p->name() + "/bf16", p->name() + "/bf16", p->name() + "/onednn", row.work});
        auto const int8_rival = std::make_shared<bench::OneDnnProduct>(
            p->m, p->n, p->k, p->bytes_a.data(), g.a_row, g.a_column, p->bytes_b.data(), g.b_row, g.b_column,
            p->c.data(), context.threads(), 1.0f / 127 / 127);
        (*int8_rival)();
        if (!verified(*p, "oneDNN's int8 result is wrong", true)) return 1;
        add(p->name() + "/onednn_int8", [int8_rival] { (*int8_rival)(); });
        int8_onednn_rows.push_back({p->name() + "/int8", p->name() + "/int8", p->name() + "/onednn_int8", row.work});
#endif
        products.push_back(std::move(product));
      }
  }
  Product reference(1024, 768, 768, Form::nt);
  std::string const unit = "attention_unit/gemm";
  double const unit_flops = 2.0 * 1024 * 768 * 768;
  add(unit, [&] { kernel::cpu::gemm(context, reference.ours()); });
  struct AttentionRow {
    std::string name;
    double work;
  };
  std::vector<AttentionRow> attention_rows;
  for (int64_t tokens : {64, 256, 1024}) {
    if (only_rows != 0) break;
    for (auto const product : {kernel::Product::float32, kernel::Product::bfloat16}) {
      attentions.push_back(std::make_unique<AttentionRun>(1024 / tokens, tokens, product));
      AttentionRun* const run = attentions.back().get();
      run->forward(context);
      if (!run->right()) {
        std::fprintf(stderr, "attention over %lld tokens is wrong\n", static_cast<long long>(tokens));
        return 1;
      }
      std::string const end = "/" + std::to_string(tokens) + (product == kernel::Product::bfloat16 ? "/bf16" : "");
      add("attention" + end, [run, &context] { run->forward(context); });
      add("attention_gradient" + end, [run, &context] { run->backward(context); });
      attention_rows.push_back({"attention" + end, run->flops()});
      attention_rows.push_back({"attention_gradient" + end, 2.5 * run->flops()});
    }
  }

  Collector collector;
  collector.processor_time = context.threads() == 1;
  benchmark::RunSpecifiedBenchmarks(&collector);
  auto const report = [&written](std::string const& name, double ours, double rival) {
    if (!std::isfinite(ours / rival)) return;  // filtered out
    std::printf("%-34s %8.1f %8.1f GFLOP/s  ratio %.3f\n", name.c_str(), ours * 1e-9, rival * 1e-9, ours / rival);
    written.add(name, ours, rival, ours / rival, "FLOP/s");
  };
  auto const report_all = [&](char const* title, char const* rival_name, std::vector<Row> const& compared) {
    double logarithms = 0;
    int ratios = 0;
    std::printf("%-34s %8s %8s\n", title, "tutti", rival_name);
    for (Row const& row : compared) {
      double const ours = row.work / collector.median(row.ours), rival = row.work / collector.median(row.rival);
      report(row.name + (rival_name == std::string("OpenBLAS") ? "" : std::string("/") + rival_name), ours, rival);
      if (std::isfinite(ours / rival)) logarithms += std::log(ours / rival), ++ratios;
    }
    if (ratios > 0)
      std::printf("geometric mean of %d ratios: %.3f\n", ratios, std::exp(logarithms / ratios));
  };
  report_all("product", "OpenBLAS", rows);
  report_all("right operand prepacked", "OpenBLAS", packed_rows);
  report_all("float64 product", "OpenBLAS", float64_rows);
  report_all("bfloat16 product", "own fp32", narrow_rows);
  report_all("int8 product", "own fp32", int8_rows);
#ifdef TUTTI_BENCH_ONEDNN
  report_all("bfloat16 product", "oneDNN", onednn_rows), report_all("int8 product", "oneDNN", int8_onednn_rows);
  std::printf("oneDNN %s\n", bench::OneDnnProduct::version().c_str());
#else
  std::printf("SKIPPED: oneDNN, which is not installed (Debian: libdnnl-dev)\n");
#endif
  std::printf("%-34s %8s %8s\n", "causal attention", "tutti", "fp32 gemm");
  for (AttentionRow const& row : attention_rows)
    report(row.name, row.work / collector.median(row.name), unit_flops / collector.median(unit));
  double const after = kernel::cpu::measure_peak_flops(context, 5);
  if (std::abs(after / peaks.flops - 1) > 0.05)
    std::printf("The peak moved from %.0f to %.0f GFLOP/s meanwhile: the machine was not quiet.\n", peaks.flops * 1e-9,
                after * 1e-9);
  written.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
