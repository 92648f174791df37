// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a communicator moves, and how it travels: elements, complex numbers and enumerations as they are; pairs,
/// std::arrays and structs described by reflection member by member, so that their padding, whose bytes mean nothing,
/// is neither sent nor written; plain structs without a description as the bytes that they are, padding included.

#include <tutti/comm/located.hpp>
#include <tutti/comm/plain_struct.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/fnv1a.hpp>
#include <tutti/reflect/members.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {

/// A struct that BOOST_HANA_DEFINE_STRUCT describes. Members are elements, complex numbers, enumerations, such structs,
/// or std::arrays of these; members that the description leaves out stay behind.
template <class T>
concept Record = reflect::Reflected<T> && std::is_trivially_copyable_v<T> && reflect::member_count<T> != 0;

namespace comm::detail {

template <class T>
inline constexpr bool is_pair = false;
template <class T, class U>
inline constexpr bool is_pair<std::pair<T, U>> = true;

/// What is storable beside elements, complex numbers and values with a location.
template <class T>
constexpr bool is_made_of_elements() {
  if constexpr (Element<T> || Complex<T> || is_located<T>) return false;  // said elsewhere
  else if constexpr (Record<T>) return true;
  else if constexpr (array_extent<T> >= 0) return array_extent<T> > 0 && is_storable<typename T::value_type>;
  else if constexpr (is_pair<T>) return is_storable<typename T::first_type> && is_storable<typename T::second_type>;
  else return std::is_enum_v<T> || PlainStruct<T>;
}

template <class T>
concept MadeOfElements = is_made_of_elements<T>();

}  // namespace comm::detail

template <class T>
  requires comm::detail::MadeOfElements<T>  // one specialisation: nvcc takes no second one that differs by this alone
inline constexpr bool is_compound<T> = true;

