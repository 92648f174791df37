// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How outer gradients travel: as float32, or rounded to fewer bits, with what rounding took kept for the next time.
///
/// Bytes     float32 and bfloat16: the values, little-endian. int8 and int4: of every block of 128 values (the last may
///           be shorter) one float32 scale, all scales first; then the values as signed integers, q in [-127, 127] or
///           [-7, 7]; of int4 two in a byte, the first in its low half, each in two's complement.
/// Computes  scale = max|x| / 127 (or 7), q = x / scale to the nearest integer, ties to even; x is about scale * q, off
///           by half a scale at most.
/// Source    error feedback: Karimireddy et al. 2019 (arXiv 1901.09847); 4 bits suffice for outer gradients: Douillard
///           et al. 2025 (arXiv 2501.18512), whose format has exponents in the place of integers.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace tutti {
namespace parallel {

/// What the values of an outer gradient are rounded to.
enum class OuterBits : unsigned char { float32, bfloat16, int8, int4 };

/// Values that have one scale together.
inline constexpr std::int64_t outer_block = 128;

}  // namespace parallel

template <>
inline constexpr auto setting::spelling<parallel::OuterBits> =
    std::array<std::string_view, 4>{"float32", "bfloat16", "int8", "int4"};

namespace parallel {

namespace detail {

static_assert(std::endian::native == std::endian::little, "values are stored as they lie in memory");

constexpr std::int64_t blocks_of(std::int64_t count) noexcept { return (count + outer_block - 1) / outer_block; }

/// The block `at` of `blocks`, whose last one may be shorter.
template <class T>
std::span<T> block(std::span<T> values, std::int64_t at) noexcept {
  auto const first = static_cast<std::size_t>(at * outer_block);
  return values.subspan(first, std::min<std::size_t>(outer_block, values.size() - first));
}
inline float largest_magnitude(std::span<float const> values) noexcept {
  float largest = 0;
  for (float const value : values) largest = std::max(largest, std::abs(value));
  return largest;
}
/// The nearest integer of magnitude up to 2^22, ties to even, in a form that vectorises.
inline std::int32_t rounded(float value) noexcept {
  constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for fractions
  return std::bit_cast<std::int32_t>(value + magic) - std::bit_cast<std::int32_t>(magic);
}
inline void require_bytes(OuterBits bits, std::size_t have, std::int64_t wanted, std::int64_t count) {
  if (static_cast<std::int64_t>(have) != wanted)
    throw Error(ErrorKind::format, "outer gradient",
                std::to_string(have) + " bytes are not " + std::to_string(count) + " values as " +
                    std::string(setting::spelling<OuterBits>[static_cast<std::size_t>(bits)]) + ", which are " +
                    std::to_string(wanted));
}

}  // namespace detail

/// Bytes of `count` values, whatever they are.
constexpr std::int64_t encoded_bytes(OuterBits bits, std::int64_t count) noexcept {
  switch (bits) {
    case OuterBits::float32: return 4 * count;
    case OuterBits::bfloat16: return 2 * count;
    case OuterBits::int8: return 4 * detail::blocks_of(count) + count;
    case OuterBits::int4: return 4 * detail::blocks_of(count) + (count + 1) / 2;
  }
  return 0;
}

/// Values that are not finite stay so as float32 and bfloat16; the scale of their block tells of them in others.
/// Requires  to.size() == encoded_bytes(bits, values.size()). Determinism: the same bytes everywhere.
/// Errors    format, for another size of `to`.
inline void encode(OuterBits bits, std::span<float const> values, std::span<std::byte> to) {
  auto const count = static_cast<std::int64_t>(values.size());
  detail::require_bytes(bits, to.size(), encoded_bytes(bits, count), count);
  if (bits == OuterBits::float32) {
    if (count > 0) std::memcpy(to.data(), values.data(), to.size());
    return;
  }
  if (bits == OuterBits::bfloat16) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      bfloat16 const rounded(values[i]);
      std::memcpy(to.data() + 2 * i, &rounded, 2);
    }
    return;
  }
  std::int64_t const blocks = detail::blocks_of(count);
  float const most = bits == OuterBits::int8 ? 127.0f : 7.0f;
  std::byte* const payload = to.data() + 4 * blocks;
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::span<float const> const block = detail::block(values, b);
    float largest = detail::largest_magnitude(block);
    for (float const value : block)
      if (!std::isfinite(value)) largest = std::numeric_limits<float>::quiet_NaN();  // max passes NaN by
    float const scale = largest / most;
    // A scale that is zero or subnormal has no reciprocal, one that is not finite no quotients.
    bool const usable = scale >= std::numeric_limits<float>::min() && std::isfinite(scale);
    float const inverse = usable ? 1 / scale : 0;
    float const kept = usable || !std::isfinite(scale) ? scale : 0;
    std::memcpy(to.data() + 4 * b, &kept, 4);
    std::int32_t q[outer_block] = {};
    if (usable)
      for (std::size_t i = 0; i < block.size(); ++i)
        q[i] = detail::rounded(std::clamp(block[i] * inverse, -most, most));
    if (bits == OuterBits::int8) {
      std::byte* const out = payload + b * outer_block;
      for (std::size_t i = 0; i < block.size(); ++i) out[i] = static_cast<std::byte>(q[i]);
    } else {
      std::byte* const out = payload + b * (outer_block / 2);
      for (std::size_t i = 0; i < block.size(); i += 2)
        out[i / 2] = static_cast<std::byte>((q[i] & 15) | ((q[i + 1] & 15) << 4));
    }
  }
}

