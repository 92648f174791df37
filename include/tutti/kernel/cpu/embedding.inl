// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Embedding, stamped per instruction set.

/// Tokens [begin, end) in row-major order of (b, t).
TUTTI_TARGET inline void embedding_rows(Embedding const& args, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  for (std::int64_t token = begin; token < end; ++token) {
    float const* const row = args.table + args.tokens[token] * n;
    float* const out = args.out + token * n;
    if (args.positions == nullptr) {
      __builtin_memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
      continue;
    }
    float const* const position = args.positions + token % args.tokens_per_row * n;
    std::int64_t i = 0;
    for (; i + width <= n; i += width) store(out + i, add(load(row + i), load(position + i)));
    if (i < n) {
      int const rest = static_cast<int>(n - i);
      store_partial(out + i, add(load_partial(row + i, rest), load_partial(position + i, rest)), rest);
    }
  }
}

/// to[i] += from[i].
TUTTI_TARGET inline void accumulate_row(float* to, float const* from, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t i = 0;
  for (; i + width <= n; i += width) store(to + i, add(load(to + i), load(from + i)));
  if (i < n) {
    int const rest = static_cast<int>(n - i);
    store_partial(to + i, add(load_partial(to + i, rest), load_partial(from + i, rest)), rest);
  }
}

/// Channels [first, last) of every token's row, in the order of (b, t).
TUTTI_TARGET inline void embedding_table_gradient(EmbeddingGradient const& args, std::int64_t first,
                                                  std::int64_t last) {
  std::int64_t const count = args.batch * args.tokens_per_row;
  for (std::int64_t token = 0; token < count; ++token)
    accumulate_row(args.dtable + args.tokens[token] * args.channels + first, args.dout + token * args.channels + first,
                   last - first);
}

/// Positions [begin, end).
TUTTI_TARGET inline void embedding_position_gradient(EmbeddingGradient const& args, std::int64_t begin,
                                                     std::int64_t end) {
  std::int64_t const n = args.channels;
  for (std::int64_t position = begin; position < end; ++position) {
    float* const to = args.dpositions + position * n;
    __builtin_memset(to, 0, static_cast<std::size_t>(n) * sizeof(float));
    if (position >= args.tokens_per_row) continue;
    for (std::int64_t sequence = 0; sequence < args.batch; ++sequence)
      accumulate_row(to, args.dout + (sequence * args.tokens_per_row + position) * n, n);
  }
}
