// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Members of a struct by name. Structs say `BOOST_HANA_DEFINE_STRUCT(Name, (Type, member), ...)` once; everything that
/// iterates over them goes through here, so that Boost.Hana is named in one place.

#include <tutti/core/list.hpp>
#include <boost/hana/accessors.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/define_struct.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/second.hpp>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::reflect {

template <class T>
concept Reflected = boost::hana::Struct<std::remove_cv_t<T>>::value;

/// Calls f(name, member) for every member in the order of the definition; `name` is a std::string_view that lives for
/// ever.
template <class T, class F>
  requires Reflected<T>
constexpr void for_each_member(T& object, F&& f) {
  boost::hana::unpack(boost::hana::accessors<std::remove_cv_t<T>>(), [&object, &f](auto const&... member) {
    (f(std::string_view(boost::hana::first(member).c_str()), boost::hana::second(member)(object)), ...);
  });
}

/// Calls f(std::type_identity<Member>()) for every member in the order of the definition, without an object.
template <Reflected T, class F>
constexpr void for_each_member_type(F&& f) {
  boost::hana::unpack(boost::hana::accessors<std::remove_cv_t<T>>(), [&f](auto const&... member) {
    (f(std::type_identity<std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<T&>()))>>()), ...);
  });
}

template <Reflected T>
inline constexpr std::size_t member_count = decltype(boost::hana::length(boost::hana::accessors<T>()))::value;

/// A dotted name. Not std::string, which libstdc++ 12 cannot use in constant expressions of clang.
class Path {
 public:
  constexpr Path() = default;
  constexpr explicit Path(std::string_view text) { append(text); }

  constexpr Path& append(std::string_view text) {
    for (char c : text) text_.push_back(c);
    return *this;
  }
  constexpr Path& append(int number) {
    if (number >= 10) append(number / 10);
    text_.push_back(static_cast<char>('0' + number % 10));
    return *this;
  }
  constexpr operator std::string_view() const { return {text_.data(), text_.size()}; }

 private:
  List<char> text_;
};

/// "ln_1" and "gamma" make "ln_1.gamma".
constexpr Path joined(std::string_view prefix, std::string_view name) {
  Path path(prefix);
  if (!prefix.empty() && !name.empty()) path.append(".");
  path.append(name);
  return path;
}

/// Calls f(path, leaf) for every member that is not itself such a struct, at any depth. `path` is a std::string_view
/// that lives for the call.
template <class T, class F>
constexpr void for_each_leaf(T& object, F&& f, std::string_view prefix = {}) {
  if constexpr (Reflected<T>) {
    for_each_member(object, [&](std::string_view name, auto& member) {
      Path const path = joined(prefix, name);
      for_each_leaf(member, f, path);
    });
  } else {
    f(prefix, object);
  }
}

}  // namespace tutti::reflect
