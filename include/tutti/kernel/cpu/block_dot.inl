// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Rows rounded to int8 times rows of blocks, in integers within a block. Stamped per instruction set, before
/// block_product.inl.

namespace bytes = ::tutti::isa::TUTTI_ISA::bytes;
using bytes::F32x8;
using bytes::I16x16;
using bytes::I32x8;
using bytes::I8x32;

/// A scale as other programs keep it with rounded activations: in half precision, where that has a normal number.
TUTTI_KERNEL_INLINE float half_scale(float value) {
  float const size = __builtin_fabsf(value);
  return size >= 0x1p-14f && size <= 65504.0f ? static_cast<float>(float16(value)) : value;
}

/// N numbers to q, to the nearest, ties to even. Returns the factor that they were multiplied by: 127 over the largest
/// magnitude, 0 for zeros.
template <int N>
TUTTI_KERNEL_INLINE float round_block(float const* x, std::int8_t* q, float& magnitude) {
  constexpr int width = F32::lanes;
  // Magnitudes compare as their bits do, and there NaN is larger than all others.
  I32 largest = set_i32(0);
  for (int i = 0; i < N; i += width) {
    I32 const one = as_i32(abs(load(x + i)));
    largest = select(less(largest, one), one, largest);
  }
  bool const has_nan = any(less(set_i32(0x7f800000), largest));
  magnitude = has_nan ? std::numeric_limits<float>::quiet_NaN() : max_lane(as_f32(largest));
  float const factor = magnitude < 0x1p-120f ? 0.0f : 127.0f / magnitude;
  for (int i = 0; i < N; i += width) store(q + i, to_i32(mul(set(factor), load(x + i))));
  return factor;
}
template <int N>
TUTTI_KERNEL_INLINE int sum_of_bytes(std::int8_t const* q) {
  int sum = 0;
  for (int i = 0; i < N; ++i) sum += q[i];
  return sum;
}

/// 32 numbers to q; their scale, as yet in float32.
TUTTI_KERNEL_INLINE float round_32(float const* x, std::int8_t* q) {
  float magnitude;
  bool const zeros = round_block<32>(x, q, magnitude) == 0.0f && magnitude < 1.0f;
  return zeros ? 0.0f : magnitude / 127.0f;
}
/// One row in blocks of 32: as Q8_0 and Q8_1 of GGML.
TUTTI_TARGET inline void round_by_32(float const* x, std::int64_t in, BlockRounding const& to) {
  for (std::int64_t i = 0; i < in / 32; ++i) {
    std::int8_t* const q = to.q + 32 * i;
    float const scale = round_32(x + 32 * i, q);
    int const total = sum_of_bytes<32>(q);
    float const stored = half_scale(scale), eighth = half_scale(scale * static_cast<float>(total)) * 0.125f;
    for (int copy = 0; copy < bytes::copies; ++copy) {
      to.scales[bytes::copies * i + copy] = stored;
      to.minus_totals[bytes::copies * i + copy] = -total;
      to.eighths_of_sums[bytes::copies * i + copy] = eighth;
    }
  }
}
/// One row in blocks of 256: as Q8_K of GGML, but for the order of the sums of 16: even ones, then odd ones.
TUTTI_TARGET inline void round_by_256(float const* x, std::int64_t in, BlockRounding const& to) {
  for (std::int64_t i = 0; i < in / 256; ++i) {
    float magnitude;
    std::int8_t* const q = to.q + 256 * i;
    float const factor = round_block<256>(x + 256 * i, q, magnitude);
    to.scales[i] = factor != 0.0f ? 1.0f / factor : magnitude < 1.0f ? 0.0f : magnitude;
    for (int j = 0; j < 16; ++j)
      to.sums[16 * i + j / 2 + j % 2 * 8] = static_cast<std::int16_t>(sum_of_bytes<16>(q + 16 * j));
  }
}

/// What is taken from a code before it is multiplied: a power of two.
template <class Block>
inline constexpr int code_offset = 0;
template <>
inline constexpr int code_offset<blocks::Q4_0> = 8;
template <>
inline constexpr int code_offset<blocks::Q5_0> = 16;
template <>
inline constexpr int code_offset<blocks::Q3_K> = 4;
template <>
inline constexpr int code_offset<blocks::Q6_K> = 32;

