// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Attention of one head on one thread, from the micro-kernel of gemm.inl. Stamped per instruction set by
/// attention.hpp.
///
/// Scores are held transposed, keys down and a panel of queries across: softmax statistics are then vectors over
/// queries without any reduction across lanes, and the probabilities already are the packed right operand of the next
/// product.

/// 0, 1, 2, ... across the lanes of vector v of a panel.
TUTTI_KERNEL_INLINE F32 lane_numbers(int v) {
  alignas(64) static constexpr float numbers[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  return load(numbers + v * F32::lanes);
}

/// to[q * to_row + i] = from[i * from_row + q]: rows of a transposed result back to where they belong.
TUTTI_TARGET inline void store_transposed(float const* from, std::int64_t from_row, std::int64_t rows,
                                          std::int64_t columns, float* to, std::int64_t to_row) {
  for (std::int64_t i = 0; i < rows; i += F32::lanes) {
    int const n = static_cast<int>(rows - i < F32::lanes ? rows - i : F32::lanes);
    for (std::int64_t q = 0; q < columns; q += 4) {
      F32 lines[4];
      if (n == F32::lanes && q + 4 <= columns) {
        load_transposed(from + i * from_row + q, from_row, F32::lanes, lines);
        TUTTI_UNROLL
        for (int c = 0; c < 4; ++c) store(to + (q + c) * to_row + i, lines[c]);
        continue;
      }
      load_transposed(from + i * from_row + q, from_row, n, lines);
      for (int c = 0; c < 4 && q + c < columns; ++c) store_partial(to + (q + c) * to_row + i, lines[c], n);
    }
  }
}

/// Keys that queries before `end` may see, to the end of a packed panel.
TUTTI_KERNEL_INLINE std::int64_t visible_keys(std::int64_t end, std::int64_t tokens) {
  std::int64_t const rounded = (end + tile_rows - 1) / tile_rows * tile_rows;
  return rounded < tokens ? rounded : tokens;
}

/// `e0` and, where terms come in pairs, `e1` as rows `i` and `i + 1` of a right operand whose rows of words begin at
/// `to`.
template <Words W>
TUTTI_KERNEL_INLINE void store_words(float* to, std::int64_t row, std::int64_t i, F32 e0, F32 e1) {
  if constexpr (W == Words::pairs) store(to + i / 2 * row, ::tutti::isa::TUTTI_ISA::pack_bfloat16(e0, e1));
  else store(to + i * row, rounded_as<W, float>(e0));
}

/// Queries [begin, end) of one head. q, k, v and out are the head's first rows; q and out may be the same memory. With
/// a `window` a query sees that many keys, itself included, 0: all before it. Source: Dao et al. 2022 (arXiv
/// 2205.14135).
template <Words W>
TUTTI_TARGET void attention_queries_of(std::int64_t tokens, std::int64_t d, float scaling, float const* q,
                                       std::int64_t q_row, float const* k, float const* v, std::int64_t row, float* out,
                                       std::int64_t out_row, float* lse, std::int64_t begin, std::int64_t end,
                                       std::int64_t window, float* scratch) {
  constexpr std::int64_t width = tile_columns, each = terms_of(W);
  std::int64_t const dims = (d + row_step - 1) / row_step * row_step;
  // Blocks of keys before the first one that a query sees are left out; all positions count from there.
  auto const first_block = [window](std::int64_t query) {
    std::int64_t const key = window > 0 && query >= window ? query - window + 1 : 0;
    return key / attention_keys * attention_keys;
  };
  if (std::int64_t const dropped = first_block(begin); dropped > 0) {
    tokens -= dropped, begin -= dropped, end -= dropped;
    q += dropped * q_row, out += dropped * out_row, k += dropped * row, v += dropped * row;
    if (lse != nullptr) lse += dropped;
  }
  std::int64_t const keys = visible_keys(end, tokens);
  std::int64_t const words = words_for(W, d);
  float* const scores = scratch;
  float* const result = scores + attention_keys * width;
  float* const query = result + dims * width;
  float* const packed_k = query + words * width;
  float* const packed_v = packed_k + packed_rows_size(keys, words);
  pack_rows<W>(packed_k, k, row, 1, keys, d);
  for (std::int64_t first = 0; first < keys; first += attention_keys) {
    std::int64_t const n = keys - first < attention_keys ? keys - first : attention_keys;
    pack_rows<W>(packed_v + first / each * dims, v + first * row, 1, row, d, n);
  }
  // With a window a query may see no key of its first block: the level must be a number then.
  F32 const low = set(window > 0 ? -1e30f : -std::numeric_limits<float>::infinity());
  for (std::int64_t q0 = begin; q0 < end; q0 += width) {
    std::int64_t const start = first_block(q0);
    int const queries = static_cast<int>(end - q0 < width ? end - q0 : width);
    int const padded = panel_columns(queries), vectors = padded / F32::lanes;
    std::int64_t const last = visible_keys(q0 + queries, tokens);
    pack_panel<W>(query, q + q0 * q_row, 1, q_row, queries, d);
    F32 highest[tile_vectors], total[tile_vectors];
    for (int x = 0; x < tile_vectors; ++x) highest[x] = low, total[x] = zero();
    for (std::int64_t first = start; first < last; first += attention_keys) {
      std::int64_t const n = last - first < attention_keys ? last - first : attention_keys;
      std::int64_t const depth = keys - first < attention_keys ? keys - first : attention_keys;
      multiply_panel<W>(words, packed_k + first * words, words, n, query, padded, padded, scores, width, scaling, 0.0f);
      // Keys before a query's window: invisible to the lanes behind.
      std::int64_t const behind = window > 0 ? q0 + queries - window - first : 0;
      for (std::int64_t i = 0; i < (behind < n ? behind : n); ++i)
        for (int x = 0; x < vectors; ++x) {
          float* const p = scores + i * width + x * F32::lanes;
          F32 const reach = set(static_cast<float>(first + i + window - 1 - q0));
          store(p, select(less(reach, lane_numbers(x)), low, load(p)));
        }
      // Keys after the first query: invisible to some lanes.
      for (std::int64_t i = q0 + 1 > first ? q0 + 1 - first : 0; i < n; ++i)
        for (int x = 0; x < vectors; ++x) {
          float* const p = scores + i * width + x * F32::lanes;
          store(p, select(less(lane_numbers(x), set(static_cast<float>(first + i - q0))), low, load(p)));
        }
      for (int x = 0; x < vectors; ++x) {
        float* const p = scores + x * F32::lanes;
        F32 top[2] = {highest[x], highest[x]};
        std::int64_t i = 0;
        for (; i + 2 <= n; i += 2) {
          top[0] = max(top[0], load(p + i * width));
          top[1] = max(top[1], load(p + i * width + width));
        }
        if (i < n) top[0] = max(top[0], load(p + i * width));
        top[0] = max(top[0], top[1]);
        F32 const correction = exp(sub(highest[x], top[0]));
        highest[x] = top[0];
        F32 part = zero();
        for (i = 0; i < n; i += each) {
          F32 const e = exp(sub(load(p + i * width), top[0]));
          part = add(part, e);
          F32 next = zero();
          if (each == 2 && i + 1 < n) {
            next = exp(sub(load(p + i * width + width), top[0]));
            part = add(part, next);
          }
          store_words<W>(p, width, i, e, next);
        }
        total[x] = fma(total[x], correction, part);
        if (first > start)
          for (std::int64_t c = 0; c < d; ++c) {
            float* const o = result + c * width + x * F32::lanes;
            store(o, mul(load(o), correction));
          }
      }
      multiply_panel<W>(words_for(W, n), packed_v + first / each * dims, words_for(W, depth), d, scores, width, padded,
                        result, width, 1.0f, first == start ? 0.0f : 1.0f);
    }
    for (int x = 0; x < vectors; ++x) {
      F32 const inverse = div(set(1.0f), total[x]);
      for (std::int64_t c = 0; c < d; ++c) {
        float* const o = result + c * width + x * F32::lanes;
        store(o, mul(load(o), inverse));
      }
      int const left = queries - x * F32::lanes;
      if (lse != nullptr && left > 0)
        store_partial(lse + q0 + x * F32::lanes, add(highest[x], log(total[x])), left < F32::lanes ? left : F32::lanes);
    }
    store_transposed(result, width, d, queries, out + q0 * out_row, out_row);
  }
}

/// The gradient of the queries of `group` heads that share keys and values. Pointers are the first rows of the first of
/// them, d floats apart, and of their keys and values; dq, dk, dv have rows of `row` floats.
template <Words W>
TUTTI_TARGET void attention_gradient_of(std::int64_t tokens, std::int64_t d, std::int64_t group, float scaling,
                                        float const* q, float const* k, float const* v, float* dq, float* dk, float* dv,
                                        std::int64_t row, float const* out, float const* dout, std::int64_t out_row,
                                        float const* lse, float* scratch) {
  constexpr std::int64_t width = tile_columns, each = terms_of(W);
  constexpr std::int64_t across = (attention_queries + width - 1) / width * width;  // queries of a block, padded
  std::int64_t const dims = (d + row_step - 1) / row_step * row_step, columns = (d + width - 1) / width * width;
  std::int64_t const words = words_for(W, d);
  auto const take = [&scratch](std::int64_t floats) {
    float* const part = scratch;
    scratch += (floats + 15) / 16 * 16;
    return part;
  };
  float* const p = take(attention_keys * across);
  float* const ds = take(attention_keys * across);
  float* const ds_words = W == Words::plain ? ds : take(attention_keys * across);
  float* const packed_p = take(packed_rows_size(attention_keys, words_for(W, across)));
  float* const result = take(dims * across);
  float* const query_panels = take(words * across);
  float* const dout_panels = take(words * across);
  float* const query_rows = take(columns * words_for(W, across));
  float* const dout_rows = take(columns * words_for(W, across));
  float* const level = take(across);
  float* const delta = take(across);
  float* const packed_k = take(packed_rows_size(tokens, words));
  float* const packed_v = take(packed_rows_size(tokens, words));
  float* const packed_kt = take(dims * words_for(W, tokens) + F32::lanes);
  pack_rows<W>(packed_k, k, row, 1, tokens, d);
  pack_rows<W>(packed_v, v, row, 1, tokens, d);
  for (std::int64_t first = 0; first < tokens; first += attention_keys) {
    std::int64_t const n = tokens - first < attention_keys ? tokens - first : attention_keys;
    pack_rows<W>(packed_kt + first / each * dims, k + first * row, 1, row, d, n);
  }
  for (std::int64_t member = 0; member < group; ++member, q += d, dq += d, out += d, dout += d, lse += tokens) {
    for (std::int64_t q0 = 0; q0 < tokens; q0 += attention_queries) {
      std::int64_t const queries = tokens - q0 < attention_queries ? tokens - q0 : attention_queries;
      std::int64_t const query_words = words_for(W, queries);
      for (std::int64_t j = 0; j < across; ++j) {
        // Padding takes part in sums over queries: an infinite level makes its probabilities zero.
        level[j] = j < queries ? lse[q0 + j] : std::numeric_limits<float>::infinity();
        delta[j] = 0;
        if (j >= queries) continue;
        F32 product = zero();
        for (std::int64_t c = 0; c < d; c += F32::lanes) {
          int const n = static_cast<int>(d - c < F32::lanes ? d - c : F32::lanes);
          product = fma(load_partial(dout + (q0 + j) * out_row + c, n), load_partial(out + (q0 + j) * out_row + c, n),
                        product);
        }
        delta[j] = sum(product);
      }
      for (std::int64_t j = 0; j < queries; j += width) {
        std::int64_t const n = queries - j < width ? queries - j : width;
        pack_panel<W>(query_panels + j * words, q + (q0 + j) * row, 1, row, n, d);
        pack_panel<W>(dout_panels + j * words, dout + (q0 + j) * out_row, 1, out_row, n, d);
      }
      pack_columns<W>(query_rows, q + q0 * row, row, 1, d, queries);
      pack_columns<W>(dout_rows, dout + q0 * out_row, out_row, 1, d, queries);
      std::int64_t const last = visible_keys(q0 + queries, tokens);
      for (std::int64_t first = 0; first < last; first += attention_keys) {
        std::int64_t const n = last - first < attention_keys ? last - first : attention_keys;
        std::int64_t const depth = tokens - first < attention_keys ? tokens - first : attention_keys;
        for (std::int64_t j = 0; j < queries; j += width) {
          int const padded = panel_columns(queries - j);
          multiply_panel<W>(words, packed_k + first * words, words, n, query_panels + j * words, padded, padded, p + j,
                            across, scaling, 0.0f);
          multiply_panel<W>(words, packed_v + first * words, words, n, dout_panels + j * words, padded, padded, ds + j,
                            across, 1.0f, 0.0f);
          for (int x = 0; x < padded / F32::lanes; ++x) {
            std::int64_t const at = j + x * F32::lanes;
            F32 const high = load(level + at), mean = load(delta + at), factor = set(scaling);
            for (std::int64_t i = 0; i < n; i += each) {
              F32 slopes[2] = {zero(), zero()};
              TUTTI_UNROLL
              for (int t = 0; t < each; ++t) {
                if (i + t >= n) break;
                float* const score = p + (i + t) * across + at;
                float* const slope = ds + (i + t) * across + at;
                F32 e = exp(sub(load(score), high));
                if (first + i + t > q0 + j)
                  e = select(less(lane_numbers(x), set(static_cast<float>(first + i + t - q0 - j))), zero(), e);
                slopes[t] = mul(mul(e, factor), sub(load(slope), mean));
                store(score, e);
                store(slope, slopes[t]);
              }
              if (W != Words::plain) store_words<W>(ds_words + at, across, i, slopes[0], slopes[1]);
            }
          }
          multiply_panel<W>(words_for(W, n), packed_kt + first / each * dims, words_for(W, depth), d, ds_words + j,
                            across, padded, result + j, across, 1.0f, first == 0 ? 0.0f : 1.0f);
        }
        // Keys that earlier queries, or an earlier head of the group, saw have a sum already, the others get their
        // first term.
        std::int64_t const seen = member > 0 ? n : q0 == 0 ? 0 : visible_keys(q0, tokens) - first;
        std::int64_t const old = seen < 0 ? 0 : seen < n ? seen : n;
        for (int which = 0; which < 2; ++which) {
          pack_rows<W>(packed_p, which == 0 ? p : ds, across, 1, n, queries);
          float const* const rows = which == 0 ? dout_rows : query_rows;
          float* const target = (which == 0 ? dv : dk) + first * row;
          for (std::int64_t c = 0; c < d; c += width) {
            int const cols = static_cast<int>(d - c < width ? d - c : width);
            float const* const right = rows + c * query_words;
            int const right_row = panel_columns(cols);
            multiply_panel<W>(query_words, packed_p, query_words, old, right, right_row, cols, target + c, row, 1.0f,
                              1.0f);
            multiply_panel<W>(query_words, packed_p + old * query_words, query_words, n - old, right, right_row, cols,
                              target + old * row + c, row, 1.0f, 0.0f);
          }
        }
      }
      store_transposed(result, across, d, queries, dq + q0 * row, row);
    }
  }
}

/// The same with plain and with rounded operands: see TUTTI_DISPATCH and TUTTI_DISPATCH_ALL.
template <class... Arguments>
void attention_plain(Arguments... arguments) {
  attention_queries_of<Words::plain>(arguments...);
}
template <class... Arguments>
void attention_rounded(Arguments... arguments) {
  attention_queries_of<words_of(Product::bfloat16)>(arguments...);
}
template <class... Arguments>
void attention_gradient_plain(Arguments... arguments) {
  attention_gradient_of<Words::plain>(arguments...);
}
template <class... Arguments>
void attention_gradient_rounded(Arguments... arguments) {
  attention_gradient_of<words_of(Product::bfloat16)>(arguments...);
}

/// Rows of d numbers, one after another, as lanes of them are read.
template <class T>
struct LaneRows {
  T const* rows;
  std::int64_t d;
  TUTTI_KERNEL_INLINE T const* row(std::int64_t number) const { return rows + number * d; }
  TUTTI_KERNEL_INLINE static F32 lanes(T const* row, std::int64_t c) { return load(row + c); }
  TUTTI_KERNEL_INLINE static F32 lanes(T const* row, std::int64_t c, int n) { return load_partial(row + c, n); }
};
/// The same of whole blocks, whose elements lanes divide.
template <>
struct LaneRows<blocks::Q8_0> {
  blocks::Q8_0 const* rows;
  std::int64_t d;
  TUTTI_KERNEL_INLINE blocks::Q8_0 const* row(std::int64_t number) const { return rows + number * (d / 32); }
  TUTTI_KERNEL_INLINE static F32 lanes(blocks::Q8_0 const* row, std::int64_t c) {
    return mul(to_f32(load(row[c / 32].q + c % 32)), set(row[c / 32].d));
  }
  TUTTI_KERNEL_INLINE static F32 lanes(blocks::Q8_0 const* row, std::int64_t c, int) { return lanes(row, c); }
};

/// One query against `length` positions: bandwidth decides, so keys and values are read once, as they lie.
template <class T>
TUTTI_TARGET void attention_decode_head(std::int64_t length, std::int64_t d, float scaling, float const* q,
                                        T const* key_rows, T const* value_rows, float* out) {
  LaneRows<T> const keys{key_rows, d}, values{value_rows, d};
  constexpr int block = 64;
  float highest = -std::numeric_limits<float>::infinity(), total = 0;
  for (std::int64_t first = 0; first < length; first += block) {
    int const n = static_cast<int>(length - first < block ? length - first : block);
    float scores[block];
    float top = highest;
    for (int t = 0; t < n; ++t) {
      T const* const key = keys.row(first + t);
      F32 product = zero();
      std::int64_t c = 0;
      for (; c + F32::lanes <= d; c += F32::lanes) product = fma(load(q + c), keys.lanes(key, c), product);
      if (c < d)
        product = fma(load_partial(q + c, static_cast<int>(d - c)),
                      keys.lanes(key, c, static_cast<int>(d - c)), product);
      scores[t] = sum(product) * scaling;
      top = scores[t] > top ? scores[t] : top;
    }
    F32 sums = zero();
    for (int t = 0; t < n; t += F32::lanes) {
      int const m = n - t < F32::lanes ? n - t : F32::lanes;
      F32 const e = exp(sub(load_partial(scores + t, m), set(top)));
      store_partial(scores + t, e, m);
      sums = add(sums, load_partial(scores + t, m));
    }
    float const correction = highest == top ? 1.0f : sum(exp(set(highest - top))) / static_cast<float>(F32::lanes);
    total = total * correction + sum(sums);
    highest = top;
    for (std::int64_t c = 0; c < d; c += F32::lanes) {
      int const m = static_cast<int>(d - c < F32::lanes ? d - c : F32::lanes);
      F32 value = first == 0 ? zero() : mul(load_partial(out + c, m), set(correction));
      for (int t = 0; t < n; ++t) value = fma(set(scores[t]), values.lanes(values.row(first + t), c, m), value);
      store_partial(out + c, value, m);
    }
  }
  F32 const inverse = set(total > 0 ? 1.0f / total : 0.0f);
  for (std::int64_t c = 0; c < d; c += F32::lanes) {
    int const m = static_cast<int>(d - c < F32::lanes ? d - c : F32::lanes);
    F32 const value = length == 0 ? zero() : load_partial(out + c, m);
    store_partial(out + c, mul(value, inverse), m);
  }
}
