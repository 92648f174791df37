// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What attention over a cache does beside attention itself, stamped per instruction set by cached_attention.hpp.

template <class T>
TUTTI_TARGET void convert_row(float const* from, T* to, std::int64_t count) {
  std::int64_t c = 0;
  for (; c + F32::lanes <= count; c += F32::lanes) store(to + c, load(from + c));
  if (c < count)
    store_partial(to + c, load_partial(from + c, static_cast<int>(count - c)), static_cast<int>(count - c));
}
TUTTI_TARGET inline void convert_row(float const* from, blocks::Q8_0* to, std::int64_t count) {
  for (std::int64_t c = 0; c < count; c += 32) blocks::quantise(from + c, to[c / 32]);
}
template <class T>
TUTTI_TARGET void widen_rows(T const* from, float* to, std::int64_t count) {
  std::int64_t c = 0;
  for (; c + F32::lanes <= count; c += F32::lanes) store(to + c, load(from + c));
  if (c < count)
    store_partial(to + c, load_partial(from + c, static_cast<int>(count - c)), static_cast<int>(count - c));
}
TUTTI_TARGET inline void widen_rows(blocks::Q8_0 const* from, float* to, std::int64_t count) {
  for (std::int64_t c = 0; c < count; c += F32::lanes) store(to + c, LaneRows<blocks::Q8_0>::lanes(from, c));
}

/// A head with its first 2 * pairs elements rotated.
TUTTI_TARGET inline void rotate_head(CachedAttention const& a, std::int64_t row, float const* x, float* y) {
  float const *const cosine = a.cosine + row * a.pairs, *const sine = a.sine + row * a.pairs;
  if (a.pairs > 0) {
    if (a.pairing == RotaryPairing::half) rotate_halves(x, y, cosine, sine, a.pairs, 1.0f);
    else rotate_neighbours(x, y, cosine, sine, a.pairs, 1.0f);
  }
  convert_row(x + 2 * a.pairs, y + 2 * a.pairs, a.head_size - 2 * a.pairs);
}

/// Rotates queries into `out`, keys and values into the cache. `turned` holds a head.
template <class T>
TUTTI_TARGET void store_cached_row(CachedAttention const& a, std::int64_t row, float* turned) {
  std::int64_t const d = a.head_size;
  float const* const q = a.qkv + row * (a.heads + 2 * a.kv_heads) * d;
  float const *const k = q + a.heads * d, *const v = k + a.kv_heads * d;
  for (std::int64_t head = 0; head < a.heads; ++head)
    rotate_head(a, row, q + head * d, a.out + (row * a.heads + head) * d);
  for (std::int64_t head = 0; head < a.kv_heads; ++head) {
    std::int64_t const at =
        ((a.slot[row] * a.kv_heads + head) * a.capacity + a.position[row]) * (d / elements_in<T>);
    rotate_head(a, row, k + head * d, turned);
    convert_row(turned, static_cast<T*>(a.keys) + at, d);
    convert_row(v + head * d, static_cast<T*>(a.values) + at, d);
  }
}
