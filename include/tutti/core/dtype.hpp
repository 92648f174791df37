// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Element types, as a concept and as a run-time tag.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/float16.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tutti {

/// Run-time name of an element type. The values are part of checkpoints' and messages' fingerprints: append only.
enum class DType : std::uint8_t {
  boolean, character, byte,
  int8, uint8, int16, uint16, int32, uint32, int64, uint64,
  bfloat16, float16, float32, float64,
};
inline constexpr int dtype_count = 15;

constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean: case DType::character: case DType::byte: case DType::int8: case DType::uint8: return 1;
    case DType::int16: case DType::uint16: case DType::bfloat16: case DType::float16: return 2;
    case DType::int32: case DType::uint32: case DType::float32: return 4;
    case DType::int64: case DType::uint64: case DType::float64: return 8;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean: return "bool";
    case DType::character: return "char";
    case DType::byte: return "byte";
    case DType::int8: return "int8";
    case DType::uint8: return "uint8";
    case DType::int16: return "int16";
    case DType::uint16: return "uint16";
    case DType::int32: return "int32";
    case DType::uint32: return "uint32";
    case DType::int64: return "int64";
    case DType::uint64: return "uint64";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::float32: return "float32";
    case DType::float64: return "float64";
  }
  return "unknown";
}

constexpr bool is_floating(DType dtype) noexcept { return dtype >= DType::bfloat16; }
constexpr bool is_integer(DType dtype) noexcept { return dtype >= DType::int8 && dtype <= DType::uint64; }

namespace detail {

/// Integer types are told apart by size and signedness, so `long` and `long long` are both 64-bit integers.
template <class T>
constexpr int dtype_index() {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::same_as<Plain, bool>) return int(DType::boolean);
  else if constexpr (std::same_as<Plain, char>) return int(DType::character);
  else if constexpr (std::same_as<Plain, std::byte>) return int(DType::byte);
  else if constexpr (std::same_as<Plain, bfloat16>) return int(DType::bfloat16);
  else if constexpr (std::same_as<Plain, float16>) return int(DType::float16);
  else if constexpr (std::same_as<Plain, float>) return int(DType::float32);
  else if constexpr (std::same_as<Plain, double>) return int(DType::float64);
  else if constexpr (std::same_as<Plain, wchar_t> || std::same_as<Plain, char8_t> || std::same_as<Plain, char16_t> ||
                     std::same_as<Plain, char32_t>)
    return -1;  // text, not numbers
  else if constexpr (std::integral<Plain>) {
    constexpr bool is_signed = std::is_signed_v<Plain>;
    if constexpr (sizeof(Plain) == 1) return int(is_signed ? DType::int8 : DType::uint8);
    else if constexpr (sizeof(Plain) == 2) return int(is_signed ? DType::int16 : DType::uint16);
    else if constexpr (sizeof(Plain) == 4) return int(is_signed ? DType::int32 : DType::uint32);
    else if constexpr (sizeof(Plain) == 8) return int(is_signed ? DType::int64 : DType::uint64);
    else return -1;
  } else
    return -1;
}

}  // namespace detail

/// What has a DType: integers, std::byte, char, bool, float, double, bfloat16, float16.
template <class T>
concept Element = detail::dtype_index<T>() >= 0;

/// The tag of an element type; cv-qualification is ignored.
template <Element T>
inline constexpr DType dtype_of = static_cast<DType>(detail::dtype_index<T>());

/// A complex number: std::complex<float>, std::complex<double>, and what is laid out and used as they are. Told by what
/// it can do, so that <complex> is included only where it is used.
template <class T>
concept Complex = std::is_trivially_copyable_v<T> && requires(T const& z) {
  { z.real() } -> std::same_as<typename T::value_type>;
  { z.imag() } -> std::same_as<typename T::value_type>;
  { z * z } -> std::convertible_to<T>;
} && (std::same_as<typename T::value_type, float> || std::same_as<typename T::value_type, double>) &&
                  sizeof(T) == 2 * sizeof(typename T::value_type);

/// Whether T is made of elements. Such types have no DType; tensors hold them and communicators move them, kernels and
/// files know nothing of them. Specialised by headers that describe further types (comm/wire.hpp).
template <class T>
inline constexpr bool is_compound = Complex<T>;

/// What a tensor may hold: an Element, or something made of elements. One value, so that a type that is neither costs
/// one line of diagnostics.
template <class T>
inline constexpr bool is_storable = !std::is_const_v<T> && !std::is_volatile_v<T> && (Element<T> || is_compound<T>);
template <class T>
concept Storable = is_storable<T>;
template <class T>
concept NotStorable = !is_storable<T>;

/// For messages.
template <Storable T>
constexpr std::string_view element_name() noexcept {
  if constexpr (Element<T>) return name(dtype_of<T>);
  else if constexpr (Complex<T>) return sizeof(T) == 8 ? "complex64" : "complex128";
  else return "structs";
}

/// Calls `f` with a value-initialised object of the type that `dtype` names.
template <class F>
constexpr decltype(auto) with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean: return f(bool{});
    case DType::character: return f(char{});
    case DType::byte: return f(std::byte{});
    case DType::int8: return f(std::int8_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::uint16: return f(std::uint16_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::uint32: return f(std::uint32_t{});
    case DType::int64: return f(std::int64_t{});
    case DType::uint64: return f(std::uint64_t{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    case DType::float64: return f(double{});
    case DType::float32: break;
  }
  return f(float{});
}

}  // namespace tutti
