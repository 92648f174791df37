// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What one step does on processors at every run. The twin of tutti/graph/cuda/call.hpp.

#include <tutti/core/owner.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/operands.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tutti::graph::calls {

using exec::Context;
using Call = CallOn<Context>;

namespace detail {

template <class F>
Owner<Call> call(F f) {
  return call_on<Context>(std::move(f));
}

/// Copies what a step accumulates onto to its result, unless the planner made them one.
inline void start_from(Context& context, std::int64_t bytes, std::byte const* from, std::byte* to) {
  if (from == to || from == nullptr || to == nullptr) return;
  context.parallel_for(bytes, 65536, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace detail

}  // namespace tutti::graph::calls
