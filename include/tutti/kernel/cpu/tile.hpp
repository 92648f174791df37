// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the interpreter of elementwise chains does to one tile: instructions, stamped per instruction set; loads,
/// stores and the double form of the instructions, which are not.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/isa/levels.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tutti::kernel::cpu {

/// An instruction's operand: a tile, or one vector's worth of a value that repeats.
template <class Real>
struct TileOperand {
  Real const* data = nullptr;
  bool repeats = false;
};

template <class Real>
using RunTile = void (*)(double value, Real* out, TileOperand<Real> const* in, std::int64_t n);

/// What one instruction set brings to the interpreter beside the functions themselves.
struct TileFunctions {
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

template <class Functions>
RunTile<float> const* select_tile_runs(exec::Isa isa) { TUTTI_DISPATCH(isa, tile_runs<Functions>.data()); }

/// Precision before speed: the oracle's path, one element at a time.
template <class Body>
void run_precisely(double value, double* out, TileOperand<double> const* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    double x[3] = {};
    for (int k = 0; k < Body::arity; ++k) x[k] = in[k].data[in[k].repeats ? 0 : i];
    out[i] = compute_precisely<Body>(value, x[0], x[1], x[2]);
  }
}
template <class Functions>
inline constexpr auto precise_runs = []<int... Number>(std::integer_sequence<int, Number...>) {
  return std::array<RunTile<double>, sizeof...(Number)>{[] {
    using Body = typename Functions::template body<Number>;
    if constexpr (kernel::detail::arity_of_body<Functions, Number>() == 0) return RunTile<double>{};
    else return RunTile<double>{run_precisely<Body>};
  }()...};
}(std::make_integer_sequence<int, Functions::count>{});

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
