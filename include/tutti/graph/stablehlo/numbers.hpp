// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Numbers of constants, as MLIR writes them: digits, or the bits of floating ones, or the bytes of all.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti::graph::stablehlo::text {

/// The value of hexadecimal digit; -1 for others.
constexpr int hexadecimal(char c) noexcept {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/// Whether a graph holds this constant, whose numbers are doubles, exactly.
inline bool is_held(DType dtype, double x) {
  return is_floating(dtype) || (holds(dtype, x) && ((x <= 0x1p53 && x >= -0x1p53) || x == -0x1p63));
}

/// The number of which these are the bits.
inline double of_bits(DType dtype, std::uint64_t raw) {
  switch (dtype) {
    case DType::float32: return double{std::bit_cast<float>(static_cast<std::uint32_t>(raw))};
    case DType::float64: return std::bit_cast<double>(raw);
    case DType::bfloat16: return double{float(std::bit_cast<bfloat16>(static_cast<std::uint16_t>(raw)))};
    case DType::float16: return double{float(std::bit_cast<float16>(static_cast<std::uint16_t>(raw)))};
    case DType::boolean: return raw != 0 ? 1 : 0;
    default: break;
  }
  double exact = 0;
  with_dtype(dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>) exact = static_cast<double>(static_cast<decltype(zero)>(raw));
  });
  return exact;
}

/// Nothing where it is no number of the type. Integers above 63 bits are 2^64.
inline std::optional<double> number_of(DType dtype, std::string_view literal) {
  if (literal == "true" || literal == "false") return literal == "true" ? 1 : 0;
  if (literal.starts_with('+')) literal.remove_prefix(1);
  char const *const begin = literal.data(), *const end = begin + literal.size();
  bool const is_bits = literal.starts_with("0x");
  if (is_bits || !is_floating(dtype)) {
    std::uint64_t raw = 0;
    std::int64_t number = 0;
    auto const read = is_bits ? std::from_chars(begin + 2, end, raw, 16) : std::from_chars(begin, end, number);
    if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
    if (read.ec != std::errc()) return literal.starts_with('-') ? -0x1p64 : 0x1p64;
    return is_bits ? of_bits(dtype, raw) : static_cast<double>(number);
  }
  double number = 0;
  auto const read = std::from_chars(begin, end, number);
  if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
  return read.ec == std::errc() ? number : std::strtod(std::string(literal).c_str(), nullptr);
}

/// An integer modulo 2^64; nothing where its type, of 64 bits, does not hold it.
inline std::optional<std::uint64_t> wide_number_of(DType dtype, std::string_view literal) {
  std::uint64_t raw = 0;
  std::int64_t number = 0;
  char const *const begin = literal.data(), *const end = begin + literal.size();
  if (dtype != DType::int64 && dtype != DType::uint64) return std::nullopt;
  if (std::from_chars(begin, end, number).ec == std::errc())
    return dtype == DType::uint64 && number < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(number));
  if (dtype == DType::int64 || std::from_chars(begin, end, raw).ec != std::errc()) return std::nullopt;
  return raw;
}

/// "0x..." of bytes, the lowest first; of truth values bytes, or bits. Nothing where there are other digits, or a part
/// of a number.
inline std::optional<List<double>> unpacked(DType dtype, std::int64_t elements, std::string_view packed) {
  if (packed.starts_with("0x")) packed.remove_prefix(2);
  if (packed.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < packed.size(); i += 2) {
    int const high = hexadecimal(packed[i]), low = hexadecimal(packed[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(16 * high + low);
  }
  auto const count = static_cast<std::size_t>(elements), size = size_of(dtype);
  List<double> numbers;
  if (dtype == DType::boolean && bytes.size() != count && bytes.size() == count / 8 + (count % 8 != 0 ? 1 : 0)) {
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(static_cast<unsigned char>(bytes[i / 8]) >> (i % 8) & 1);
    return numbers;
  }
  if (bytes.size() % size != 0) return std::nullopt;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    std::uint64_t raw = 0;
    for (std::size_t i = 0; i < size; ++i) raw |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
    numbers.push_back(of_bits(dtype, raw));
  }
  return numbers;
}

}  // namespace tutti::graph::stablehlo::text
