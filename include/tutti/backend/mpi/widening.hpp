// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reductions of 16-bit floats in two steps, with float in between: what is combined first is not rounded before the
/// rest is combined with it.

#include <tutti/comm/fold.hpp>
#include <tutti/core/dtype.hpp>

#include <cstdint>

namespace tutti::mpi {

/// How elements of a 16-bit type become float while they are combined, and again what they were.
struct Widening {
  /// With floats in the outputs. avg adds and does not divide. Null where there is no such way.
  comm::Reduction::Fold* fold = nullptr;
  /// to[i] = from[i] / divisor, rounded.
  void (*narrow)(float const* from, void* to, std::int64_t count, int divisor) = nullptr;
  Operator between = Operator::none;  ///< how floats are combined

  explicit operator bool() const noexcept { return fold != nullptr; }
};

namespace detail {

template <class T, class Op>
void fold_wide(void const*, void const* const* inputs, int ranks, void* const* outputs, int copies,
               std::int64_t count) {
  comm::detail::fold_elements<T, Op, float>(Op{}, inputs, ranks, outputs, copies, count);
}
template <class T>
void narrow(float const* from, void* to, std::int64_t count, int divisor) {
  T* const elements = static_cast<T*>(to);
  for (std::int64_t i = 0; i < count; ++i) elements[i] = static_cast<T>(comm::detail::divided(from[i], divisor));
}
template <class T>
Widening widening(Operator op) noexcept {
  switch (op) {
    case Operator::sum: case Operator::avg: return {&fold_wide<T, Sum>, &narrow<T>, Operator::sum};
    case Operator::prod: return {&fold_wide<T, Prod>, &narrow<T>, op};
    case Operator::min: return {&fold_wide<T, Min>, &narrow<T>, op};
    case Operator::max: return {&fold_wide<T, Max>, &narrow<T>, op};
    default: return {};
  }
}

}  // namespace detail

inline Widening widening_of(DType dtype, Operator op) noexcept {
  if (dtype == DType::bfloat16) return detail::widening<bfloat16>(op);
  if (dtype == DType::float16) return detail::widening<float16>(op);
  return {};
}

}  // namespace tutti::mpi
