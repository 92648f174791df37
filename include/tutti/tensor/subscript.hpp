// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The indices of an element: how they are checked when compiled, and the caller's line.

#include <tutti/tensor/shape.hpp>

#include <cstdint>
#include <source_location>
#include <type_traits>

namespace tutti::detail {

// Named values, asserted where users' calls arrive, keep a mistake's diagnostics short.
template <class D>
inline constexpr bool at_hand = D::host_accessible;
template <class... More>
inline constexpr bool are_indices = (std::is_integral_v<More> && ...) && sizeof...(More) < Shape::max_rank;

/// The first index of an element, with the caller's line: behind a pack of indices no default argument has room.
struct FirstIndex {
  template <class I>
  constexpr FirstIndex(I index, std::source_location caller = std::source_location::current()) noexcept
      : where(caller) {
    static_assert(std::is_integral_v<I>, "tutti: an index of an element that is no integer");
    if constexpr (std::is_integral_v<I>) value = static_cast<std::int64_t>(index);
  }
  std::int64_t value = 0;
  std::source_location where;
};

/// What every subscript wants of its types; `More` are the indices behind the first.
template <class D, class... More>
consteval bool subscript_fits() {
  static_assert(at_hand<D>, "tutti: elements of this device cannot be read by the host; copy the tensor with to_host");
  static_assert(are_indices<More...>, "tutti: more indices than a tensor can have axes, or one that is no integer");
  return at_hand<D> && are_indices<More...>;
}

}  // namespace tutti::detail
