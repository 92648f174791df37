// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Token embedding with learned positions on the CPU.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/embedding.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/embedding.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void embedding_part(exec::Isa isa, Embedding const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, embedding_rows(args, begin, end));
}
inline void embedding_table_part(exec::Isa isa, EmbeddingGradient const& args, std::int64_t first, std::int64_t last) {
  TUTTI_DISPATCH(isa, embedding_table_gradient(args, first, last));
}
inline void embedding_position_part(exec::Isa isa, EmbeddingGradient const& args, std::int64_t begin,
                                    std::int64_t end) {
  TUTTI_DISPATCH(isa, embedding_position_gradient(args, begin, end));
}

inline void check_tokens(char const* operation, std::int32_t const* tokens, std::int64_t batch,
                         std::int64_t tokens_per_row, std::int64_t vocabulary) {
  for (std::int64_t index = 0; index < batch * tokens_per_row; ++index)
    if (tokens[index] < 0 || tokens[index] >= vocabulary)
      throw Error(ErrorKind::out_of_range, operation,
                  "token " + std::to_string(tokens[index]) + " of sequence " + std::to_string(index / tokens_per_row) +
                      ", position " + std::to_string(index % tokens_per_row) + ", is outside the vocabulary of " +
                      std::to_string(vocabulary) + ". Tokenize the text with the model's own vocabulary");
}

}  // namespace detail

/// See kernel::Embedding.
TUTTI_INLINE void embedding(exec::Context& context, Embedding const& args) {
  detail::check_tokens("embedding", args.tokens, args.batch, args.tokens_per_row, args.vocabulary);
  if (args.channels <= 0) return;
  std::int64_t const grain = std::max<std::int64_t>(1, 4096 / args.channels);
  context.parallel_for(args.batch * args.tokens_per_row, grain, [&](std::int64_t begin, std::int64_t end) {
    detail::embedding_part(context.isa(), args, begin, end);
  });
}

/// See kernel::EmbeddingGradient. Threads own channels, so equal tokens never meet and no order is lost.
TUTTI_INLINE void embedding_gradient(exec::Context& context, EmbeddingGradient const& args) {
  detail::check_tokens("embedding_gradient", args.tokens, args.batch, args.tokens_per_row, args.vocabulary);
  if (args.channels <= 0) return;
  if (args.dtable != nullptr) {
    if (args.zero_table)
      context.parallel_for(args.vocabulary * args.channels, 16384, [&](std::int64_t begin, std::int64_t end) {
        std::memset(args.dtable + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
      });
    context.parallel_for(args.channels, 16, [&](std::int64_t first, std::int64_t last) {
      detail::embedding_table_part(context.isa(), args, first, last);
    });
  }
  if (args.dpositions != nullptr) {
    std::int64_t const grain = std::max<std::int64_t>(1, 4096 / args.channels);
    context.parallel_for(args.position_rows, grain, [&](std::int64_t begin, std::int64_t end) {
      detail::embedding_position_part(context.isa(), args, begin, end);
    });
  }
}

}  // namespace tutti::kernel::cpu

#endif
