// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/blas_choices.hpp>
// What products ask of cuBLASLt, seen by its emulation, and what the emulation refuses.
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/kernel/cuda/blas_choices.hpp>
#include <tutti/kernel/cuda/gemm.hpp>
#include <tutti/kernel/cuda/linear_cross_entropy.hpp>

#include "cuda/support.hpp"
#include "support/catch.hpp"

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace tutti;
using test::OnDevice;

struct Product {
  OnDevice<bfloat16> a{std::vector<bfloat16>(256, bfloat16(0.5f))}, b{std::vector<bfloat16>(256, bfloat16(0.25f))},
      c{std::vector<bfloat16>(256, bfloat16(1.0f))}, saved{std::vector<bfloat16>(256, bfloat16(1.0f))};
  OnDevice<float> bias{std::vector<float>(16, 2.0f)};
  kernel::Gemm gemm;
  kernel::cuda::GemmForms forms;
  Product() {
    gemm.m = gemm.n = gemm.k = 16;
    gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data();
    gemm.a_row = gemm.b_row = gemm.c_row = 16;
    gemm.a_dtype = gemm.b_dtype = gemm.c_dtype = DType::bfloat16;
  }
  float run(kernel::cuda::Blas& blas) {
    kernel::cuda::gemm(blas, gemm, forms);
    return float(c.read()[0]);
  }
};

}  // namespace

TEST_CASE("products hand their epilogues to cuBLASLt where it has them") {
  kernel::cuda::Blas blas(test::cuda_context(), {.workspace = 8192});
  Product p;
  CHECK(p.run(blas) == 2.0f);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_DEFAULT);
  p.gemm.epilogue.bias = p.bias.data();
  CHECK(p.run(blas) == 4.0f);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_BIAS);
  p.gemm.epilogue.gelu = true;
  p.run(blas);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_GELU_BIAS);
  p.gemm.epilogue.saved = p.saved.data();
  p.run(blas);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  CHECK(float(p.saved.read()[0]) == 4.0f);
  p.gemm.epilogue = {.gelu_gradient = p.saved.data()};
  p.run(blas);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_DGELU);
  p.gemm.epilogue = {};
  p.forms.left_sums = p.saved.data();
  p.run(blas);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_DEFAULT);  // a kernel of our own sums up
  CHECK(float(p.saved.read()[0]) == 8.0f);
}

