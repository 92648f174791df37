// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of the matrix product and of what happens to its result while it is still in registers.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/isa.hpp>

#include <cstdint>

namespace tutti::kernel {

/// What is done to an output tile before it is stored, in this order: scales, + bias, save, GELU, * GELU', + residual.
/// What is (M, N) has the type of c; all else is float32.
struct GemmEpilogue {
  float const* bias = nullptr;         ///< (N), added to every row
  void* saved = nullptr;               ///< (M, N), leading dimension of c: the value before GELU; only with gelu
  bool gelu = false;                   ///< tanh form of GELU
  void const* residual = nullptr;      ///< (M, N), leading dimension `residual_stride`; may be c itself
  std::int64_t residual_stride = 0;
  void const* gelu_gradient = nullptr;  ///< (M, N), leading dimension of c, may be c itself: multiply by GELU'(this)
  float const* row_scales = nullptr;     ///< (M), of int8 products: the sums of row i count row_scales[i] times
  float const* column_scales = nullptr;  ///< (N), of int8 products, likewise
  float* row_sums = nullptr;  ///< (M): sums of the rows of the result, before it is rounded to the type of c
};

/// What the terms of a product are rounded to before they are multiplied.
enum class Product : std::uint8_t {
  float32,
  bfloat16,  ///< nearest, ties to even. Processors with an instruction for it take subnormals as zero.
  int8,      ///< bytes, whose sums are exact
  float64,
};

constexpr Product product_in(DType dtype) noexcept {
  return dtype == DType::bfloat16 ? Product::bfloat16 : Product::float32;
}

/// A right operand in the order in which the micro-kernel of an instruction set reads it: see cpu::PackedRight.
struct GemmPanels {
  void const* words = nullptr;
  std::int32_t const* shifts = nullptr;  ///< (N) of int8: what a left operand that is not signed there adds, negated
  std::int64_t k = 0, n = 0;
  Product product = Product::float32;
  exec::Isa isa = exec::Isa::scalar;
};

/// Computes   c (M, N) = epilogue(alpha * A B + beta * c)
/// Shapes     A (M, K) element (i, k) at a[i * a_row + k * a_column]; B (K, N) element (k, j) at
///            b[k * b_row + j * b_column]; c element (i, j) at c[i * c_row + j]. One stride of A and of B must be 1.
/// Types      float32 and bfloat16 products: A and B are float32 or bfloat16, each of its own; c is either.
///            int8: A is int8 or uint8, B int8; c is int32, float32 or bfloat16. float64: A, B and c are float64.
/// Range      int8: all values. Sums beyond int32 wrap around; none is up to K = 65793 for uint8, 131071 for int8.
/// Requires   beta 0 does not read c. c overlaps neither A nor B. Zero M or N: nothing; zero K: beta * c.
///            float64: no epilogue. int8 with c in int32: none either, alpha 1, beta 0 or 1.
/// Numerics   fp32 accumulation, the order over K depends on shape, strides, product, epilogue, packing (b_panels) and
///            ISA, never on the number of threads or on values. c in bfloat16 is rounded once, to nearest even. float64
///            accumulates in fp64. int8 in int32, exactly on every ISA; a sum is rounded to float32, then times (alpha
///            * row scale) * column scale. Row sums are fp32, from left to right; threads share products that have them
///            by rows alone.
/// Cost       2 M N K flop, at twice the rate for bfloat16 and four times for int8 where the processor has instructions
///            for them, at half for float64.
/// Errors     invalid_argument: types, scales or epilogue that the product does not take (`saved` without gelu);
///            strides of which none is 1; panels of something else.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  void const* a = nullptr;
  std::int64_t a_row = 0, a_column = 1;
  void const* b = nullptr;
  std::int64_t b_row = 0, b_column = 1;
  void* c = nullptr;
  std::int64_t c_row = 0;
  float alpha = 1.0f;
  float beta = 0.0f;
  GemmEpilogue epilogue{};
  DType a_dtype = DType::float32, b_dtype = DType::float32;
  Product product = Product::float32;
  GemmPanels const* b_panels = nullptr;  ///< in the place of b
  DType c_dtype = DType::float32;
};

/// The product of a linear layer: y (rows, out) = x (rows, in) w^T, w (out, in), all contiguous, in float or bfloat16.
template <class T>
constexpr Gemm linear_product(std::int64_t rows, std::int64_t in, std::int64_t out, T const* x, T const* w, T* y) {
  Gemm product;
  product.m = rows, product.n = out, product.k = in;
  product.a = x, product.a_row = in;
  product.b = w, product.b_row = 1, product.b_column = in;
  product.c = y, product.c_row = out;
  product.epilogue.residual_stride = out;
  product.a_dtype = product.b_dtype = product.c_dtype = dtype_of<T>;
  product.product = product_in(dtype_of<T>);
  return product;
}

/// Computes   out (N) = beta * out + sum over rows of x (M, N): the gradient of a bias.
/// Numerics   fp32, fixed order independent of the number of threads.
struct ColumnSum {
  std::int64_t m = 0, n = 0;
  float const* x = nullptr;
  float* out = nullptr;
  float beta = 0.0f;
};

}  // namespace tutti::kernel
