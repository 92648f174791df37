// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention over a cache of keys and values on processors.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/block_layout.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/core/list.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cached_attention.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/rotary.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace tutti::kernel::cpu {
/// Numbers in a T of a cache.
template <class T>
inline constexpr std::int64_t elements_in = 1;
template <>
inline constexpr std::int64_t elements_in<blocks::Q8_0> = 32;
}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_BODY <tutti/kernel/cpu/cached_attention.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void check_cached(CachedAttention const& a) {
  auto const refuse = [](ErrorKind kind, std::string const& why) { throw Error(kind, "cached_attention", why); };
  if (a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads != 0)
    refuse(ErrorKind::invalid_argument,
           concat(a.heads, " heads cannot share ", a.kv_heads, " heads of keys and values evenly"));
  if (a.head_size < 1 || a.pairs < 0 || 2 * a.pairs > a.head_size)
    refuse(ErrorKind::invalid_argument, concat("heads of ", a.head_size, " elements have no ", a.pairs, " pairs"));
  if (a.window < 0) refuse(ErrorKind::invalid_argument, concat("a window of ", a.window, " keys"));
  if (a.cache != BlockType::f32 && a.cache != BlockType::f16 && a.cache != BlockType::bf16 &&
      a.cache != BlockType::q8_0)
    refuse(ErrorKind::invalid_argument, concat("the cache is ", name(a.cache), ", none of F32, F16, BF16 and Q8_0"));
  if (a.head_size % block_elements(a.cache) != 0)
    refuse(ErrorKind::invalid_argument, concat("heads of ", a.head_size, " elements have no whole blocks of ",
                                               name(a.cache), ". Keep the cache in F16"));
  for (std::int64_t row = 0; row < a.rows; ++row) {
    if (a.slot[row] == -1) continue;
    if (a.slot[row] < 0 || a.slot[row] >= a.slots)
      refuse(ErrorKind::out_of_range, concat("row ", row, " is of sequence ", a.slot[row], " of ", a.slots));
    if (a.position[row] < 0 || a.position[row] >= a.capacity)
      refuse(ErrorKind::out_of_range,
             concat("row ", row, " is at position ", a.position[row], ", and the cache has ", a.capacity));
  }
}

/// The cache as memory of T.
template <class T>
struct CacheOf {
  CachedAttention const& a;

  T const* keys(std::int64_t row, std::int64_t head) const { return static_cast<T const*>(a.keys) + at(row, head); }
  T const* values(std::int64_t row, std::int64_t head) const { return static_cast<T const*>(a.values) + at(row, head); }
  std::int64_t at(std::int64_t row, std::int64_t head) const {
    return (a.slot[row] * a.kv_heads + head / (a.heads / a.kv_heads)) * a.capacity * columns();
  }
  /// Ts of a row.
  std::int64_t columns() const { return a.head_size / elements_in<T>; }

  void store(exec::Isa isa, std::int64_t row, float* turned) const {
    TUTTI_DISPATCH(isa, store_cached_row<T>(a, row, turned));
  }
  static void widen(exec::Isa isa, T const* from, float* to, std::int64_t count) {
    TUTTI_DISPATCH(isa, widen_rows(from, to, count));
  }
  void single(exec::Isa isa, std::int64_t row, std::int64_t head, float* query) const {
    std::int64_t const length = a.position[row] + 1, d = a.head_size;
    std::int64_t const first = a.window > 0 ? std::max<std::int64_t>(0, length - a.window) : 0;
    float* const out = a.out + (row * a.heads + head) * d;
    std::memcpy(query, out, static_cast<std::size_t>(d) * sizeof(float));
    single_head(isa, length - first, query, keys(row, head) + first * columns(), values(row, head) + first * columns(),
                out);
  }
  void single_head(exec::Isa isa, std::int64_t length, float const* query, T const* k, T const* v, float* out) const {
    TUTTI_DISPATCH(isa, attention_decode_head(length, a.head_size, a.scale, query, k, v, out));
  }
  /// Rows [begin, end) of one sequence, whose positions follow one another.
  void several(exec::Isa isa, std::int64_t begin, std::int64_t end, std::int64_t head, float* scratch) const {
    std::int64_t const d = a.head_size, out_row = a.heads * d;
    std::int64_t const from = a.position[begin], to = from + end - begin;
    float const *k = nullptr, *v = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      k = keys(begin, head), v = values(begin, head);
    } else {
      std::int64_t const seen = a.window > 0 ? std::max<std::int64_t>(0, from - a.window + 1) : 0;
      float *const wide_k = scratch, *const wide_v = wide_k + to * d;
      scratch = wide_v + to * d;
      widen(isa, keys(begin, head) + seen * columns(), wide_k + seen * d, (to - seen) * d);
      widen(isa, values(begin, head) + seen * columns(), wide_v + seen * d, (to - seen) * d);
      // What lies before is packed with its block and then not looked at, but must be numbers.
      std::memset(wide_k, 0, static_cast<std::size_t>(seen * d) * sizeof(float));
      std::memset(wide_v, 0, static_cast<std::size_t>(seen * d) * sizeof(float));
      k = wide_k, v = wide_v;
    }
    float* const out = a.out + (begin * a.heads + head) * d - from * out_row;  // of position 0, if it were a row
    tiled(isa, to, out, out_row, k, v, from, scratch);
  }
  void tiled(exec::Isa isa, std::int64_t to, float* out, std::int64_t out_row, float const* k, float const* v,
             std::int64_t from, float* scratch) const {
    TUTTI_DISPATCH(isa, attention_plain(to, a.head_size, a.scale, out, out_row, k, v, a.head_size, out, out_row,
                                        static_cast<float*>(nullptr), from, to, a.window, scratch));
  }
};