TEST_CASE("products of a library without epilogues are the same, by a second kernel") {
  Product p, q;
  p.gemm.epilogue.bias = q.gemm.epilogue.bias = p.bias.data();
  kernel::cuda::Blas with(test::cuda_context(), {.workspace = 8192}),
      without(test::cuda_context(), {.workspace = 8192});
  float const expected = p.run(with);
  emulated::refuse_epilogues(true);
  float const found = q.run(without);
  emulated::refuse_epilogues(false);
  CHECK(emulated::last_epilogue() == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(found == expected);
}

TEST_CASE("without autotuning products take the heuristic's first algorithm, and ask once") {
  kernel::cuda::Blas blas(test::cuda_context(), {.autotune = false, .workspace = 8192});
  Product p;
  int const before = emulated::heuristics_asked();
  p.run(blas);
  p.run(blas);
  CHECK(emulated::heuristics_asked() == before + 1);
  CHECK(emulated::last_algorithm() == 0);
}

TEST_CASE("a product that is met first while it is captured is not timed, and replays") {
  kernel::cuda::Context& context = test::cuda_context();
  context.scratch(8192);
  kernel::cuda::Blas blas(context, {.workspace = 8192});
  Product p;
  cuda::Graph const graph =
      cuda::Graph::capture(context.stream(), [&] { kernel::cuda::gemm(blas, p.gemm, p.forms); });
  CHECK(emulated::last_algorithm() == 0);
  CHECK(float(p.c.read()[0]) == 1.0f);  // nothing ran yet
  graph.launch(context.stream());
  CHECK(float(p.c.read()[0]) == 2.0f);
}

TEST_CASE("algorithms are chosen by where bias and saved values are, and chosen again where that changes") {
  kernel::cuda::Blas blas(test::cuda_context(), {.workspace = 8192});
  Product p;
  OnDevice<bfloat16> const biases(std::vector<bfloat16>(32, bfloat16(3.0f)));
  auto const run_with = [&](std::ptrdiff_t offset) {
    p.forms.bias = biases.data() + offset;
    return p.run(blas);
  };
  CHECK(run_with(0) == 5.0f);
  CHECK(run_with(1) == 5.0f);  // at a multiple of two bytes alone
  CHECK(run_with(8) == 5.0f);
  CHECK(run_with(3) == 5.0f);
  CHECK(blas.plans() == 2);
  p.forms.bias = nullptr;
  OnDevice<float> const sums(std::size_t{32});
  p.gemm.c_dtype = DType::bfloat16;
  for (std::ptrdiff_t offset : {std::ptrdiff_t{0}, std::ptrdiff_t{1}}) {
    p.forms.left_sums = reinterpret_cast<bfloat16*>(sums.data()) + offset;
    CHECK(p.run(blas) == 2.0f);
  }
  CHECK(blas.plans() == 3);
}

TEST_CASE("what a product's plan is timed on is what it multiplies, in the product's type") {
  kernel::cuda::Context context;  // its working memory was never written
  for (bool autotune : {false, true}) {
    kernel::cuda::Blas blas(context, {.autotune = autotune, .workspace = 8192});
    OnDevice<float> const a(std::vector<float>(256, 0.5f), context), b(std::vector<float>(256, 0.25f), context),
        bias(std::vector<float>(16, 2.0f), context);
    OnDevice<bfloat16> const c(std::size_t{256}, context);
    kernel::Gemm g;
    g.m = g.n = g.k = 16, g.product = kernel::Product::bfloat16;
    g.a = a.data(), g.b = b.data(), g.c = c.data(), g.c_dtype = DType::bfloat16;
    g.a_row = g.b_row = g.c_row = 16;
    g.epilogue.bias = bias.data();
    int const before = emulated::sums_of_nan();
    kernel::cuda::gemm(blas, g);
    g.epilogue.gelu = true, g.epilogue.gelu_gradient = c.data();  // by a second kernel
    kernel::cuda::gemm(blas, g);
    context.wait();
    CHECK(emulated::sums_of_nan() == before);
  }
}

TEST_CASE(
    "algorithms are chosen by their time where that is asked for alone, and by another's choices where there are") {
  kernel::cuda::Context& context = test::cuda_context();
  kernel::cuda::Blas plain(context, {.workspace = 8192}), tuned(context, {.autotune = true, .workspace = 8192});
  Product p;
  emulated::make_fastest(1);
  p.run(plain);
  CHECK(emulated::last_algorithm() == 0);
  p.run(tuned);
  CHECK(emulated::last_algorithm() == 1);
  p.forms.bias = p.saved.data();
  p.run(tuned);
  emulated::make_fastest(0);
  std::string const text = choices_to_text(tuned);
  for (bool autotune : {false, true}) {
    kernel::cuda::Blas other(context, {.autotune = autotune, .workspace = 8192});
    REQUIRE(choices_from_text(other, text));
    CHECK(p.run(other) == 3.0f);
    CHECK(emulated::last_algorithm() == 1);
    CHECK(choices_to_text(other).size() < text.size());
    p.forms.bias = nullptr;
    p.run(other);
    CHECK(emulated::last_algorithm() == 1);
    p.forms.bias = p.saved.data();
    p.gemm.beta = 1;  // a product that the other did not meet
    p.run(other);
    CHECK(emulated::last_algorithm() == 0);
    p.gemm.beta = 0;
  }
  emulated::make_fastest(-1);
  std::string older = text, damaged = text;
  older.replace(older.find("cublasLt "), 9, "cublasLt 9");
  damaged.resize(damaged.size() - 5);
  CHECK_FALSE(choices_from_text(plain, older));
  REQUIRE_ERROR(choices_from_text(plain, damaged), ErrorKind::format, "line 5");
  REQUIRE_ERROR(choices_from_text(plain, "{}"), ErrorKind::format, "no list of choices");
}

TEST_CASE("sums of products are never added up in place, where their order is anybody's") {
  for (bool autotune : {false, true}) {
    kernel::cuda::Blas blas(test::cuda_context(), {.autotune = autotune, .workspace = 8192});
    Product p;
    CHECK(p.run(blas) == 2.0f);
    CHECK(emulated::last_scheme() != CUBLASLT_REDUCTION_SCHEME_INPLACE);
  }
}

TEST_CASE("the head multiplies with the padded vocabulary, forward and backward: its rows are aligned to 16 bytes") {
  constexpr std::int64_t rows = 8, channels = 16, vocabulary = 33, padded = 40;
  kernel::cuda::Blas blas(test::cuda_context(), {.workspace = 8192});
  OnDevice<bfloat16> const x(std::vector<bfloat16>(rows * channels, bfloat16(0.5f))), dx(std::size_t{rows * channels}),
      weight(std::vector<bfloat16>(padded * channels, bfloat16(0.25f)));
  OnDevice<std::int32_t> const targets(std::vector<std::int32_t>(rows, 1));
  OnDevice<unsigned char> const workspace(static_cast<std::size_t>(
      kernel::linear_cross_entropy_device_workspace(rows, padded, rows, sizeof(bfloat16))));
  OnDevice<float> const loss(std::size_t{1});
  kernel::LinearCrossEntropyOf<bfloat16> args;
  args.rows = rows, args.channels = channels, args.vocabulary = vocabulary, args.padded_vocabulary = padded;
  args.x = x.data(), args.weight = weight.data(), args.targets = targets.data(), args.loss = loss.data();
  args.workspace = reinterpret_cast<float*>(workspace.data());
  using Extents = std::array<std::int64_t, 3>;
  kernel::cuda::linear_cross_entropy(blas, args, rows);
  CHECK(emulated::last_extents() == Extents{padded, rows, channels});
  args.dx = dx.data();
  kernel::cuda::linear_cross_entropy(blas, args, rows);
  CHECK(emulated::last_extents() == Extents{channels, rows, padded});
  test::cuda_context().wait();
}

TEST_CASE("the emulated cuBLASLt refuses algorithms of other problems, and shapes that do not fit") {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t square = nullptr, longer = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 4, 4, 4);
  cublasLtMatrixLayoutCreate(&longer, CUDA_R_32F, 5, 4, 5);
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, operation, longer, square, square, square, preference, 1, &result,
                                       &found) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(cublasLtMatmulAlgoGetHeuristic(handle, operation, square, square, square, square, preference, 1, &result,
                                         &found) == CUBLAS_STATUS_SUCCESS);
  OnDevice<float> const a(std::vector<float>(32, 1.0f)), d(std::vector<float>(32, 0.0f));
  float const one = 1, zero = 0;
  cudaStream_t const stream = test::cuda_context().stream().native();
  auto const multiply = [&](float const* from) {
    return cublasLtMatmul(handle, operation, &one, from, square, from, square, &zero, d.data(), square, d.data(),
                          square, &result.algo, nullptr, 0, stream);
  };
  CHECK(multiply(a.data()) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(a.data() + 1) == CUBLAS_STATUS_INVALID_VALUE);  // less aligned than the preference promised
  std::int32_t const transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  CHECK(multiply(a.data()) == CUBLAS_STATUS_INVALID_VALUE);  // another problem's algorithm
  CHECK(d.read()[0] == 4.0f);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(longer);
  cublasLtMatrixLayoutDestroy(square);
  cublasLtMatmulDescDestroy(operation);
  cublasLtDestroy(handle);
}
