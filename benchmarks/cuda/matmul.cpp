// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The matrix products of a step of GPT-2 124M (B 32, T 1024) on a GPU: ours, with plans that are kept and timed once,
/// against cuBLASLt called as its manual shows (32 MiB of workspace), with the heuristic's first algorithm and with the
/// fastest of eight. All of them with the same epilogue; for those that have one also cuBLASLt without it.
///
/// The head's products are of as many rows at once as the head of a training step holds logits of, all classes of the
/// padded vocabulary.
///
/// Products of float32 operands run with TF32 at the same shapes, and exactly at an eighth of the rows.

#include "bench.hpp"

#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/cuda/gemm.hpp>

#include <cublasLt.h>

#include <array>
#include <map>
#include <memory>
#include <optional>

namespace {

using namespace tutti;
using bench::Array;
using bench::Contender;
using bench::random_array;
using kernel::cuda::check_blas;
using kernel::cuda::detail::BlasOwner;
using std::int64_t;

enum class Extras { none, bias, bias_residual, bias_gelu_saved, gelu_gradient };
enum class Form { forward, dx, dw };

/// c (m, n) = a b, as kernel::Gemm has it.
struct Shape {
  std::string name;
  int64_t m, n, k;
  Form form;
  Extras extras;
  double times;  ///< in a step
};
std::vector<Shape> shapes(int64_t rows, int64_t head_rows, int64_t channels, int64_t vocabulary, int layers) {
  struct Linear {
    char const* name;
    int64_t out, in;
    Extras forward, backward;
    int64_t rows;
    double times;
  };
  int64_t const c = channels;
  double const layer = layers, chunks = static_cast<double>(rows) / static_cast<double>(head_rows);
  std::vector<Shape> all;
  for (Linear const& l : {Linear{"qkv", 3 * c, c, Extras::bias, Extras::none, rows, layer},
                          Linear{"proj", c, c, Extras::bias_residual, Extras::none, rows, layer},
                          Linear{"fc", 4 * c, c, Extras::bias_gelu_saved, Extras::none, rows, layer},
                          Linear{"out", c, 4 * c, Extras::bias_residual, Extras::gelu_gradient, rows, layer},
                          Linear{"head", vocabulary, c, Extras::none, Extras::none, head_rows, chunks}}) {
    all.push_back({std::string(l.name) + "_forward", l.rows, l.out, l.in, Form::forward, l.forward, l.times});
    all.push_back({std::string(l.name) + "_dx", l.rows, l.in, l.out, Form::dx, l.backward, l.times});
    all.push_back({std::string(l.name) + "_dw", l.out, l.in, l.rows, Form::dw, Extras::none, l.times});
  }
  return all;
}

/// cuBLASLt as its manual shows it.
class Bare {
 public:
  Bare(kernel::cuda::Context& context, kernel::Gemm const& g, cudaDataType_t type, cudaDataType_t result,
       cublasComputeType_t compute, cublasLtEpilogue_t epilogue, void const* bias, std::size_t workspace, bool tuned)
      : context_(context), g_(g), workspace_(context.stream(), workspace) {
    bool const left_turned = g.a_column != 1, right_turned = g.b_row == 1;
    check_blas(cublasLtCreate(handle_.address()), "cublasLtCreate");
    check_blas(cublasLtMatmulDescCreate(operation_.address(), compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // Columns first: our right operand is its left one.
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(right_turned ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(left_turned ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::int32_t>(epilogue));
    if (bias != nullptr && epilogue != CUBLASLT_EPILOGUE_DEFAULT) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    void const* const beside = g.epilogue.saved != nullptr ? g.epilogue.saved : g.epilogue.gelu_gradient;
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && beside != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, beside);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.c_row);
    }
    auto const layout = [](auto& to, cudaDataType_t of, int64_t rows, int64_t columns, int64_t stride) {
      check_blas(cublasLtMatrixLayoutCreate(to.address(), of, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), stride),
                 "cublasLtMatrixLayoutCreate");
    };
    layout(a_, type, right_turned ? g.k : g.n, right_turned ? g.n : g.k, right_turned ? g.b_column : g.b_row);
    layout(b_, type, left_turned ? g.m : g.k, left_turned ? g.k : g.m, left_turned ? g.a_column : g.a_row);
    layout(c_, result, g.n, g.m, g.c_row);
    if (g.epilogue.residual != nullptr && epilogue != CUBLASLT_EPILOGUE_DEFAULT) beta_ = 1;
    BlasOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
    check_blas(cublasLtMatmulPreferenceCreate(preference.address()), "cublasLtMatmulPreferenceCreate");
    std::uint64_t const bytes = workspace;
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                    sizeof bytes),
               "cublasLtMatmulPreferenceSetAttribute");
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    int found = 0;
    cublasStatus_t const status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation_.get(), a_.get(), b_.get(), c_.get(), c_.get(),
                                       preference.get(), tuned ? 8 : 1, results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    // What it proposes it may refuse when it is asked to run it.
    std::vector<Contender> contenders;
    std::size_t fit = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(found); ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      if (cublasStatus_t const refused = try_once(results[i]); refused != CUBLAS_STATUS_SUCCESS) {
        std::printf("cuBLASLt proposes and refuses: %s\n", cublasLtGetStatusString(refused));
        continue;
      }
      results[fit] = results[i];
      contenders.push_back({"", [this, with = results[fit]] { enqueue(with); }});
      ++fit;
    }
    if (fit == 0) return;
    algorithm_ = results[0];
    if (!tuned) return;
    bench::take_turns(context, contenders, 3);
    double least = contenders[0].median();
    for (std::size_t i = 1; i < fit; ++i)
      if (contenders[i].median() < least) least = contenders[i].median(), algorithm_ = results[i];
  }
  bool possible() const { return algorithm_.has_value(); }
  void run() const { enqueue(*algorithm_); }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T const& value) {
    check_blas(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
  }
  cublasStatus_t try_once(cublasLtMatmulHeuristicResult_t const& with) const {
    float const one = 1;
    void const* const added = beta_ != 0 ? g_.epilogue.residual : g_.c;
    return cublasLtMatmul(handle_.get(), operation_.get(), &one, g_.b, a_.get(), g_.a, b_.get(), &beta_, added,
                          c_.get(), g_.c, c_.get(), &with.algo, workspace_.data(), with.workspaceSize,
                          context_.stream().native());
  }
  void enqueue(cublasLtMatmulHeuristicResult_t const& with) const { check_blas(try_once(with), "cublasLtMatmul"); }
  kernel::cuda::Context& context_;
  kernel::Gemm g_;
  cuda::DeviceMemory workspace_;
  BlasOwner<cublasLtHandle_t, cublasLtDestroy> handle_;
  BlasOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  BlasOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a_, b_, c_;
  float beta_ = 0;
  std::optional<cublasLtMatmulHeuristicResult_t> algorithm_;
};

