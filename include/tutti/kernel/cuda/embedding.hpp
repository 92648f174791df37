// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Token embedding with learned positions on a GPU, and its gradient without atomic operations: tokens are sorted, so
/// the rows that belong to one row of the table are summed in one order.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/copy.hpp>
#include <tutti/kernel/cuda/cub.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/embedding.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

template <class T, class P>
struct EmbeddingRows {
  EmbeddingOf<T, P> op;
  ErrorWord* error;
};

/// One access of the result a thread.
template <class T, class P, int N>
__global__ void __launch_bounds__(256) embedding_rows(EmbeddingRows<T, P> const args) {
  begin_kernel();
  EmbeddingOf<T, P> const& op = args.op;
  std::int64_t const pieces = op.channels / N, all = op.batch * op.tokens_per_row * pieces;
  for (std::int64_t index = std::int64_t{blockIdx.x} * 256 + threadIdx.x; index < all;
       index += std::int64_t{gridDim.x} * 256) {
    std::int64_t const place = index / pieces, i = (index - place * pieces) * N;
    std::int32_t const token = op.tokens[place];
    float values[N] = {};
    if (token >= 0 && token < op.vocabulary) load(op.table + token * op.channels + i, values);
    else if (i == 0) report(args.error, Mistake::token, place, token);
    if (op.positions != nullptr) {
      float more[N];
      load(op.positions + place % op.tokens_per_row * op.channels + i, more);
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] += more[j];
    }
    store(op.out + place * op.channels + i, values);
  }
}

struct TokenKeys {
  std::int32_t const* tokens;
  std::int64_t count, vocabulary;
  std::uint32_t* keys;
  std::int32_t* places;
  ErrorWord* error;
};
/// What is outside the vocabulary sorts behind it.
template <class = void>
__global__ void __launch_bounds__(256) token_keys(TokenKeys const args) {
  begin_kernel();
  std::int64_t const place = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (place >= args.count) return;
  std::int32_t const token = args.tokens[place];
  bool const good = token >= 0 && token < args.vocabulary;
  if (!good) report(args.error, Mistake::token, place, token);
  args.keys[place] = static_cast<std::uint32_t>(good ? token : args.vocabulary);
  args.places[place] = static_cast<std::int32_t>(place);
}

inline constexpr int span_length = 32;  ///< sorted tokens of one block

template <class T>
struct EmbeddingSpans {
  EmbeddingGradientOf<T> op;
  std::uint32_t const* keys;   ///< sorted
  std::int32_t const* places;  ///< in the same order
  float* partial;              ///< (spans, 2, channels): of the run that began before the span; of the one that goes on
};

/// One block sums 32 sorted tokens: runs of equal tokens that lie inside go to the table, the two that cross the bounds
/// to `partial`. Eight rows in flight a thread: 128 bytes.
template <class T, int N>
__global__ void __launch_bounds__(256) embedding_spans(__grid_constant__ EmbeddingSpans<T> const args) {
  begin_kernel();
  constexpr int batch = 8;
  __shared__ std::uint32_t keys[span_length + 2];  // with the neighbours on both sides
  __shared__ std::int32_t places[span_length];
  EmbeddingGradientOf<T> const& op = args.op;
  std::int64_t const all = op.batch * op.tokens_per_row, begin = std::int64_t{blockIdx.x} * span_length;
  int const count = static_cast<int>(all - begin < span_length ? all - begin : span_length);
  std::uint32_t const outside = static_cast<std::uint32_t>(op.vocabulary), none = 0xffffffffu;
  for (int k = static_cast<int>(threadIdx.x); k < span_length + 2; k += static_cast<int>(blockDim.x)) {
    std::int64_t const at = begin + k - 1;
    keys[k] = at >= 0 && at < all ? args.keys[at] : none;
    if (k >= 1 && k <= span_length && at < all) places[k - 1] = args.places[at];
  }
  __syncthreads();
  for (std::int64_t i = std::int64_t{threadIdx.x} * N; i < op.channels; i += std::int64_t{blockDim.x} * N) {
    float sum[N] = {};
    bool began_here = keys[0] != keys[1];
    for (int first = 0; first < count; first += batch) {
      Bits<N, T> bits[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b)
        if (first + b < count) bits[b] = Bits<N, T>::of(op.dout + places[first + b] * op.channels + i);
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        int const k = first + b;
        if (k >= count || keys[k + 1] == outside) break;
        float values[N];
        bits[b].unpack(values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += values[j];
        bool const ends = keys[k + 2] != keys[k + 1];
        if (!ends && k + 1 < count) continue;
        if (began_here && ends) {
          float* const row = op.dtable + keys[k + 1] * op.channels + i;
          float before[N];
          load(row, before);
#pragma unroll
          for (int j = 0; j < N; ++j) sum[j] += before[j];
          store(row, sum);
        } else {
          store(args.partial + (std::int64_t{blockIdx.x} * 2 + (began_here ? 1 : 0)) * op.channels + i, sum);
        }
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] = 0;
        began_here = true;
      }
    }
  }
}