/// Rows that are worked on together: of one sequence, one after another, at most 96; or one alone.
struct CachedRun {
  std::int64_t begin, end;
};
/// Fewer are worked on one by one: what is foretold and read in one pass has the bits of single tokens, as in products.
inline constexpr std::int64_t least_tiled_rows = block_product_few_rows + 1;

template <class T>
void cached_attention_of(exec::Context& context, CachedAttention const& a) {
  CacheOf<T> const cache{a};
  std::int64_t const d = a.head_size;
  std::size_t const head_bytes = static_cast<std::size_t>(d) * sizeof(float);
  // Every thread stores its part of the rows, then all of them attend.
  context.parallel_for(a.rows, std::max<std::int64_t>(1, 16384 / ((a.heads + 2 * a.kv_heads) * d)),
                       [&](std::int64_t begin, std::int64_t end) {
                         List<float> turned(static_cast<std::size_t>(d));
                         for (std::int64_t row = begin; row < end; ++row) {
                           if (a.slot[row] < 0)
                             std::memset(a.out + row * a.heads * d, 0, static_cast<std::size_t>(a.heads) * head_bytes);
                           else cache.store(context.isa(), row, turned.data());
                         }
                       });
  List<CachedRun> runs;
  std::int64_t longest = 0, work = 0;
  for (std::int64_t row = 0; row < a.rows;) {
    std::int64_t end = row + 1;
    if (a.slot[row] < 0) {
      row = end;
      continue;
    }
    while (end < a.rows && end - row < 96 && a.slot[end] == a.slot[row] && a.position[end] == a.position[end - 1] + 1)
      ++end;
    if (end - row < least_tiled_rows) end = row + 1;
    else longest = std::max<std::int64_t>(longest, a.position[end - 1] + 1);
    work += (end - row) * (a.position[end - 1] + 1) * a.heads * d;
    runs.push_back({row, end});
    row = end;
  }
  std::int64_t const items = static_cast<std::int64_t>(runs.size()) * a.heads;
  std::size_t const bytes =
      head_bytes +
      static_cast<std::size_t>(longest == 0 ? 0 : attention_scratch(longest, d) + 2 * longest * d) * sizeof(float);
  std::atomic<std::int64_t> next{0};
  auto const attend = [&](int thread) {
    float* const query = static_cast<float*>(context.scratch(thread, bytes));
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      // Late rows see most keys: they go first.
      CachedRun const run = runs[static_cast<std::size_t>(static_cast<std::int64_t>(runs.size()) - 1 - item / a.heads)];
      std::int64_t const head = item % a.heads;
      if (run.end - run.begin == 1) cache.single(context.isa(), run.begin, head, query);
      else cache.several(context.isa(), run.begin, run.end, head, query);
    }
  };
  // A thread is worth waking for about 32 K products.
  if (items <= 1 || work < 32768) attend(0);
  else context.parallel(attend);
}

}  // namespace detail

/// Contract: tutti/kernel/cached_attention.hpp.
TUTTI_INLINE void cached_attention(exec::Context& context, CachedAttention const& a) {
  detail::check_cached(a);
  if (a.rows <= 0) return;
  if (a.cache == BlockType::f32) detail::cached_attention_of<float>(context, a);
  else if (a.cache == BlockType::f16) detail::cached_attention_of<float16>(context, a);
  else if (a.cache == BlockType::bf16) detail::cached_attention_of<bfloat16>(context, a);
  else detail::cached_attention_of<blocks::Q8_0>(context, a);
}

}  // namespace tutti::kernel::cpu

#endif