namespace detail {
/// Block `b` of what `encode` wrote of `count` values; a scale that is not finite makes values that are none.
inline void decode_block(OuterBits bits, std::span<std::byte const> from, std::int64_t count, std::int64_t b,
                         std::span<float> to) noexcept {
  std::int64_t const first = b * outer_block, scales = 4 * blocks_of(count);
  if (bits == OuterBits::float32) {
    std::memcpy(to.data(), from.data() + 4 * first, to.size_bytes());
    return;
  }
  if (bits == OuterBits::bfloat16) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      bfloat16 value;
      std::memcpy(&value, from.data() + 2 * first + 2 * static_cast<std::int64_t>(i), 2);
      to[i] = value;
    }
    return;
  }
  float scale = 0;
  std::memcpy(&scale, from.data() + 4 * b, 4);
  if (bits == OuterBits::int8) {
    std::byte const* const in = from.data() + scales + first;
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = scale * static_cast<float>(static_cast<std::int8_t>(in[i]));
    return;
  }
  std::byte const* const in = from.data() + scales + first / 2;
  for (std::size_t i = 0; i < to.size(); ++i) {
    int const half = (std::to_integer<int>(in[i / 2]) >> (i % 2 == 0 ? 0 : 4)) & 15;
    to[i] = scale * static_cast<float>((half ^ 8) - 8);  // of four bits, the first the sign
  }
}
}  // namespace detail

/// Errors  format: the bytes are of another number of values, or a scale is not finite, as where what was sent was not.
/// Values as float32 or bfloat16 are passed on as they are.
inline void decode(OuterBits bits, std::span<std::byte const> from, std::span<float> to) {
  auto const count = static_cast<std::int64_t>(to.size());
  detail::require_bytes(bits, from.size(), encoded_bytes(bits, count), count);
  bool const scaled = bits == OuterBits::int8 || bits == OuterBits::int4;
  for (std::int64_t b = 0; b < detail::blocks_of(count); ++b) {
    float scale = 0;
    if (scaled) std::memcpy(&scale, from.data() + 4 * b, 4);
    if (!std::isfinite(scale))
      throw Error(ErrorKind::format, "outer gradient",
                  "values " + std::to_string(b * outer_block) +
                      " and following are not finite: training has diverged where they come from");
    detail::decode_block(bits, from, count, b, detail::block(to, b));
  }
}

/// Encodes values + residual; afterwards `residual` is what rounding took of that, to be sent next time. Of float32 it
/// becomes zero.
/// Requires  residual.size() == values.size(). Errors: those of `encode`.
inline void encode_with_feedback(OuterBits bits, std::span<float const> values, std::span<float> residual,
                                 std::span<std::byte> to) {
  for (std::size_t i = 0; i < values.size(); ++i) residual[i] += values[i];
  encode(bits, residual, to);
  auto const count = static_cast<std::int64_t>(values.size());
  for (std::int64_t b = 0; b < detail::blocks_of(count); ++b) {
    std::span<float> const left = detail::block(residual, b);
    std::array<float, outer_block> said{};
    detail::decode_block(bits, to, count, b, std::span(said).first(left.size()));
    for (std::size_t i = 0; i < left.size(); ++i) left[i] -= said[i];
  }
}

}  // namespace parallel
}  // namespace tutti