/// Elements of a result with what they are made of, in double.
struct Sample {
  double sum, magnitude, value, beside, residual, bias;
};
template <class T, class C>
struct SampleArguments {
  int64_t m, n, k, a_row, a_column, b_row, b_column;
  T const* a;
  T const* b;
  C const* c;
  C const* beside;
  C const* residual;
  C const* bias;
  Sample* to;
};
/// A block a sample; thread 0 adds up what the others found.
template <class T, class C>
__global__ void take_samples(SampleArguments<T, C> const args) {
  __shared__ double sums[64], magnitudes[64];
  auto const bits = bench::scrambled(blockIdx.x + 77u);
  auto const i = static_cast<int64_t>(bits % static_cast<std::uint64_t>(args.m));
  auto const j = static_cast<int64_t>((bits >> 20) % static_cast<std::uint64_t>(args.n));
  double sum = 0, magnitude = 0;
  for (int64_t p = threadIdx.x; p < args.k; p += 64) {
    double const term = double(float(args.a[i * args.a_row + p * args.a_column])) *
                        double(float(args.b[p * args.b_row + j * args.b_column]));
    sum += term, magnitude += term < 0 ? -term : term;
  }
  sums[threadIdx.x] = sum, magnitudes[threadIdx.x] = magnitude;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int other = 1; other < 64; ++other) sum += sums[other], magnitude += magnitudes[other];
  auto const at = [&](C const* from, int64_t index) { return from == nullptr ? 0.0 : double(float(from[index])); };
  args.to[blockIdx.x] = {sum,
                         magnitude,
                         at(args.c, i * args.n + j),
                         at(args.beside, i * args.n + j),
                         at(args.residual, i * args.n + j),
                         at(args.bias, j)};
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_gradient(double x) {
  double const t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

struct Kind {
  char const* name;
  bool tf32;
  int64_t rows;
};
struct Sums {
  double ours = 0, first = 0, tuned = 0;  // milliseconds of a step
  double operations = 0;
};

template <class T, class C>
void race(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report, kernel::cuda::Blas& blas,
          Kind const& kind, Shape const& s, Sums& sums) {
  constexpr bool narrow_result = sizeof(C) == 2;
  auto const a = random_array<T>(context, s.m * s.k, 1), b = random_array<T>(context, s.k * s.n, 2, -0.05f, 0.05f);
  auto const beside = random_array<C>(context, s.m * s.n, 3), bias = random_array<C>(context, s.n, 5);
  bool const has_residual = s.extras == Extras::bias_residual;
  auto const residual = random_array<C>(context, has_residual ? s.m * s.n : 8, 4);
  Array<C> const c(context, s.m * s.n);
  kernel::Gemm g;
  g.m = s.m, g.n = s.n, g.k = s.k, g.a = a.data(), g.b = b.data(), g.c = c.data(), g.c_row = s.n;
  g.a_row = s.form == Form::dw ? 1 : s.k, g.a_column = s.form == Form::dw ? s.m : 1;
  g.b_row = s.form == Form::forward ? 1 : s.n, g.b_column = s.form == Form::forward ? s.k : 1;
  g.a_dtype = g.b_dtype = dtype_of<T>, g.c_dtype = dtype_of<C>, g.product = kernel::product_in(dtype_of<T>);
  kernel::cuda::GemmForms forms;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (s.extras != Extras::none && s.extras != Extras::gelu_gradient)
    forms.bias = bias.data(), epilogue = CUBLASLT_EPILOGUE_BIAS;
  if (has_residual) g.epilogue.residual = residual.data(), g.epilogue.residual_stride = s.n;
  if (s.extras == Extras::bias_gelu_saved)
    g.epilogue.gelu = true, g.epilogue.saved = beside.data(), epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  if (s.extras == Extras::gelu_gradient) g.epilogue.gelu_gradient = beside.data(), epilogue = CUBLASLT_EPILOGUE_DGELU;

  auto const type = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F, result = narrow_result ? CUDA_R_16BF : CUDA_R_32F;
  auto const compute = kind.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  std::size_t const workspace = blas.options().workspace;
  std::string const name = std::string("matmul_") + kind.name + "_" + s.name;
  std::vector<Contender> contenders{{"ours", [&] { kernel::cuda::gemm(blas, g, forms); }}};
  struct Rival {
    char const* name;
    Bare bare;
  };
  std::vector<std::unique_ptr<Rival>> rivals;
  auto const add_rival = [&](char const* rival, cublasLtEpilogue_t with, bool tuned) {
    rivals.push_back(std::unique_ptr<Rival>(
        new Rival{rival, {context, g, type, result, compute, with, forms.bias, workspace, tuned}}));
    if (!rivals.back()->bare.possible()) {
      std::printf("%s: cuBLASLt has nothing that runs (%s)\n", name.c_str(), rival);
      rivals.pop_back();
    } else {
      contenders.push_back({rival, [bare = &rivals.back()->bare] { bare->run(); }});
    }
  };
  add_rival("bare", epilogue, false);
  add_rival("bare_tuned", epilogue, true);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) add_rival("product_alone", CUBLASLT_EPILOGUE_DEFAULT, true);

  constexpr int count = 32;
  Array<Sample> const samples(context, count);
  for (Contender const& contender : contenders) {
    c.poison();
    contender.run();
    cuda::launch(context.stream(), {.grid = dim3(count), .block = dim3(64)}, take_samples<T, C>,
                 SampleArguments<T, C>{s.m, s.n, s.k, g.a_row, g.a_column, g.b_row, g.b_column, a.data(), b.data(),
                                       c.data(), beside.data(), has_residual ? residual.data() : nullptr,
                                       forms.bias != nullptr ? bias.data() : nullptr, samples.data()});
    bool const alone = contender.name == "product_alone";
    for (Sample const& sample : samples.read()) {
      double const before = alone ? sample.sum : sample.sum + sample.bias + sample.residual;
      double const exact = alone                                 ? before
                           : s.extras == Extras::bias_gelu_saved ? gelu(before)
                           : s.extras == Extras::gelu_gradient   ? before * gelu_gradient(sample.beside)
                                                                 : before;
      double const tolerance = sample.magnitude * (kind.tf32 ? 0x1p-9 : 1e-4) + 1e-6 +
                               (narrow_result ? 0x1p-7 : 0x1p-16) * (std::abs(exact) + std::abs(before));
      bench::require(std::abs(sample.value - exact) <= tolerance, name + ", " + contender.name + ",");
      if (!alone && s.extras == Extras::bias_gelu_saved)
        bench::require(std::abs(sample.beside - before) <= tolerance, name + ", " + contender.name + ", what it keeps");
    }
  }
  bench::take_turns(context, contenders, flags.rounds);
  double const operations = 2.0 * double(s.m) * double(s.n) * double(s.k);
  auto const rate = [&](Contender const& contender) { return 1e-9 * operations / contender.median(); };
  double first = 0, tuned = 0;
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    report.add(name + " vs " + contenders[i].name, rate(contenders[0]), rate(contenders[i]), "TFLOP/s");
    if (contenders[i].name == "bare") first = contenders[i].median();
    if (contenders[i].name == "bare_tuned") tuned = contenders[i].median();
  }
  // Where the library has no such epilogue there is nothing to compare with.
  if (first == 0 || tuned == 0) return;
  sums.operations += s.times * operations;
  sums.ours += s.times * contenders[0].median(), sums.first += s.times * first, sums.tuned += s.times * tuned;
}

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  report.version("cuBLASLt", std::to_string(cublasLtGetVersion()));
  int64_t const channels = flags.tiny ? 16 : 768, vocabulary = flags.tiny ? 64 : 50304, rows = flags.tiny ? 16 : 32768;
  std::size_t const workspace = flags.tiny ? 8192 : std::size_t{32} << 20;
  for (Kind const& kind :
       {Kind{"bf16", false, rows}, Kind{"tf32", true, rows}, Kind{"fp32", false, flags.tiny ? rows : rows / 8}}) {
    kernel::cuda::Blas blas(context, {.tf32 = kind.tf32, .workspace = workspace});
    Sums sums;
    bool complete = true;
    bool const narrow = std::string_view(kind.name) == "bf16";
    int64_t const head_rows = kernel::linear_cross_entropy_device_chunk(kind.rows, vocabulary, narrow ? 2 : 4);
    for (Shape const& shape : shapes(kind.rows, head_rows, channels, vocabulary, 12)) {
      std::string const name = std::string("matmul_") + kind.name + "_" + shape.name;
      if (name.find(flags.only) == std::string::npos) {
        complete = false;
        continue;
      }
      // Gradients of parameters are float, whatever the operands are.
      if (narrow && shape.form == Form::dw) race<bfloat16, float>(context, flags, report, blas, kind, shape, sums);
      else if (narrow) race<bfloat16, bfloat16>(context, flags, report, blas, kind, shape, sums);
      else race<float, float>(context, flags, report, blas, kind, shape, sums);
    }
    if (!complete || sums.ours == 0) continue;
    std::string const name = std::string("matmul_") + kind.name + "_step";
    double const total = 1e-9 * sums.operations;
    report.add(name + " vs bare", total / sums.ours, total / sums.first, "TFLOP/s");
    report.add(name + " vs bare_tuned", total / sums.ours, total / sums.tuned, "TFLOP/s");
  }
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }
