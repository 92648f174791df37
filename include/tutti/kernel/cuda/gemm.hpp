// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The matrix product on CUDA devices: by cuBLASLt with its epilogues where they fit, by a kernel at memory's bandwidth
/// for up to four rows, and with a second kernel for what neither does.

#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/column_sum.hpp>
#include <tutti/kernel/cuda/gemm_rows.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::kernel::cuda {

/// What a product on a device can do beside its contract.
struct GemmForms {
  void const* bias = nullptr;  ///< (N) of c's type, in the place of the epilogue's
  void* left_sums = nullptr;   ///< (M) of c's type: sums over k of A; with A = dout^T the gradient of a bias
  std::int64_t batch = 1;      ///< products of one shape, without epilogue; below: elements between two of them
  std::int64_t a_batch = 0, b_batch = 0, c_batch = 0;
};

namespace detail {

/// A matrix of (outer, inner) elements with unit stride along `inner`, as an operand of cuBLASLt.
struct GemmOperand {
  void const* data = nullptr;
  DType dtype = DType::float32;
  std::int64_t outer = 0, inner = 0, stride = 0;
  bool turned = false;  ///< `inner` is not k
};
/// (lines, terms) elements, `terms` along k.
inline GemmOperand gemm_operand(void const* data, DType dtype, std::int64_t lines, std::int64_t terms,
                                std::int64_t line_stride, std::int64_t term_stride) {
  if (term_stride == 1 && (line_stride >= terms || lines == 1))
    return {data, dtype, lines, terms, std::max(line_stride, terms), false};
  if (line_stride == 1 && (term_stride >= lines || terms == 1))
    return {data, dtype, terms, lines, std::max(term_stride, lines), true};
  throw Error(ErrorKind::invalid_argument, "gemm",
              concat("an operand has strides ", line_stride, " and ", term_stride,
                     ". One of them must be 1, and the other at least as long as the line"));
}

inline unsigned blocks_of(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>(std::min<std::int64_t>((items + each - 1) / each, 4096));
}

/// f(float) or f(bfloat16) by the type of what a pointer points to.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::bfloat16) f(bfloat16{});
  else f(float{});
}

/// An operand in another type, its rows at `to` without gaps.
inline GemmOperand retyped(Context& context, GemmOperand const& operand, DType to_dtype, void* to) {
  RetypeArguments const arguments{operand.outer, operand.inner, operand.stride, operand.inner, operand.data, to};
  with_type(operand.dtype, [&](auto from) {
    with_type(to_dtype, [&](auto result) {
      launch_own(context.stream(), {.grid = dim3(blocks_of(operand.outer * operand.inner, 256)), .block = dim3(256)},
                 retype<decltype(from), decltype(result)>, arguments);
    });
  });
  return {to, to_dtype, operand.outer, operand.inner, operand.inner, operand.turned};
}

inline void check_gemm(Gemm const& g, GemmForms const& forms) {
  auto const refuse = [](ErrorKind kind, char const* why) { throw Error(kind, "gemm", why); };
  GemmEpilogue const& e = g.epilogue;
  bool const epilogue = e.bias != nullptr || forms.bias != nullptr || e.gelu || e.saved != nullptr ||
                        e.residual != nullptr || e.gelu_gradient != nullptr || forms.left_sums != nullptr;
  if (g.product == Product::int8)
    refuse(ErrorKind::unavailable, "there are no products of int8 on CUDA devices. Use bfloat16");
  if (e.row_scales != nullptr || e.column_scales != nullptr)
    refuse(ErrorKind::invalid_argument, "scales belong to products of int8");
  if (e.row_sums != nullptr)
    refuse(ErrorKind::unavailable, "there are no sums of rows on CUDA devices. Sum up the result");
  if (g.b_panels != nullptr)
    refuse(ErrorKind::invalid_argument, "packed operands are of processors. Give b");
  if (e.saved != nullptr && !e.gelu) refuse(ErrorKind::invalid_argument, "saved is what goes into GELU. Ask for gelu");
  if (e.bias != nullptr && forms.bias != nullptr) refuse(ErrorKind::invalid_argument, "there are two biases. Give one");
  if (forms.batch < 1) refuse(ErrorKind::invalid_argument, "a batch has at least one product");
  if (forms.batch > 1 && epilogue) refuse(ErrorKind::invalid_argument, "products in batches have no epilogue");
  auto const narrow = [](DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; };
  if (g.product == Product::float64) {
    if (g.a_dtype != DType::float64 || g.b_dtype != DType::float64 || g.c_dtype != DType::float64 || epilogue)
      refuse(ErrorKind::invalid_argument, "products of float64 take and give float64, without epilogue");
  } else if (!narrow(g.a_dtype) || !narrow(g.b_dtype) || !narrow(g.c_dtype)) {
    refuse(ErrorKind::invalid_argument, "a, b and c are float32 or bfloat16");
  }
  if (forms.batch > 1 && (g.a_dtype != g.b_dtype || (g.product == Product::bfloat16 && g.a_dtype != DType::bfloat16) ||
                          (g.a_dtype == DType::float32 && g.c_dtype != DType::float32)))
    refuse(ErrorKind::invalid_argument, "products in batches convert nothing: give operands of the product's type");
}

inline EpilogueArguments epilogue_of(Gemm const& g, GemmForms const& forms) {
  GemmEpilogue const& e = g.epilogue;
  return {g.c_row, e.residual_stride, e.bias, forms.bias, e.saved, e.gelu, e.gelu_gradient, e.residual};
}

inline void finish(Context& context, Gemm const& g, FinishArguments arguments) {
  arguments.m = g.m, arguments.n = g.n, arguments.c = g.c;
  with_type(g.c_dtype, [&](auto c) {
    launch_own(context.stream(), {.grid = dim3(blocks_of(g.m * g.n, 256)), .block = dim3(256)},
               finish_product<decltype(c)>, arguments);
  });
}

/// Whether the kernel for few rows takes this product, and if so, enqueues it.
inline bool multiply_in_few_rows(Context& context, Gemm const& g, GemmForms const& forms) {
  if (g.m > few_rows || g.product == Product::float64 || forms.batch > 1) return false;
  if (g.a_column != 1 || g.b_row != 1 || g.k % 8 != 0 || g.a_row % 8 != 0 || g.b_column % 8 != 0 ||
      blas_alignment(g.a) != 16 || blas_alignment(g.b) != 16)
    return false;
  FewRowsArguments const arguments{g.n,     g.k,    g.a_row, g.b_column, g.a, g.b, g.c, g.alpha, g.beta,
                                   g.product == Product::bfloat16, epilogue_of(g, forms)};
  tutti::cuda::LaunchShape const shape{.grid = dim3(static_cast<unsigned>((g.n + few_rows_warps - 1) / few_rows_warps)),
                                       .block = dim3(32 * few_rows_warps)};
  with_type(g.a_dtype, [&](auto a) {
    with_type(g.b_dtype, [&](auto b) {
      with_type(g.c_dtype, [&](auto c) {
        using A = decltype(a);
        using B = decltype(b);
        using C = decltype(c);
        tutti::cuda::Stream const& stream = context.stream();
        if (g.m == 1) launch_own(stream, shape, multiply_few_rows<A, B, C, 1>, arguments);
        else if (g.m == 2) launch_own(stream, shape, multiply_few_rows<A, B, C, 2>, arguments);
        else if (g.m == 3) launch_own(stream, shape, multiply_few_rows<A, B, C, 3>, arguments);
        else launch_own(stream, shape, multiply_few_rows<A, B, C, 4>, arguments);
      });
    });
  });
  return true;
}

inline cudaDataType_t blas_type(DType dtype) {
  return dtype == DType::float64 ? CUDA_R_64F : dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}
inline std::size_t padded_bytes(std::int64_t elements, DType dtype) {
  std::size_t const each = dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
  return (static_cast<std::size_t>(elements) * each + 255) / 256 * 256;
}

/// Sums over k of A. cuBLASLt's BGRADB is no help: it reads A anew as well, in a slower kernel (docs/performance.md).
inline void sum_left(Context& context, Gemm const& g, void* to) {
  with_type(g.a_dtype, [&](auto a) {
    using A = decltype(a);
    if (g.a_row == 1 && g.c_dtype == DType::float32)
      return column_sum(context,
                        ColumnSumOf<A>{g.k, g.m, g.a_column, static_cast<A const*>(g.a), static_cast<float*>(to)});
    with_type(g.c_dtype, [&](auto c) {
      launch_own(context.stream(), {.grid = dim3(static_cast<unsigned>((g.m + 31) / 32)), .block = dim3(1024)},
                 sum_columns<A, decltype(c)>, SumColumnsArguments{g.k, g.m, g.a_column, g.a_row, g.a, to});
    });
  });
}