// Codes of blocks of 32.
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_0 const& b) { return bytes::nibbles(b.q); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_1 const& b) { return bytes::nibbles(b.q); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_0 const& b) {
  return bytes::join(bytes::nibbles(b.q), bytes::sixteens(b.high));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_1 const& b) {
  return bytes::join(bytes::nibbles(b.q), bytes::sixteens(b.high));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q8_0 const& b) { return bytes::load_bytes(b.q); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::IQ4_NL const& b) {
  return bytes::look_up(blocks::iq4_values, bytes::nibbles(b.q));
}

/// Whether bytes are multiplied and summed by one instruction, which takes codes to 255.
inline constexpr bool one_instruction = ::tutti::isa::TUTTI_ISA::has_dot4;

/// Bytes of weights that are asked for ahead of their use: past the end of a page no processor does that by itself.
inline constexpr std::int64_t block_ahead = 2048;

/// The values at p of one block, or of two side by side.
template <bool Pair, class T>
TUTTI_KERNEL_INLINE auto across(T const* p) {
  if constexpr (Pair) return bytes::eights(p);
  else return bytes::broadcast(p);
}
/// sums[r] += block i of `count` of row r of x times a block, or blocks i and i + 1 times two, side by side.
template <class Block, class Codes, class Floats, int Rows>
TUTTI_KERNEL_INLINE void add_block(Codes const& codes, Floats const& d, Floats const& m, BlockRounding const& x,
                                   std::int64_t count, std::int64_t i, Floats (&sums)[Rows]) {
  constexpr bool pair = std::is_same_v<Floats, bytes::F32x16>;
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    std::int64_t const at = r * count + i, value = bytes::copies * at;
    Codes right;
    if constexpr (pair) right = bytes::load_pair(x.q + 32 * at);
    else right = bytes::load_bytes(x.q + 32 * at);
    Floats const scale = bytes::times(d, across<pair>(x.scales + value));
    if constexpr (requires(Block const& block) { block.m; }) {
      sums[r] = bytes::plus_product(sums[r], scale, bytes::to_float(bytes::dot4_unsigned(codes, right)));
      sums[r] = bytes::plus_product(sums[r], m, across<pair>(x.eighths_of_sums + value));
    } else if constexpr (code_offset<Block> != 0) {
      // An eighth of what is too much, in each of the eight lanes.
      constexpr int shift = std::countr_zero(static_cast<unsigned>(code_offset<Block>)) - 3;
      auto less = across<pair>(x.minus_totals + value);
      if constexpr (shift != 0) less = bytes::shift_left(less, shift);
      sums[r] = bytes::plus_product(sums[r], scale, bytes::to_float(bytes::dot4_unsigned(less, codes, right)));
    } else {
      sums[r] = bytes::plus_product(sums[r], scale, bytes::to_float(bytes::dot4_signed(codes, right)));
    }
  }
}
/// What is added to a product: 0 where a block has none.
template <class Block>
TUTTI_KERNEL_INLINE F32x8 min_of(Block const& block) {
  if constexpr (requires { block.m; }) return bytes::broadcast(&block.m);
  else return F32x8{};
}
/// out[r * out_row] = row r of x times the row w, of `count` blocks of 32: even ones and odd ones apart, so that a sum
/// need not wait for the one before.
template <class Block, int Rows>
TUTTI_TARGET void dots_by_32(std::byte const* w, std::int64_t count, BlockRounding const& x, float* out,
                             std::int64_t out_row) {
  auto const* const row = reinterpret_cast<Block const*>(w);
  bytes::F32x16 sums[Rows];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) sums[r] = bytes::F32x16{};
  std::int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    __builtin_prefetch(reinterpret_cast<char const*>(row + i) + block_ahead);
    Block const &one = row[i], &two = row[i + 1];
    add_block<Block>(bytes::both(codes_of(one), codes_of(two)),
                     bytes::both(bytes::broadcast(&one.d), bytes::broadcast(&two.d)),
                     bytes::both(min_of(one), min_of(two)), x, count, i, sums);
  }
  F32x8 even[Rows];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) even[r] = bytes::low_half(sums[r]);
  if (i < count) add_block<Block>(codes_of(row[i]), bytes::broadcast(&row[i].d), min_of(row[i]), x, count, i, even);
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) out[r * out_row] = bytes::total(bytes::plus(even[r], bytes::high_half(sums[r])));
}

