// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Of what an object is made that travels as a message, see comm/objects.hpp: what the hook of its type says, elements,
/// containers, optionals, tuples, described structs; and the mark by which types are compared.

#include <tutti/comm/operand.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/fnv1a.hpp>
#include <tutti/reflect/members.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tutti::comm::detail {

template <class T, class Archive>
concept MemberHook = requires(T& object, Archive& archive) { object.serialize(archive); };
template <class T, class Archive>
concept FreeHook = requires(T& object, Archive& archive) { serialize(archive, object); };

template <class T>
concept Sequence = requires(T& container, typename T::value_type element) {
  container.begin();
  container.end();
  container.size();
  container.clear();
  requires requires { container.push_back(std::move(element)); } || requires { container.insert(std::move(element)); };
};
/// Whose elements are one block of memory that travels as it is.
template <class T>
concept Block = Sequence<T> && Sendable<typename T::value_type> && !is_padded<typename T::value_type> &&
                requires(T& container) {
                  container.data();
                  container.resize(std::size_t{});
                };
template <class T>
concept Optional = requires(T& object) {
  object.has_value();
  object.emplace();
  object.reset();
  *object;
};
template <class T>
concept Tuple = requires { std::tuple_size<T>::value; };

/// The elements of a map are pairs whose first part is const.
template <class T>
struct Mutable {
  using Type = T;
};
template <class K, class V>
struct Mutable<std::pair<K const, V>> {
  using Type = std::pair<K, V>;
};

/// Of what an object is made, in either direction.
template <class Archive, class T>
void pass(Archive& archive, T& object) {
  using X = std::remove_const_t<T>;
  if constexpr (MemberHook<X, Archive>) const_cast<X&>(object).serialize(archive);
  else if constexpr (FreeHook<X, Archive>) serialize(archive, const_cast<X&>(object));
  else if constexpr (Sendable<X>) archive.values(&object, 1);
  else if constexpr (Block<X>) archive.block(object);
  else if constexpr (Sequence<X>) archive.sequence(object);
  else if constexpr (is_tensor<X>) archive.tensor(object);
  else if constexpr (Optional<X>) archive.optional(object);
  else if constexpr (Tuple<X>) std::apply([&archive](auto&... parts) { (pass(archive, parts), ...); }, object);
  else if constexpr (reflect::Reflected<X>)
    reflect::for_each_member(object, [&archive](std::string_view, auto& member) { pass(archive, member); });
  else
    static_assert(Sendable<X>, "tutti: this object has a part of which nobody says what it is made of. Give the part's "
                               "type a function serialize(archive, object), or describe it with "
                               "BOOST_HANA_DEFINE_STRUCT");
}

template <class T>
constexpr std::uint64_t type_mark() {
  return Fnv1a().add(name_of<T>()).value();
}

}  // namespace tutti::comm::detail
