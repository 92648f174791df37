// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The gate of SwiGLU feed-forward layers on the CPU.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/swiglu.hpp>

#include <algorithm>
#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/swiglu.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void swiglu_part(exec::Isa isa, SwiGlu const& args, std::int64_t row, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, swiglu_row(args, row, begin, end));
}
inline void swiglu_gradient_part(exec::Isa isa, SwiGluGradient const& args, std::int64_t row, std::int64_t begin,
                                 std::int64_t end) {
  TUTTI_DISPATCH(isa, swiglu_gradient_row(args, row, begin, end));
}

/// f(row, begin, end) for pieces of rows: a single row, as when decoding, is divided among threads too.
template <class F>
void for_each_piece(exec::Context& context, std::int64_t rows, std::int64_t channels, F f) {
  if (channels <= 0) return;
  context.parallel_for(rows * channels, 4096, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      std::int64_t const row = begin / channels, first = begin % channels;
      std::int64_t const count = std::min(channels - first, end - begin);
      f(row, first, first + count);
      begin += count;
    }
  });
}

}  // namespace detail

/// See kernel::SwiGlu. Cost: 12 bytes of memory traffic per element.
inline void swiglu(exec::Context& context, SwiGlu const& args) {
  detail::for_each_piece(context, args.rows, args.channels,
                         [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                           detail::swiglu_part(context.isa(), args, row, begin, end);
                         });
}

/// See kernel::SwiGluGradient. Cost: 20 bytes of memory traffic per element.
inline void swiglu_gradient(exec::Context& context, SwiGluGradient const& args) {
  if (args.dgate == nullptr && args.dup == nullptr) return;
  detail::for_each_piece(context, args.rows, args.channels,
                         [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                           detail::swiglu_gradient_part(context.isa(), args, row, begin, end);
                         });
}

}  // namespace tutti::kernel::cpu
