// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Structs that nobody describes, and that travel as the bytes that they are.

#include <tutti/comm/located.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/reflect/members.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tutti {

/// Say `template <> inline constexpr bool tutti::travels_as_bytes<X> = true;` of a trivially copyable class that is no
/// aggregate, as one with a constructor is not, and whose bytes mean the same on every rank.
template <class T>
inline constexpr bool travels_as_bytes = false;

namespace comm::detail {

template <class T>
inline constexpr std::int64_t array_extent = -1;
template <class T, std::size_t N>
inline constexpr std::int64_t array_extent<std::array<T, N>> = static_cast<std::int64_t>(N);

// A member of an aggregate, to find out how many it has, and whether one of them is a pointer.
struct AnyMember {
  template <class T>
  constexpr operator T() const noexcept;
};
struct AnyButPointer {
  template <class T>
    requires(!std::is_pointer_v<T> && !std::is_member_pointer_v<T>)
  constexpr operator T() const noexcept;
};
template <class T, class Member, std::size_t... I>
constexpr bool is_made_of(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Member{})...}; };
}
inline constexpr std::size_t most_members = 64;
template <class T, std::size_t Members = most_members>
constexpr bool has_pointer() {
  if constexpr (Members == 0) return false;
  else if constexpr (is_made_of<T, AnyMember>(std::make_index_sequence<Members>()))
    return !is_made_of<T, AnyButPointer>(std::make_index_sequence<Members>());
  else return has_pointer<T, Members - 1>();
}

}  // namespace comm::detail

/// A struct of at most 64 members without a description: an aggregate that is trivially copyable. It travels as the
/// bytes that it is. Pointers among its own members are seen and refused, those in members of members are not: they
/// mean nothing on another rank.
template <class T>
concept PlainStruct =
    std::is_class_v<T> && std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T> && !Element<T> &&
    !Complex<T> && !is_located<T> && !reflect::Reflected<T> && comm::detail::array_extent<T> < 0 &&
    (travels_as_bytes<T> || (std::is_aggregate_v<T> && !std::is_empty_v<T> && !comm::detail::has_pointer<T>()));

}  // namespace tutti
