// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of the matrix product and of what happens to its result while it is still in registers.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/isa.hpp>

#include <cstdint>

namespace tutti::kernel {

/// What is done to an output tile before it is stored, in this order: + bias, save, GELU, * GELU', + residual.
struct GemmEpilogue {
  float const* bias = nullptr;         ///< (N), added to every row
  float* saved = nullptr;              ///< (M, N), leading dimension of c: the value before GELU; only with gelu
  bool gelu = false;                   ///< tanh form of GELU
  float const* residual = nullptr;     ///< (M, N), leading dimension `residual_stride`; may be c itself
  std::int64_t residual_stride = 0;
  float const* gelu_gradient = nullptr;  ///< (M, N), leading dimension of c, may be c itself: multiply by GELU'(this)
};

/// What the terms of a product are rounded to before they are multiplied.
enum class Product : std::uint8_t {
  float32,
  bfloat16,  ///< nearest, ties to even. Processors with an instruction for it take subnormals as zero.
};

constexpr Product product_in(DType dtype) noexcept {
  return dtype == DType::bfloat16 ? Product::bfloat16 : Product::float32;
}

/// A right operand in the order in which the micro-kernel of an instruction set reads it: see cpu::PackedRight.
struct GemmPanels {
  float const* words = nullptr;
  std::int64_t k = 0, n = 0;
  Product product = Product::float32;
  exec::Isa isa = exec::Isa::scalar;
};

/// Computes   c (M, N) = epilogue(alpha * A B + beta * c)
/// Shapes     A (M, K) element (i, k) at a[i * a_row + k * a_column]; B (K, N) element (k, j) at b[k * b_row + j *
/// b_column];
///            c element (i, j) at c[i * c_row + j]. One stride of A and of B must be 1.
/// Types      A and B are float32 or bfloat16, each of its own; c and what the epilogue reads and writes are float32.
/// Requires   beta 0 does not read c. c overlaps neither A nor B. Zero M or N: nothing; zero K: beta * c.
/// Numerics   fp32 accumulation, the order over K depends on shape, product and ISA alone, never on the number of
///            threads.
/// Cost       2 M N K flop, at twice the rate for bfloat16 products where the processor has an instruction for them.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  void const* a = nullptr;
  std::int64_t a_row = 0, a_column = 1;
  void const* b = nullptr;
  std::int64_t b_row = 0, b_column = 1;
  float* c = nullptr;
  std::int64_t c_row = 0;
  float alpha = 1.0f;
  float beta = 0.0f;
  GemmEpilogue epilogue{};
  DType a_dtype = DType::float32, b_dtype = DType::float32;
  Product product = Product::float32;
  GemmPanels const* b_panels = nullptr;  ///< in the place of b
};

/// Computes   out (N) = beta * out + sum over rows of x (M, N): the gradient of a bias.
/// Numerics   fp32, fixed order independent of the number of threads.
struct ColumnSum {
  std::int64_t m = 0, n = 0;
  float const* x = nullptr;
  float* out = nullptr;
  float beta = 0.0f;
};

}  // namespace tutti::kernel
