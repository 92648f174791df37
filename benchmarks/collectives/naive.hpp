// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The contender `naive` among threads: publish the buffers' addresses, std::barrier, every rank computes all of its
/// own result from the others' buffers, std::barrier. What anyone would write first.

#include "halo.hpp"
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

/// out[i] = element i of the first ranks' inputs, of all their rows, combined; 16-bit floats are accumulated in float.
template <class T, class Combine>
void naive_reduce(NaiveGroup const& group, Case const& c, int ranks, std::int64_t first, std::int64_t count, T* out,
                  Combine combine) {
  using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  int const rows = c.collective == Collective::all_reduce_contributions ? static_cast<int>(contributions) : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    A result = static_cast<A>(reinterpret_cast<T const*>(group.from(0))[first + i]);
    for (int input = 1; input < ranks * rows; ++input)
      result = combine(result, static_cast<A>(reinterpret_cast<T const*>(
                                   group.from(input / rows))[input % rows * c.block + first + i]));
    if (c.op == Op::avg) result = static_cast<A>(result / static_cast<A>(ranks * rows));
    out[i] = static_cast<T>(result);
  }
}
inline void naive_reduce(NaiveGroup const& group, Case const& c, int ranks, std::int64_t first, std::int64_t count,
                         std::byte* out) {
  with_type(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const to = reinterpret_cast<T*>(out);
    using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
    switch (c.op) {
      case Op::sum:
      case Op::callable:
      case Op::avg:
        return naive_reduce(group, c, ranks, first, count, to, [](A a, A b) { return static_cast<A>(a + b); });
      case Op::prod:
        return naive_reduce(group, c, ranks, first, count, to, [](A a, A b) { return static_cast<A>(a * b); });
      case Op::min: return naive_reduce(group, c, ranks, first, count, to, [](A a, A b) { return b < a ? b : a; });
      case Op::max: return naive_reduce(group, c, ranks, first, count, to, [](A a, A b) { return a < b ? b : a; });
    }
  });
}

/// `scratch` holds in-place results until all ranks have read the inputs.
inline Call naive_call(NaiveGroup& group, std::vector<std::byte>& scratch, Case const& c, int rank) {
  if (c.collective == Collective::ping_pong || (c.collective == Collective::halo && !has_halo(c.dtype))) return {};
  bool const only_root = c.collective == Collective::reduce || c.collective == Collective::gather ||
                         c.collective == Collective::gather_v;
  bool const receives = (!only_root || rank == c.root) && !(c.collective == Collective::exscan && rank == 0);
  bool const overwrites_inputs = c.in_place && receives &&
                                 (c.collective == Collective::reduce || c.collective == Collective::all_reduce ||
                                  c.collective == Collective::all_to_all || c.collective == Collective::all_to_all_v ||
                                  c.collective == Collective::scan || c.collective == Collective::exscan);
  if (overwrites_inputs) scratch.resize(static_cast<std::size_t>(c.bytes()));
  return [&group, &scratch, c, rank, receives, overwrites_inputs](Slot const& slot) {
    if (c.collective == Collective::barrier) return group.barrier.arrive_and_wait();
    Operands const mine = operands(c, slot, rank);
    group.published[static_cast<std::size_t>(rank)].operands = mine;
    group.barrier.arrive_and_wait();
    auto const copy = [](std::byte* to, std::byte const* from, std::int64_t bytes) {
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    };
    std::int64_t const element = c.element(), block = c.block * element;
    std::byte* const to = overwrites_inputs ? scratch.data() : mine.to;
    if (receives) switch (c.collective) {
        case Collective::barrier:
        case Collective::ping_pong: break;
        case Collective::halo: {
          std::int64_t const row = c.block * element, rows = c.grid_rows() * row;
          if (rank > 0) copy(mine.from - row, group.from(rank - 1) + rows - row, row);
          if (rank < c.ranks - 1) copy(mine.from + rows, group.from(rank + 1), row);
          if (c.dtype == DType::float64) step_of_heat<double>(c, mine, rank);
          else step_of_heat<float>(c, mine, rank);
          break;
        }
        case Collective::broadcast: copy(to, group.from(c.root), block); break;
        case Collective::scatter: copy(to, group.from(c.root) + rank * block, block); break;
        case Collective::put:
        case Collective::send_recv: copy(to, group.from((rank + c.ranks - 1) % c.ranks), block); break;
        case Collective::gather:
        case Collective::all_gather:
          for (int r = 0; r < c.ranks; ++r) copy(to + r * block, group.from(r), block);
          break;
        case Collective::all_to_all:
          for (int r = 0; r < c.ranks; ++r) copy(to + r * block, group.from(r) + rank * block, block);
          break;
        case Collective::reduce:
        case Collective::all_reduce_contributions:
        case Collective::all_reduce: naive_reduce(group, c, c.ranks, 0, c.block, to); break;
        case Collective::reduce_scatter: naive_reduce(group, c, c.ranks, rank * c.block, c.block, to); break;
        case Collective::scan: naive_reduce(group, c, rank + 1, 0, c.block, to); break;
        case Collective::exscan: naive_reduce(group, c, rank, 0, c.block, to); break;
        case Collective::reduce_scatter_v:
          naive_reduce(group, c, c.ranks, c.before(rank), c.rows(rank), to);
          break;
        case Collective::gather_v:
        case Collective::all_gather_v:
          for (int r = 0; r < c.ranks; ++r) copy(to + c.before(r) * element, group.from(r), c.rows(r) * element);
          break;
        case Collective::scatter_v:
          copy(to, group.from(c.root) + c.before(rank) * element, c.rows(rank) * element);
          break;
        case Collective::all_to_all_v:
          for (int r = 0; r < c.ranks; ++r)
            copy(to + c.exchanged_before(rank, r) * element, group.from(r) + c.exchanged_before(r, rank) * element,
                 c.exchanged(r, rank) * element);
          break;
      }
    group.barrier.arrive_and_wait();
    if (overwrites_inputs) copy(mine.to, to, c.bytes());
  };
}

}  // namespace tutti::bench
