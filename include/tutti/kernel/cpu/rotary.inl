// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Rotary position embedding, stamped per instruction set.

TUTTI_KERNEL_INLINE void rotate(F32& a, F32& b, F32 cosine, F32 sine) {
  F32 const turned = fnma(b, sine, mul(a, cosine));
  b = fma(a, sine, mul(b, cosine));
  a = turned;
}

/// Pairs (i, i + pairs).
TUTTI_TARGET inline void rotate_halves(float const* x, float* y, float const* cosine, float const* sine,
                                       std::int64_t pairs, float sign) {
  constexpr std::int64_t width = F32::lanes;
  F32 const direction = set(sign);
  std::int64_t i = 0;
  for (; i + width <= pairs; i += width) {
    F32 a = load(x + i), b = load(x + pairs + i);
    rotate(a, b, load(cosine + i), mul(load(sine + i), direction));
    store(y + i, a);
    store(y + pairs + i, b);
  }
  if (i < pairs) {
    int const rest = static_cast<int>(pairs - i);
    F32 a = load_partial(x + i, rest), b = load_partial(x + pairs + i, rest);
    rotate(a, b, load_partial(cosine + i, rest), mul(load_partial(sine + i, rest), direction));
    store_partial(y + i, a, rest);
    store_partial(y + pairs + i, b, rest);
  }
}

/// Pairs (2 i, 2 i + 1).
TUTTI_TARGET inline void rotate_neighbours(float const* x, float* y, float const* cosine, float const* sine,
                                           std::int64_t pairs, float sign) {
  constexpr std::int64_t width = F32::lanes;
  F32 const direction = set(sign);
  F32 a, b, low, high;
  std::int64_t i = 0;
  for (; i + width <= pairs; i += width) {
    deinterleave(load(x + 2 * i), load(x + 2 * i + width), a, b);
    rotate(a, b, load(cosine + i), mul(load(sine + i), direction));
    interleave(a, b, low, high);
    store(y + 2 * i, low);
    store(y + 2 * i + width, high);
  }
  if (i < pairs) {
    int const rest = static_cast<int>(pairs - i);
    int const first = 2 * rest < static_cast<int>(width) ? 2 * rest : static_cast<int>(width);
    deinterleave(load_partial(x + 2 * i, first), load_partial(x + 2 * i + first, 2 * rest - first), a, b);
    rotate(a, b, load_partial(cosine + i, rest), mul(load_partial(sine + i, rest), direction));
    interleave(a, b, low, high);
    store_partial(y + 2 * i, low, first);
    store_partial(y + 2 * i + first, high, 2 * rest - first);
  }
}

/// Rows [begin, end).
TUTTI_TARGET inline void rotary_rows(Rotary const& args, std::int64_t begin, std::int64_t end) {
  std::int64_t const pairs = args.head_size / 2;
  float const sign = args.inverse ? -1.0f : 1.0f;
  for (std::int64_t row = begin; row < end; ++row) {
    std::int64_t const position =
        args.row_positions != nullptr ? args.row_positions[row] : args.first_position + row % args.tokens;
    float const* const cosine = args.cosine + position * pairs;
    float const* const sine = args.sine + position * pairs;
    for (std::int64_t head = 0; head < args.heads; ++head) {
      float const* const x = args.x + row * args.x_stride + head * args.head_size;
      float* const y = args.y + row * args.y_stride + head * args.head_size;
      if (args.pairing == RotaryPairing::half) rotate_halves(x, y, cosine, sine, pairs, sign);
      else rotate_neighbours(x, y, cosine, sine, pairs, sign);
    }
  }
}
