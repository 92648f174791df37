// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A value and where it was found: what `min_location` and `max_location` reduce.

#include <tutti/core/dtype.hpp>

#include <cstdint>

namespace tutti {

template <Element T>
struct Located {
  using Value = T;
  T value{};
  std::int64_t index = 0;
  friend bool operator==(Located const&, Located const&) = default;
};
template <class T>
Located(T, std::int64_t) -> Located<T>;
template <class T>
Located(T, int) -> Located<T>;

template <class T>
inline constexpr bool is_located = false;
template <Element T>
inline constexpr bool is_located<Located<T>> = true;

template <Element T>
inline constexpr bool is_compound<Located<T>> = true;

}  // namespace tutti
