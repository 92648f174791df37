// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The contender `naive` among threads: publish the buffers' addresses, std::barrier, every rank computes all of its
/// own result from the others' buffers, std::barrier. What anyone would write first.

#include "round.hpp"

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace tutti::bench {

/// Shared by the ranks.
struct NaiveGroup {
  explicit NaiveGroup(int ranks) : barrier(ranks), published(static_cast<std::size_t>(ranks)) {}
  std::barrier<> barrier;
  struct alignas(64) Place {
    Operands operands;
  };
  std::vector<Place> published;
  std::byte* from(int rank) const { return published[static_cast<std::size_t>(rank)].operands.from; }
};

/// out[i] = element i of all ranks' inputs, combined; 16-bit floats are accumulated in float.
template <class T, class Combine>
void naive_reduce(NaiveGroup const& group, Case const& c, std::int64_t first, std::int64_t count, T* out,
                  Combine combine) {
  using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  for (std::int64_t i = 0; i < count; ++i) {
    A result = static_cast<A>(reinterpret_cast<T const*>(group.from(0))[first + i]);
    for (int r = 1; r < c.ranks; ++r)
      result = combine(result, static_cast<A>(reinterpret_cast<T const*>(group.from(r))[first + i]));
    if (c.op == Op::avg) result = static_cast<A>(result / static_cast<A>(c.ranks));
    out[i] = static_cast<T>(result);
  }
}
inline void naive_reduce(NaiveGroup const& group, Case const& c, std::int64_t first, std::int64_t count,
                         std::byte* out) {
  with_type(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const to = reinterpret_cast<T*>(out);
    using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
    switch (c.op) {
      case Op::sum:
      case Op::avg: return naive_reduce(group, c, first, count, to, [](A a, A b) { return static_cast<A>(a + b); });
      case Op::prod: return naive_reduce(group, c, first, count, to, [](A a, A b) { return static_cast<A>(a * b); });
      case Op::min: return naive_reduce(group, c, first, count, to, [](A a, A b) { return b < a ? b : a; });
      case Op::max: return naive_reduce(group, c, first, count, to, [](A a, A b) { return a < b ? b : a; });
    }
  });
}

/// `scratch` holds in-place results until all ranks have read the inputs.
inline Call naive_call(NaiveGroup& group, std::vector<std::byte>& scratch, Case const& c, int rank) {
  bool const receives = (c.collective != Collective::reduce && c.collective != Collective::gather) || rank == c.root;
  bool const overwrites_inputs = c.in_place && receives &&
                                 (c.collective == Collective::reduce || c.collective == Collective::all_reduce ||
                                  c.collective == Collective::all_to_all);
  if (overwrites_inputs) scratch.resize(static_cast<std::size_t>(c.bytes()));
  return [&group, &scratch, c, rank, receives, overwrites_inputs](Slot const& slot) {
    if (c.collective == Collective::barrier) return group.barrier.arrive_and_wait();
    Operands const mine = operands(c, slot, rank);
    group.published[static_cast<std::size_t>(rank)].operands = mine;
    group.barrier.arrive_and_wait();
    auto const copy = [](std::byte* to, std::byte const* from, std::int64_t bytes) {
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    };
    std::int64_t const block = c.block * c.element();
    std::byte* const to = overwrites_inputs ? scratch.data() : mine.to;
    if (receives) switch (c.collective) {
        case Collective::barrier: break;
        case Collective::broadcast: copy(to, group.from(c.root), block); break;
        case Collective::scatter: copy(to, group.from(c.root) + rank * block, block); break;
        case Collective::send_recv: copy(to, group.from((rank + c.ranks - 1) % c.ranks), block); break;
        case Collective::gather:
        case Collective::all_gather:
          for (int r = 0; r < c.ranks; ++r) copy(to + r * block, group.from(r), block);
          break;
        case Collective::all_to_all:
          for (int r = 0; r < c.ranks; ++r) copy(to + r * block, group.from(r) + rank * block, block);
          break;
        case Collective::reduce:
        case Collective::all_reduce: naive_reduce(group, c, 0, c.block, to); break;
        case Collective::reduce_scatter: naive_reduce(group, c, rank * c.block, c.block, to); break;
      }
    group.barrier.arrive_and_wait();
    if (overwrites_inputs) copy(mine.to, to, c.bytes());
  };
}

}  // namespace tutti::bench
