// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Rows rounded to int8 times rows of blocks, in integers within a block. Stamped per instruction set, before
/// block_product.inl.

namespace bytes = ::tutti::isa::TUTTI_ISA::bytes;
using bytes::F32x8;
using bytes::I16x16;
using bytes::I32x8;
using bytes::I8x32;

/// A scale as other programs keep it with rounded activations, in half precision, where that has a normal number for it.
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
  std::int32_t each[width], most = 0;
  store(each, largest);
  for (std::int32_t const one : each) most = most < one ? one : most;
  magnitude = std::bit_cast<float>(most);
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

/// One row in blocks of 32: as Q8_0 and Q8_1 of GGML. sums[i] is scale times the sum of the integers.
TUTTI_TARGET inline void round_by_32(float const* x, std::int64_t in, BlockRounding const& to) {
  for (std::int64_t i = 0; i < in / 32; ++i) {
    float magnitude;
    std::int8_t* const q = to.q + 32 * i;
    bool const zeros = round_block<32>(x + 32 * i, q, magnitude) == 0.0f && magnitude < 1.0f;
    float const scale = zeros ? 0.0f : magnitude / 127.0f;
    to.scales[i] = half_scale(scale);
    to.scaled_sums[i] = half_scale(scale * static_cast<float>(sum_of_bytes<32>(q)));
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

// Codes of blocks of 32.
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_0 const& b) { return bytes::minus(bytes::nibbles(b.q), 8); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_1 const& b) { return bytes::nibbles(b.q); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_0 const& b) {
  return bytes::minus(bytes::join(bytes::nibbles(b.q), bytes::sixteens(b.high)), 16);
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_1 const& b) {
  return bytes::join(bytes::nibbles(b.q), bytes::sixteens(b.high));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q8_0 const& b) { return bytes::load_bytes(b.q); }
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::IQ4_NL const& b) {
  return bytes::look_up(blocks::iq4_values, bytes::nibbles(b.q));
}

/// out[r * out_row + c] = row r of x times row c of w, of `count` blocks of 32.
template <class Block, int Rows, int Columns>
TUTTI_TARGET void dots_by_32(std::byte const* w, std::int64_t row, std::int64_t count, BlockRounding const& x,
                             float* out, std::int64_t out_row) {
  constexpr bool has_min = requires(Block const& b) { b.m; };
  F32x8 sums[Rows][Columns], mins[Rows][Columns];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int c = 0; c < Columns; ++c) sums[r][c] = mins[r][c] = F32x8{};
  }
  for (std::int64_t i = 0; i < count; ++i) {
    I8x32 right[Rows];
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) right[r] = bytes::load_bytes(x.q + 32 * (r * count + i));
    TUTTI_UNROLL
    for (int c = 0; c < Columns; ++c) {
      auto const& block = reinterpret_cast<Block const*>(w + c * row)[i];
      I8x32 const codes = codes_of(block);
      F32x8 const d = bytes::broadcast(&block.d);
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) {
        I32x8 dot;
        if constexpr (has_min) {
          dot = bytes::dot4_unsigned(codes, right[r]);
          mins[r][c] = bytes::plus_product(mins[r][c], bytes::broadcast(&block.m),
                                           bytes::broadcast(x.scaled_sums + r * count + i));
        } else {
          dot = bytes::dot4_signed(codes, right[r]);
        }
        F32x8 const scale = bytes::times(d, bytes::broadcast(x.scales + r * count + i));
        sums[r][c] = bytes::plus_product(sums[r][c], scale, bytes::to_float(dot));
      }
    }
  }
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int c = 0; c < Columns; ++c)
      out[r * out_row + c] = bytes::total(sums[r][c]) + (has_min ? bytes::first_lane(mins[r][c]) : 0.0f);
  }
}

// Codes of part p of eight of blocks of 256.
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q2_K const& b, int p) {
  return bytes::bits(bytes::load_bytes(b.q + 32 * (p / 4)), 2 * (p % 4), 3);
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q3_K const& b, int p) {
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 32 * (p / 4)), 2 * (p % 4), 3);
  return bytes::join(low, bytes::lift_by_two(bytes::bits(bytes::load_bytes(b.high), p, 1)));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q4_K const& b, int p) {
  return bytes::bits(bytes::load_bytes(b.q + 32 * (p / 2)), 4 * (p % 2), 15);
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q5_K const& b, int p) {
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 32 * (p / 2)), 4 * (p % 2), 15);
  return bytes::join(low, bytes::lift(bytes::bits(bytes::load_bytes(b.high), p, 1)));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::Q6_K const& b, int p) {
  int const half = p / 4, g = p % 4;
  I8x32 const low = bytes::bits(bytes::load_bytes(b.q + 64 * half + 32 * (g % 2)), 4 * (g / 2), 15);
  return bytes::join(low, bytes::lift(bytes::bits(bytes::load_bytes(b.high + 32 * half), 2 * g, 3)));
}
TUTTI_KERNEL_INLINE I8x32 codes_of(blocks::IQ4_XS const& b, int p) {
  return bytes::look_up(blocks::iq4_values, bytes::nibbles(b.q + 16 * p));
}

/// Scales of the sixteens of a block, those of even place before those of odd place; and what is taken from a code, 2 ^
/// `shift` (0 where `shift` is -1), or times what the sums of x are taken from the whole, times dmin.
struct Scales {
  I16x16 scales, mins;
};
template <class Block>
inline constexpr int code_shift = -1;
template <>
inline constexpr int code_shift<blocks::Q3_K> = 2;
template <>
inline constexpr int code_shift<blocks::Q6_K> = 5;

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
  std::uint64_t all = 0;
  for (int k = 0; k < 8; ++k) all |= static_cast<std::uint64_t>(blocks::iq4_scale(b, k) + 32) << (8 * k);
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
      if constexpr (code_shift<Block> >= 0)
        dots[r] = bytes::minus_times(dots[r], bytes::dot2(scales.scales, right_sums), code_shift<Block>);
      sums[r] = bytes::plus_product(sums[r], bytes::times(bytes::broadcast(&block.d), step), bytes::to_float(dots[r]));
      if constexpr (has_min)
        sums[r] = bytes::minus_product(sums[r], bytes::times(bytes::broadcast(&block.dmin), step),
                                       bytes::to_float(bytes::dot2(scales.mins, right_sums)));
    }
  }
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) out[r * out_row] = bytes::total(sums[r]);
}
