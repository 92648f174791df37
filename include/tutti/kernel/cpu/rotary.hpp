// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rotary position embedding on the CPU.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/rotary.hpp>

#include <algorithm>
#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/rotary.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void rotary_part(exec::Isa isa, Rotary const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, rotary_rows(args, begin, end));
}

inline void check_rotary(Rotary const& args) {
  if (args.head_size % 2 != 0)
    throw Error(ErrorKind::invalid_argument, "rotary",
                concat("heads of ", args.head_size, " elements do not make pairs. The head size must be even"));
  if (args.rows > 0 && args.tokens < 1 && args.row_positions == nullptr)
    throw Error(ErrorKind::invalid_argument, "rotary",
                concat("sequences of ", args.tokens, " rows. Set `tokens` to the rows of one sequence"));
  auto const require = [&](std::int64_t row, std::int64_t position) {
    if (position < 0 || position >= args.positions)
      throw Error(ErrorKind::out_of_range, "rotary",
                  concat("row ", row, " is at position ", position, ", but the table has ", args.positions,
                         ". Make a table of as many positions as the longest sequence"));
  };
  if (args.row_positions != nullptr) {
    for (std::int64_t row = 0; row < args.rows; ++row) require(row, args.row_positions[row]);
  } else if (args.rows > 0) {
    std::int64_t const last = std::min(args.rows, args.tokens) - 1;
    require(0, args.first_position);
    require(last, args.first_position + last);
  }
}

}  // namespace detail

/// See kernel::Rotary. Cost: 8 bytes of memory traffic per element; the table's row serves every head.
inline void rotary(exec::Context& context, Rotary const& args) {
  detail::check_rotary(args);
  std::int64_t const columns = args.heads * args.head_size;
  if (columns <= 0) return;
  context.parallel_for(args.rows, detail::row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
    detail::rotary_part(context.isa(), args, begin, end);
  });
}

}  // namespace tutti::kernel::cpu