/// The epilogue that cuBLASLt can apply, with what it needs.
struct FusedEpilogue {
  bool possible = true;
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  void const* bias = nullptr;      ///< of c's type
  float const* wide_bias = nullptr;  ///< to be rounded to c's type first
  void* saved = nullptr;
  void const* c = nullptr;         ///< what is added, beta times
  std::int64_t c_row = 0;
  double beta = 0;
};
inline FusedEpilogue fused_epilogue(Gemm const& g, GemmForms const& forms) {
  GemmEpilogue const& e = g.epilogue;
  FusedEpilogue fused;
  fused.c = g.c, fused.c_row = g.c_row, fused.beta = double{g.beta};
  fused.bias = forms.bias;
  if (e.bias != nullptr)
    (g.c_dtype == DType::float32 ? fused.bias : reinterpret_cast<void const*&>(fused.wide_bias)) = e.bias;
  bool const biased = fused.bias != nullptr || fused.wide_bias != nullptr;
  void const* const beside = e.saved != nullptr ? e.saved : e.gelu_gradient;
  if (beside != nullptr && (g.c_row % 8 != 0 || blas_alignment(beside) != 16)) fused.possible = false;
  if (e.gelu && e.gelu_gradient != nullptr) fused.possible = false;
  if (e.gelu_gradient != nullptr && biased) fused.possible = false;
  // The library's kernels write the result before they have read all of what lies there (seen: float, cuBLASLt 13.1).
  if (e.gelu_gradient != nullptr && e.gelu_gradient == g.c) fused.possible = false;
  if (e.residual != nullptr) {
    if (e.gelu || e.gelu_gradient != nullptr) fused.possible = false;
    else if (g.beta == 0) fused.c = e.residual, fused.c_row = e.residual_stride, fused.beta = 1;
    else if (e.residual == g.c && e.residual_stride == g.c_row) fused.beta += 1;
    else fused.possible = false;
  }
  if (e.gelu) {
    fused.saved = e.saved;
    if (e.saved != nullptr) fused.kind = biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    else fused.kind = biased ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  } else if (e.gelu_gradient != nullptr) {
    fused.kind = CUBLASLT_EPILOGUE_DGELU;
    fused.saved = const_cast<void*>(e.gelu_gradient);  // the library reads it, through the pointer that it also writes
  } else if (biased) {
    fused.kind = CUBLASLT_EPILOGUE_BIAS;
  }
  return fused;
}

}  // namespace detail