namespace comm {

/// Whether T can travel: a struct with a pointer among its members cannot.
template <class T>
constexpr bool is_sendable() {
  if constexpr (detail::array_extent<T> >= 0) {
    return is_sendable<typename T::value_type>();
  } else if constexpr (detail::is_pair<T>) {
    return is_sendable<typename T::first_type>() && is_sendable<typename T::second_type>();
  } else if constexpr (Record<T>) {
    bool all = true;
    reflect::for_each_member_type<T>([&all]<class Member>(std::type_identity<Member>) {
      all = all && is_sendable<Member>();
    });
    return all;
  } else {
    return Element<T> || Complex<T> || is_located<T> || std::is_enum_v<T> || PlainStruct<T>;
  }
}

/// Bytes that a T takes in a message.
template <class T>
constexpr std::int64_t wire_bytes() {
  if constexpr (Element<T> || Complex<T> || std::is_enum_v<T>) {
    return sizeof(T);
  } else if constexpr (detail::array_extent<T> >= 0) {
    return detail::array_extent<T> * wire_bytes<typename T::value_type>();
  } else if constexpr (is_located<T>) {
    return wire_bytes<typename T::Value>() + wire_bytes<std::int64_t>();
  } else if constexpr (detail::is_pair<T>) {
    return wire_bytes<typename T::first_type>() + wire_bytes<typename T::second_type>();
  } else if constexpr (Record<T> && is_sendable<T>()) {
    std::int64_t bytes = 0;
    reflect::for_each_member_type<T>([&bytes]<class Member>(std::type_identity<Member>) {
      bytes += wire_bytes<Member>();
    });
    return bytes;
  } else {
    return sizeof(T);  // a plain struct; another one is refused where it would be sent
  }
}

template <class T>
inline constexpr bool is_padded = wire_bytes<T>() != std::int64_t{sizeof(T)};

/// Writes x's wire_bytes<T>() to `to` and returns what follows.
template <class T>
std::byte* pack(T const& x, std::byte* to) {
  if constexpr (!is_padded<T>) {
    std::memcpy(to, &x, sizeof(T));
    return to + sizeof(T);
  } else if constexpr (detail::array_extent<T> >= 0) {
    for (auto const& element : x) to = pack(element, to);
    return to;
  } else if constexpr (is_located<T>) {
    return pack(x.index, pack(x.value, to));
  } else if constexpr (detail::is_pair<T>) {
    return pack(x.second, pack(x.first, to));
  } else {
    reflect::for_each_member(x, [&to](std::string_view, auto const& member) { to = pack(member, to); });
    return to;
  }
}
/// The reverse. Padding of x is not written.
template <class T>
std::byte const* unpack(std::byte const* from, T& x) {
  if constexpr (!is_padded<T>) {
    std::memcpy(static_cast<void*>(&x), from, sizeof(T));  // a pair is not trivially copyable for its assignment alone
    return from + sizeof(T);
  } else if constexpr (detail::array_extent<T> >= 0) {
    for (auto& element : x) from = unpack(from, element);
    return from;
  } else if constexpr (is_located<T>) {
    return unpack(unpack(from, x.value), x.index);
  } else if constexpr (detail::is_pair<T>) {
    return unpack(unpack(from, x.first), x.second);
  } else {
    reflect::for_each_member(x, [&from](std::string_view, auto& member) { from = unpack(from, member); });
    return from;
  }
}

namespace detail {

template <class T>
struct WireType {
  using Type = std::byte;
};
template <Element T>
struct WireType<T> {
  using Type = T;
};
template <Complex T>
struct WireType<T> {
  using Type = typename T::value_type;
};

}  // namespace detail

namespace detail {

/// For a type whose members nobody lists.
template <class T>
constexpr std::string_view name_of() noexcept {
  return __PRETTY_FUNCTION__;
}

/// What a T is made of.
template <class T>
constexpr void add_layout(Fnv1a& hash) {
  if constexpr (Element<T>) {
    hash.add(static_cast<std::uint64_t>(dtype_of<T>));
  } else if constexpr (Complex<T>) {
    hash.add(0x100).add(static_cast<std::uint64_t>(dtype_of<typename T::value_type>));
  } else if constexpr (std::is_enum_v<T>) {
    add_layout<std::underlying_type_t<T>>(hash);
  } else if constexpr (array_extent<T> >= 0) {
    hash.add(0x200).add(static_cast<std::uint64_t>(array_extent<T>));
    add_layout<typename T::value_type>(hash);
  } else if constexpr (is_located<T>) {
    hash.add(0x300);
    add_layout<typename T::Value>(hash);
  } else if constexpr (is_pair<T>) {  // as a struct of two members
    hash.add(0x400);
    add_layout<typename T::first_type>(hash);
    add_layout<typename T::second_type>(hash);
    hash.add(0x500);
  } else if constexpr (Record<T> && is_sendable<T>()) {
    hash.add(0x400);
    reflect::for_each_member_type<T>([&hash]<class Member>(std::type_identity<Member>) { add_layout<Member>(hash); });
    hash.add(0x500);
  } else {
    hash.add(0x600).add(sizeof(T)).add(name_of<T>());
  }
}

}  // namespace detail

/// How many numbers layout_of gives.
inline constexpr std::uint16_t layouts = 1 << 14;
inline constexpr std::uint16_t complex_layout = 1;
/// A number for what `wire_dtype<T>` does not tell: 0 of elements, 1 of complex numbers, else by the types of the
/// members in their order, whatever their names, or by the name of a struct whose members nobody lists. Two structs in
/// sixteen thousand have the same.
template <class T>
constexpr std::uint16_t layout_of() {
  if constexpr (Element<T>) return 0;
  else if constexpr (Complex<T>) return complex_layout;
  else {
    Fnv1a hash;
    detail::add_layout<T>(hash);
    return static_cast<std::uint16_t>(hash.value() % (layouts - 2) + 2);
  }
}

/// A T travels as wire_parts<T> elements of type WireElement<T>: complex numbers as two numbers, structs as bytes.
template <class T>
using WireElement = typename detail::WireType<T>::Type;
template <class T>
inline constexpr DType wire_dtype = dtype_of<WireElement<T>>;
template <class T>
inline constexpr std::int64_t wire_parts = wire_bytes<T>() / std::int64_t{sizeof(WireElement<T>)};

}  // namespace comm
}  // namespace tutti
