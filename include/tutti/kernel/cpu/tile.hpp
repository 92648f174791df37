// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the interpreter of elementwise chains does to one tile: instructions, stamped per instruction set; loads,
/// stores and the double form of the instructions, which are not.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/isa/levels.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_rules.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace tutti::kernel::cpu {

/// An instruction's operand: a tile, or one vector's worth of a value that repeats.
template <class Real>
struct TileOperand {
  Real const* data = nullptr;
  bool repeats = false;
};

template <class Real>
using RunTile = void (*)(ElementwiseOp op, double value, Real* out, TileOperand<Real> const* in, std::int64_t n);

/// What one instruction set brings to the interpreter.
struct TileFunctions {
  RunTile<float> run;
  void (*load_bfloat16)(bfloat16 const*, float*, std::int64_t);
  void (*load_float16)(float16 const*, float*, std::int64_t);
  void (*store_bfloat16)(float const*, bfloat16*, std::int64_t);
  void (*store_float16)(float const*, float16*, std::int64_t);
};

}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_BODY <tutti/kernel/cpu/tile.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline TileFunctions select_tile_functions(exec::Isa isa) { TUTTI_DISPATCH(isa, tile_functions()); }

inline double gelu_double(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
inline double gelu_gradient_double(double x) {
  double const t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}
inline double silu_double(double x) { return x < -1000 ? -0.0 : x / (1 + std::exp(-x)); }
inline double silu_gradient_double(double x) {
  if (std::abs(x) > 1000) return x > 0 ? 1 : 0;
  double const s = 1 / (1 + std::exp(-x));
  return s * (1 + x / (1 + std::exp(x)));
}
inline double compute_double(ElementwiseOp op, double value, double a, double b, double c) {
  switch (op) {
    case ElementwiseOp::constant: return value;
    case ElementwiseOp::add: return a + b;
    case ElementwiseOp::subtract: return a - b;
    case ElementwiseOp::multiply: return a * b;
    case ElementwiseOp::divide: return a / b;
    case ElementwiseOp::maximum: return a > b || a != a ? a : b;
    case ElementwiseOp::negate: return -a;
    case ElementwiseOp::exponential: return std::exp(a);
    case ElementwiseOp::logarithm: return std::log(a);
    case ElementwiseOp::tanh: return std::tanh(a);
    case ElementwiseOp::logistic: return 1 / (1 + std::exp(-a));
    case ElementwiseOp::sine: return std::sin(a);
    case ElementwiseOp::cosine: return std::cos(a);
    case ElementwiseOp::square_root: return std::sqrt(a);
    case ElementwiseOp::reciprocal_square_root: return 1 / std::sqrt(a);
    case ElementwiseOp::power: return std::pow(a, value);
    case ElementwiseOp::less: return a < b ? 1 : 0;
    case ElementwiseOp::less_equal: return a <= b ? 1 : 0;
    case ElementwiseOp::equal: return a == b ? 1 : 0;
    case ElementwiseOp::not_equal: return a != b ? 1 : 0;
    case ElementwiseOp::select: return a != 0 ? b : c;
    case ElementwiseOp::gelu: return gelu_double(a);
    case ElementwiseOp::gelu_gradient: return a * gelu_gradient_double(b);
    case ElementwiseOp::silu: return silu_double(a);
    case ElementwiseOp::silu_gradient: return a * silu_gradient_double(b);
    case ElementwiseOp::identity: return a;
  }
  return 0;
}

/// Precision before speed: the oracle's path, one element at a time.
inline void run_tile_double(ElementwiseOp op, double value, double* out, TileOperand<double> const* in,
                            std::int64_t n) {
  int const operands = arity(op);
  for (std::int64_t i = 0; i < n; ++i) {
    double x[3] = {};
    for (int k = 0; k < operands; ++k) x[k] = in[k].data[in[k].repeats ? 0 : i];
    out[i] = compute_double(op, value, x[0], x[1], x[2]);
  }
}

template <class Real, class T>
void load_elements(T const* from, std::int64_t stride, Real* to, std::int64_t n) {
  if constexpr (std::same_as<Real, T>) {
    if (stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) to[i] = float(from[i * stride]);
    else to[i] = static_cast<Real>(from[i * stride]);
  }
}

template <class Real>
void load_any(TileFunctions const& functions, DType dtype, void const* from, std::int64_t offset, std::int64_t stride,
              Real* to, std::int64_t n) {
  if constexpr (std::same_as<Real, float>) {
    if (dtype == DType::bfloat16 && stride == 1)
      return functions.load_bfloat16(static_cast<bfloat16 const*>(from) + offset, to, n);
    if (dtype == DType::float16 && stride == 1)
      return functions.load_float16(static_cast<float16 const*>(from) + offset, to, n);
  }
  with_dtype(dtype, [&]<class T>(T) { load_elements(static_cast<T const*>(from) + offset, stride, to, n); });
}

template <class Real>
void store_any(TileFunctions const& functions, DType dtype, TileOperand<Real> from, void* to, std::int64_t offset,
               std::int64_t n) {
  if constexpr (std::same_as<Real, float>) {
    if (dtype == DType::bfloat16 && !from.repeats)
      return functions.store_bfloat16(from.data, static_cast<bfloat16*>(to) + offset, n);
    if (dtype == DType::float16 && !from.repeats)
      return functions.store_float16(from.data, static_cast<float16*>(to) + offset, n);
  }
  std::int64_t const step = from.repeats ? 0 : 1;
  with_dtype(dtype, [&]<class T>(T) {
    T* const out = static_cast<T*>(to) + offset;
    if constexpr (std::same_as<T, Real>)
      if (!from.repeats)
        return static_cast<void>(std::memmove(out, from.data, static_cast<std::size_t>(n) * sizeof(T)));
    for (std::int64_t i = 0; i < n; ++i) out[i] = element_of<T>(from.data[i * step]);
  });
}

}  // namespace detail

}  // namespace tutti::kernel::cpu