/// The block of the span in which a run begins that does not end there adds up what the next ones have of it.
template <class T, int N>
__global__ void __launch_bounds__(256) embedding_runs(__grid_constant__ EmbeddingSpans<T> const args) {
  begin_kernel();
  EmbeddingGradientOf<T> const& op = args.op;
  std::int64_t const all = op.batch * op.tokens_per_row, begin = std::int64_t{blockIdx.x} * span_length;
  std::int64_t const end = begin + span_length;
  if (end >= all) return;
  std::uint32_t const key = args.keys[end - 1];
  bool const began_before = begin > 0 && args.keys[begin - 1] == key;
  if (began_before || args.keys[end] != key || key == static_cast<std::uint32_t>(op.vocabulary)) return;
  std::int64_t low = blockIdx.x + 1,
               high = (all + span_length - 1) / span_length;  // the last span that begins with key
  while (high - low > 1) {
    std::int64_t const middle = (low + high) / 2;
    if (args.keys[middle * span_length] == key) low = middle;
    else high = middle;
  }
  for (std::int64_t i = std::int64_t{threadIdx.x} * N; i < op.channels; i += std::int64_t{blockDim.x} * N) {
    float sum[N], more[N];
    load(args.partial + (std::int64_t{blockIdx.x} * 2 + 1) * op.channels + i, sum);
#pragma unroll 4
    for (std::int64_t span = blockIdx.x + 1; span <= low; ++span) {
      load(args.partial + span * 2 * op.channels + i, more);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += more[j];
    }
    float* const row = op.dtable + key * op.channels + i;
    load(row, more);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += more[j];
    store(row, sum);
  }
}