/// Contract: tutti/kernel/gemm.hpp, for products of float32, bfloat16 and float64; with `forms` more.
/// Blocking   no; only the first product of a kind may wait, see tutti/kernel/cuda/blas.hpp.
/// Numerics   a float bias of a result in bfloat16 is rounded to it first. Products of float operands round them to
///            TF32 where the options say so. The order of sums depends on the plan, never on scheduling.
/// Errors     invalid_argument; unavailable: int8, sums of rows, and what neither this nor cuBLASLt can do.
inline void gemm(Blas& blas, Gemm const& g, GemmForms const& forms = {}) {
  using namespace detail;
  check_gemm(g, forms);
  if (g.m <= 0 || g.n <= 0) return;
  Context& context = blas.context();
  if (g.k <= 0) {
    if (g.product == Product::float64 || forms.batch > 1 || forms.left_sums != nullptr)
      throw Error(ErrorKind::invalid_argument, "gemm", "products of zero terms are of float32 or bfloat16, and single");
    return finish(context, g, {.beta = g.beta, .epilogue = epilogue_of(g, forms)});
  }
  if (forms.left_sums != nullptr) sum_left(context, g, forms.left_sums);
  if (multiply_in_few_rows(context, g, forms)) return;

  bool const both_narrow = g.a_dtype == DType::bfloat16 && g.b_dtype == DType::bfloat16;
  DType const type = g.product == Product::float64                     ? DType::float64
                     : g.product == Product::bfloat16 || both_narrow ? DType::bfloat16
                                                                     : DType::float32;
  GemmOperand left = gemm_operand(g.a, g.a_dtype, g.m, g.k, g.a_row, g.a_column);
  GemmOperand right = gemm_operand(g.b, g.b_dtype, g.n, g.k, g.b_column, g.b_row);
  FusedEpilogue const fused = fused_epilogue(g, forms);

  // Scratch: converted operands, the rounded bias, the float product where it has to wait for a second kernel, then
  // what cuBLASLt needs. Operands are there before the library is asked: it may run the product to time it.
  std::size_t const left_bytes = left.dtype == type ? 0 : padded_bytes(left.outer * left.inner, type);
  std::size_t const right_bytes = right.dtype == type ? 0 : padded_bytes(right.outer * right.inner, type);
  std::size_t const bias_bytes = fused.wide_bias == nullptr ? 0 : padded_bytes(g.n, g.c_dtype);
  GemmOperand const left_source = left, right_source = right;
  struct Memory {
    void* bias;
    float* raw;
    void* library;
  };
  auto const prepare = [&](std::size_t raw_bytes, std::size_t library_bytes) {
    auto* at = static_cast<unsigned char*>(
        context.scratch(left_bytes + right_bytes + bias_bytes + raw_bytes + library_bytes));
    if (left_bytes != 0) left = retyped(context, left_source, type, at);
    at += left_bytes;
    if (right_bytes != 0) right = retyped(context, right_source, type, at);
    at += right_bytes;
    return Memory{at, reinterpret_cast<float*>(at + bias_bytes), at + bias_bytes + raw_bytes};
  };

  // The library counts columns first: its a is our b, and its rows are our columns.
  BlasProblem problem;
  problem.m = g.n, problem.n = g.m, problem.k = g.k;
  problem.a_stride = right_bytes != 0 ? right.inner : right.stride;
  problem.b_stride = left_bytes != 0 ? left.inner : left.stride;
  problem.a_transposed = !right.turned, problem.b_transposed = left.turned;
  problem.batch = forms.batch, problem.a_batch = forms.b_batch, problem.b_batch = forms.a_batch;
  problem.c_batch = problem.d_batch = forms.batch > 1 ? forms.c_batch : 0;
  problem.type = blas_type(type);
  problem.alignment[0] = right_bytes != 0 ? 16 : blas_alignment(right.data);
  problem.alignment[1] = left_bytes != 0 ? 16 : blas_alignment(left.data);

  if (fused.possible && !(type == DType::float32 && g.c_dtype == DType::bfloat16)) {
    BlasProblem whole = problem;
    whole.result = blas_type(g.c_dtype);
    whole.c_stride = fused.c_row, whole.d_stride = g.c_row;
    whole.reads_c = fused.beta != 0;
    if (!whole.reads_c) whole.c_stride = g.c_row;
    whole.epilogue = fused.kind;
    whole.saved_stride = fused.saved != nullptr ? g.c_row : 0;
    whole.alignment[2] = blas_alignment(whole.reads_c ? fused.c : g.c);
    whole.alignment[3] = blas_alignment(g.c);
    if (fused.bias != nullptr) whole.alignment[4] = blas_alignment(fused.bias);
    if (fused.saved != nullptr) whole.alignment[5] = blas_alignment(fused.saved);
    if (!blas.refuses(whole)) {
      Memory const memory = prepare(0, blas.scratch_bytes(whole));
      BlasOperands operands{right.data, left.data, fused.c, g.c, fused.bias, fused.saved};
      if (fused.wide_bias != nullptr)
        operands.bias =
            retyped(context, {fused.wide_bias, DType::float32, 1, g.n, g.n, false}, g.c_dtype, memory.bias).data;
      if (blas.can(whole, operands, memory.library))
        return blas.run(whole, operands, double{g.alpha}, fused.beta, memory.library);
    }
  }

  if (g.product == Product::float64 || forms.batch > 1)
    throw Error(ErrorKind::unavailable, "gemm", "cuBLASLt has no algorithm for this product");
  // The plain product in float, then everything else.
  bool const direct =
      g.c_dtype == DType::float32 && g.beta == 0 && g.epilogue.residual != g.c && g.epilogue.gelu_gradient != g.c;
  problem.c_stride = problem.d_stride = direct ? g.c_row : g.n;
  problem.result = CUDA_R_32F;
  problem.alignment[2] = problem.alignment[3] = direct ? blas_alignment(g.c) : 16;
  Memory const memory = prepare(direct ? 0 : padded_bytes(g.m * g.n, DType::float32), blas.scratch_bytes(problem));
  float* const raw = direct ? static_cast<float*>(g.c) : memory.raw;
  blas.run(problem, {right.data, left.data, raw, raw, nullptr, nullptr}, double{g.alpha}, 0, memory.library);
  finish(context, g, {.raw_row = g.n, .in_place = direct, .raw = direct ? nullptr : raw, .beta = g.beta,
                      .epilogue = epilogue_of(g, forms)});
}

}  // namespace tutti::kernel::cuda