// Codes of part p of eight of blocks of 256.
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q2_K const& b, int p) {
  return bytes::bits(bytes::load_bytes(b.q + 32 * (p / 4)), 2 * (p % 4), 3);
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q3_K const& b, int p) {
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 32 * (p / 4)), 2 * (p % 4), 3);
  return bytes::join(low, bytes::bits(bytes::load_bytes(b.high), p - 2, 4));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_K const& b, int p) {
  return bytes::bits(bytes::load_bytes(b.q + 32 * (p / 2)), 4 * (p % 2), 15);
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_K const& b, int p) {
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 32 * (p / 2)), 4 * (p % 2), 15);
  return bytes::join(low, bytes::bits(bytes::load_bytes(b.high), p - 4, 16));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q6_K const& b, int p) {
  int const half = p / 4, g = p % 4;
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 64 * half + 32 * (g % 2)), 4 * (g / 2), 15);
  return bytes::join(low, bytes::bits(bytes::load_bytes(b.high + 32 * half), 2 * g - 4, 48));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::IQ4_XS const& b, int p) {
  return bytes::look_up(blocks::iq4_values, bytes::nibbles(b.q + 16 * p));
}

/// Of the sixteens of a block, those of even place before those of odd place: what codes are multiplied by, and what,
/// times dmin, is taken from the numbers.
struct Scales {
  I16x16 scales, mins;
};
TUTTI_KERNEL_INLINE std::uint32_t word_at(std::uint8_t const* p) {
  std::uint32_t word;
  __builtin_memcpy(&word, p, 4);
  return word;
}
TUTTI_KERNEL_INLINE std::uint64_t two_words(std::uint32_t low, std::uint32_t high) {
  return low | static_cast<std::uint64_t>(high) << 32;
}
TUTTI_KERNEL_INLINE Scales scales_of(blocks::Q2_K const& b) {
  I16x16 const pairs = bytes::even_odd(b.scales);
  return {bytes::low_nibbles(pairs), bytes::high_nibbles(pairs)};
}
TUTTI_KERNEL_INLINE Scales scales_of(blocks::Q3_K const& b) {
  std::uint32_t const low = 0x0f0f0f0f, two = 0x03030303;
  std::uint32_t const a = word_at(b.scales), c = word_at(b.scales + 4), high = word_at(b.scales + 8);
  std::uint32_t const all[4] = {(a & low) | (high & two) << 4, (c & low) | ((high >> 2) & two) << 4,
                                ((a >> 4) & low) | ((high >> 4) & two) << 4,
                                ((c >> 4) & low) | ((high >> 6) & two) << 4};
  return {bytes::minus(bytes::even_odd(all), 32), I16x16{}};
}
/// Six bits each, as six_bit_pair has them, four at a time.
template <class Block>
TUTTI_KERNEL_INLINE Scales six_bit_scales(Block const& b) {
  std::uint32_t const low = 0x0f0f0f0f, two = 0x03030303, six = 0x3f3f3f3f;
  std::uint32_t const s = word_at(b.scales), m = word_at(b.scales + 4), both = word_at(b.scales + 8);
  return {bytes::twice(two_words(s & six, (both & low) | ((s >> 6) & two) << 4)),
          bytes::twice(two_words(m & six, ((both >> 4) & low) | ((m >> 6) & two) << 4))};
}
TUTTI_KERNEL_INLINE Scales scales_of(blocks::Q4_K const& b) { return six_bit_scales(b); }
TUTTI_KERNEL_INLINE Scales scales_of(blocks::Q5_K const& b) { return six_bit_scales(b); }
TUTTI_KERNEL_INLINE Scales scales_of(blocks::Q6_K const& b) { return {bytes::even_odd(b.scales), I16x16{}}; }
TUTTI_KERNEL_INLINE Scales scales_of(blocks::IQ4_XS const& b) {
  // Nibbles, and pairs of bits, to bytes of their own: iq4_scale for all eight.
  std::uint64_t low = word_at(b.scales_low), high = b.scales_high;
  low = (low | low << 16) & 0x0000ffff0000ffffu;
  low = (low | low << 8) & 0x00ff00ff00ff00ffu;
  low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
  high = (high | high << 24) & 0x000000ff000000ffu;
  high = (high | high << 12) & 0x000f000f000f000fu;
  high = (high | high << 6) & 0x0303030303030303u;
  std::uint64_t const all = low | high << 4;
  return {bytes::minus(bytes::twice(all), 32), I16x16{}};
}