/// One access of dpositions a thread; the sequences are added in their order, four in flight.
template <class T, int N>
__global__ void __launch_bounds__(256) embedding_positions(EmbeddingGradientOf<T> const op) {
  begin_kernel();
  std::int64_t const pieces = op.channels / N, all = op.position_rows * pieces;
  for (std::int64_t index = std::int64_t{blockIdx.x} * 256 + threadIdx.x; index < all;
       index += std::int64_t{gridDim.x} * 256) {
    std::int64_t const position = index / pieces, i = (index - position * pieces) * N;
    float sum[N] = {};
    if (position < op.tokens_per_row) {
#pragma unroll 4
      for (std::int64_t sequence = 0; sequence < op.batch; ++sequence) {
        float values[N];
        load(op.dout + (sequence * op.tokens_per_row + position) * op.channels + i, values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += values[j];
      }
    }
    store(op.dpositions + position * op.channels + i, sum);
  }
}

template <class T, int N>
void embedding_table_gradient(Context& context, EmbeddingGradientOf<T> const& args) {
  std::int64_t const count = args.batch * args.tokens_per_row, spans = (count + span_length - 1) / span_length;
  int const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(args.vocabulary)));
  // Four lists of words aligned to 256 bytes; behind them the sums take the place of the room for sorting.
  std::int64_t const list = (count + 63) / 64 * 64;
  auto const sort = [&](Room room, std::uint32_t* keys) {
    std::int64_t const step = keys == nullptr ? 0 : list;  // the question for the room touches no memory
    auto* const places = reinterpret_cast<std::int32_t*>(keys + 2 * step);
    return sort_pairs(context.stream(), room, keys, keys + step, places, places + step,
                      static_cast<std::int32_t>(count), bits);
  };
  std::size_t const room = sort({}, nullptr), sums = static_cast<std::size_t>(spans * 2 * args.channels) * 4,
                    lists = static_cast<std::size_t>(4 * list) * 4;
  auto* const keys = static_cast<std::uint32_t*>(context.scratch(lists + std::max(sums, room)));
  auto* const places = reinterpret_cast<std::int32_t*>(keys + 2 * list);
  launch_blocks(context, (count + 255) / 256, 256, token_keys<>,
                TokenKeys{args.tokens, count, args.vocabulary, keys, places, context.error_word()});
  sort({keys + 4 * list, room}, keys);
  EmbeddingSpans<T> const launch{args, keys + list, places + list, reinterpret_cast<float*>(keys + 4 * list)};
  std::int64_t const pieces = args.channels / N;
  int const threads = static_cast<int>(std::clamp<std::int64_t>((pieces + 31) / 32 * 32, 32, 256));
  launch_blocks(context, spans, threads, embedding_spans<T, N>, launch);
  if (spans > 1) launch_blocks(context, spans - 1, threads, embedding_runs<T, N>, launch);
}

}  // namespace detail

/// See kernel::Embedding.
/// Errors    a token outside the vocabulary is reported in the context's error word; it stands for zeros.
template <class T, class P>
void embedding(Context& context, EmbeddingOf<T, P> const& args) {
  std::int64_t const elements = args.batch * args.tokens_per_row * args.channels;
  if (elements <= 0) return;
  detail::EmbeddingRows<T, P> const rows{args, context.error_word()};
  constexpr int width = std::max(detail::vector_size<T>, detail::vector_size<P>);
  if (args.channels % width == 0 && detail::vectors_fit<T>(args.channels, {args.table, args.positions, args.out}))
    detail::launch_blocks(context, detail::access_blocks(elements / width), 256, detail::embedding_rows<T, P, width>,
                          rows);
  else
    detail::launch_blocks(context, detail::access_blocks(elements), 256, detail::embedding_rows<T, P, 1>, rows);
}

/// See kernel::EmbeddingGradient. Cost: one read of dout for the table and one for the positions; a read and a write
/// for each row of the table that occurs.
/// Errors    a token outside the vocabulary is reported in the context's error word; its row is left out.
template <class T>
void embedding_gradient(Context& context, EmbeddingGradientOf<T> const& args) {
  if (args.channels <= 0) return;
  constexpr int width = detail::vector_size<T>;
  bool const vectors = detail::vectors_fit<T>(args.channels, {args.dout, args.dtable, args.dpositions});
  if (args.dtable != nullptr) {
    if (args.zero_table) zero(context, args.dtable, args.vocabulary * args.channels);
    if (args.batch * args.tokens_per_row > 0) {
      if (vectors) detail::embedding_table_gradient<T, width>(context, args);
      else detail::embedding_table_gradient<T, 1>(context, args);
    }
  }
  if (args.dpositions != nullptr && args.position_rows > 0) {
    std::int64_t const elements = args.position_rows * args.channels;
    if (vectors)
      detail::launch_blocks(context, detail::access_blocks(elements / width), 256,
                            detail::embedding_positions<T, width>, args);
    else
      detail::launch_blocks(context, detail::access_blocks(elements), 256, detail::embedding_positions<T, 1>, args);
  }
}

}  // namespace tutti::kernel::cuda
