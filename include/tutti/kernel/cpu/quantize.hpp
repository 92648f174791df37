// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rows of float32 to int8 on processors.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/quantize.hpp>

#include <algorithm>
#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/quantize.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

inline void quantize_part(exec::Isa isa, QuantizeRows const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, quantize_rows(args, begin, end));
}
/// Contract: tutti/kernel/quantize.hpp.
inline void quantize_rows(exec::Context& context, QuantizeRows const& args) {
  std::int64_t const grain = 16384 / std::max<std::int64_t>(args.k, 1) + 1;
  context.parallel_for(args.m, grain, [&](std::int64_t begin, std::int64_t end) {
    quantize_part(context.isa(), args, begin, end);
  });
}

}  // namespace tutti::kernel::cpu
