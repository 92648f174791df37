// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Metadata of GGUF files: keys with values of thirteen types, in the order of the file.

#include <tutti/core/error.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::io {

/// A list of values of one type. The places of the types are their identifiers in the format, as they are in GgufValue;
/// there is none of lists, place 9.
using GgufArray = std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                               std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>, std::monostate,
                               std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                               float, bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

namespace detail {

inline constexpr std::string_view gguf_type_names[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                       "int32",  "float32", "bool",   "string", "array",
                                                       "uint64", "int64",   "float64"};
inline constexpr std::uint32_t gguf_types = 13, gguf_string = 8, gguf_array = 9;

}  // namespace detail

/// For messages: "uint32", "array of string".
inline std::string type_name(GgufValue const& value) {
  if (auto const* array = std::get_if<GgufArray>(&value))
    return "array of " + std::string(detail::gguf_type_names[array->index()]);
  return std::string(detail::gguf_type_names[value.index()]);
}

struct GgufEntry {
  std::string key;
  GgufValue value;
};

/// Keys and values; a key stands once.
class GgufMetadata {
 public:
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }
  std::size_t size() const noexcept { return entries_.size(); }

  GgufValue const* find(std::string_view key) const {
    auto const found = places_.find(std::string(key));
    return found == places_.end() ? nullptr : &entries_[found->second].value;
  }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// At the end, or in the place of the value that the key had.
  GgufMetadata& set(std::string key, GgufValue value) {
    if (!add(key, value)) entries_[places_.at(key)].value = std::move(value);
    return *this;
  }
  /// False, with nothing changed, when the key stands already.
  bool add(std::string const& key, GgufValue& value) {
    if (!places_.emplace(key, entries_.size()).second) return false;
    entries_.push_back({key, std::move(value)});
    return true;
  }
  void erase(std::string_view key) {
    auto const found = places_.find(std::string(key));
    if (found == places_.end()) return;
    std::size_t const place = found->second;
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(place));
    places_.erase(found);
    for (auto& [name, at] : places_) at -= at > place ? 1 : 0;
  }

  /// The value as a T: bool, std::string, an integer or floating type, or a std::vector of those. Files write an
  /// integer in any of the eight integer types; each is taken if its value fits T, and a floating T takes integers too.
  /// Errors: format, when the key is absent, of another type, or does not fit.
  template <class T>
  T get(std::string_view key, std::source_location where = std::source_location::current()) const {
    GgufValue const* const value = find(key);
    if (value == nullptr)
      throw Error(
          ErrorKind::format, "GgufMetadata::get",
          "the metadata has no key '" + std::string(key) + "'. Check that the file is one of this kind of model",
          where);
    return converted<T>(key, *value, where);
  }
  /// `otherwise` where the key is absent.
  template <class T>
  T get_or(std::string_view key, T otherwise, std::source_location where = std::source_location::current()) const {
    GgufValue const* const value = find(key);
    return value == nullptr ? otherwise : converted<T>(key, *value, where);
  }
  /// A list where it lies; null where the key is absent. Errors: format, when it is of another type.
  template <class T>
  std::vector<T> const* list(std::string_view key, std::source_location where = std::source_location::current()) const {
    GgufValue const* const value = find(key);
    if (value == nullptr) return nullptr;
    auto const* const array = std::get_if<GgufArray>(value);
    auto const* const items = array == nullptr ? nullptr : std::get_if<std::vector<T>>(array);
    if (items == nullptr) refuse(key, *value, "a list of that type", where);
    return items;
  }

 private:
  template <class T>
  static constexpr bool is_number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

  [[noreturn]] static void refuse(std::string_view key, GgufValue const& value, std::string const& wanted,
                                  std::source_location where) {
    throw Error(ErrorKind::format, "GgufMetadata::get",
                "the metadata has '" + std::string(key) + "' as " + type_name(value) + ", which is not " + wanted +
                    ". Convert the model again",
                where);
  }

  /// Empty where `from` is not such a value.
  template <class T, class From>
  static std::optional<T> number(From from) {
    if constexpr (std::integral<T>) {
      if constexpr (!std::integral<From>) return std::nullopt;
      else if (!std::in_range<T>(from)) return std::nullopt;
      else return static_cast<T>(from);
    } else {
      return static_cast<T>(from);
    }
  }

  template <class T>
  static T converted(std::string_view key, GgufValue const& value, std::source_location where) {
    if constexpr (std::same_as<T, bool> || std::same_as<T, std::string>) {
      if (auto const* same = std::get_if<T>(&value)) return *same;
      refuse(key, value, std::same_as<T, bool> ? "a bool" : "a string", where);
    } else if constexpr (is_number<T>) {
      std::optional<T> const result = std::visit(
          [](auto const& held) -> std::optional<T> {
            if constexpr (is_number<std::remove_cvref_t<decltype(held)>>) return number<T>(held);
            else return std::nullopt;
          },
          value);
      if (!result) refuse(key, value, std::integral<T> ? "an integer that fits" : "a number", where);
      return *result;
    } else {
      using Item = typename T::value_type;
      auto const* const array = std::get_if<GgufArray>(&value);
      if (array == nullptr) refuse(key, value, "a list", where);
      return std::visit(
          [&](auto const& held) -> T {
            using Held = std::remove_cvref_t<decltype(held)>;
            if constexpr (std::same_as<Held, T>) {
              return held;
            } else if constexpr (!std::same_as<Held, std::monostate> && is_number<Item>) {
              using From = typename Held::value_type;
              if constexpr (is_number<From>) {
                T result;
                result.reserve(held.size());
                for (auto const item : held) {
                  auto const one = number<Item>(item);
                  if (!one) refuse(key, value, "a list of integers that fit", where);
                  result.push_back(*one);
                }
                return result;
              }
            }
            refuse(key, value, "a list of that type", where);
          },
          *array);
    }
  }

  std::vector<GgufEntry> entries_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace tutti::io