/// out[r * out_row] = row r of x times the row w, of `count` blocks of 256.
template <class Block, int Rows>
TUTTI_TARGET void dots_by_256(std::byte const* w, std::int64_t count, BlockRounding const& x, float* out,
                              std::int64_t out_row) {
  constexpr bool has_min = requires(Block const& b) { b.dmin; };
  constexpr bool has_sign = std::is_same_v<Block, blocks::IQ4_XS>;
  F32x8 sums[Rows];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) sums[r] = F32x8{};
  for (std::int64_t i = 0; i < count; ++i) {
    auto const& block = reinterpret_cast<Block const*>(w)[i];
    TUTTI_UNROLL
    for (int line = 0; line < static_cast<int>(sizeof(Block)); line += 64)
      __builtin_prefetch(reinterpret_cast<char const*>(&block) + block_ahead + line);
    Scales const scales = scales_of(block);
    I32x8 dots[Rows];
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) dots[r] = I32x8{};
    TUTTI_UNROLL
    for (int p = 0; p < 8; ++p) {
      I8x32 const codes = codes_of(block, p);
      I16x16 const scale = bytes::spread(scales.scales, p);
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) {
        I8x32 const right = bytes::load_bytes(x.q + 256 * (r * count + i) + 32 * p);
        I16x16 const pairs = has_sign ? bytes::dot2_signed(codes, right) : bytes::dot2_unsigned(codes, right);
        dots[r] = bytes::add(dots[r], bytes::dot2(scale, pairs));
      }
    }
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      std::int64_t const at = r * count + i;
      F32x8 const step = bytes::broadcast(x.scales + at);
      I16x16 const right_sums = bytes::load_shorts(x.sums + 16 * at);
      if constexpr (code_offset<Block> != 0)
        dots[r] = bytes::minus_times(dots[r], bytes::dot2(scales.scales, right_sums),
                                     std::countr_zero(static_cast<unsigned>(code_offset<Block>)));
      sums[r] = bytes::plus_product(sums[r], bytes::times(bytes::broadcast(&block.d), step), bytes::to_float(dots[r]));
      if constexpr (has_min)
        sums[r] = bytes::minus_product(sums[r], bytes::times(bytes::broadcast(&block.dmin), step),
                                       bytes::to_float(bytes::dot2(scales.mins, right_sums)));
    }
  }
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) out[r * out_row] = bytes::total(sums[r]);
}

/// out[r * out_row] = row r of x times the row w of numbers, in two sums a row.
template <class T, int Rows>
TUTTI_TARGET void plain_dots(T const* w, std::int64_t in, float const* x, std::int64_t x_stride, float* out,
                             std::int64_t out_row) {
  constexpr int width = F32::lanes;
  F32 even[Rows], odd[Rows];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) even[r] = odd[r] = zero();
  std::int64_t i = 0;
  for (; i + 2 * width <= in; i += 2 * width) {
    __builtin_prefetch(reinterpret_cast<char const*>(w + i) + block_ahead);
    F32 const first = load(w + i), second = load(w + i + width);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      even[r] = fma(first, load(x + r * x_stride + i), even[r]);
      odd[r] = fma(second, load(x + r * x_stride + i + width), odd[r]);
    }
  }
  for (; i < in; i += width) {
    int const rest = in - i < width ? static_cast<int>(in - i) : width;
    F32 const last = load_partial(w + i, rest);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) even[r] = fma(last, load_partial(x + r * x_stride + i, rest), even[r]);
  }
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) out[r * out_row] = sum(add(even[r], odd[r]));
}
