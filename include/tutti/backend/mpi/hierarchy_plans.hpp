// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What each rank does of a collective on several nodes, by kind: parts on its node, and an exchange between nodes.

#include <tutti/backend/mpi/hierarchy.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::mpi {

inline void Hierarchy::plan(Call& c) {
  c.wide = comm::reduces(c.whole.kind) ? widening_of(c.whole.dtype, c.whole.reduction.op) : Widening();
  switch (c.whole.kind) {
    case comm::Kind::barrier:
      c.gathers.push_back({c.whole});
      if (local_rank_ == 0) exchange(c, c.whole);
      c.spreads.push_back({c.whole});
      break;
    case comm::Kind::broadcast: plan_broadcast(c); break;
    case comm::Kind::all_gather: plan_all_gather(c); break;
    case comm::Kind::reduce_scatter: plan_reduce_scatter(c); break;
    default:
      if (c.wide || (equal_ && c.whole.block_bytes() > small_bytes)) plan_divided(c);
      else plan_led(c);
  }
}

inline comm::Collective Hierarchy::part_of(Call const& c, comm::Kind kind, int root) const {
  comm::Collective part = c.whole;
  part.kind = kind;
  part.root = root;
  return part;
}

inline comm::shared::Part Hierarchy::reduce_scatter_part(Call const& c, void const* from, void* to,
                                                         std::int64_t count) const {
  comm::shared::Part part{with(part_of(c, comm::Kind::reduce_scatter), from, to)};
  part.call.count = count;
  if (c.wide) {
    part.call.reduction.fold = c.wide.fold;
    part.result_bytes = sizeof(float);
  }
  return part;
}

inline void Hierarchy::plan_broadcast(Call& c) {
  Place const root = place(c.whole.root);
  void* held = nullptr;  // where this rank of the column has it
  if (local_rank_ == root.local_rank) {
    std::int64_t const bytes = c.whole.block_bytes();
    held = out_of_reach(c.whole.to, bytes) ? scratch(c.scratch, bytes, 1) : c.whole.to;
    if (node_ == root.node && held != c.whole.to) std::memcpy(held, c.whole.from, static_cast<std::size_t>(bytes));
    exchange(c, with(part_of(c, comm::Kind::broadcast, root.node), held, held));
  }
  auto const spread = with(part_of(c, comm::Kind::broadcast, root.local_rank), held, c.whole.to);
  (node_ == root.node ? c.gathers : c.spreads).push_back({spread});
}

inline void Hierarchy::plan_led(Call& c) {
  bool const all = c.whole.kind == comm::Kind::all_reduce;
  Place const root = all ? Place() : place(c.whole.root);
  bool const leads = local_rank_ == root.local_rank;
  bool const keeps = all || (leads && node_ == root.node);  // elsewhere nothing of the user's may be written
  std::int64_t const bytes = c.whole.block_bytes();
  void* const result = !leads                                                ? nullptr
                       : keeps && !(all && out_of_reach(c.whole.to, bytes)) ? c.whole.to
                                                                             : scratch(c.scratch, bytes, 1);
  c.gathers.push_back(
      {with(part_of(c, comm::Kind::reduce, root.local_rank), in_reach(c, c.whole.from, bytes), result)});
  if (leads) exchange(c, with(part_of(c, c.whole.kind, all ? -1 : root.node), result, keeps ? result : nullptr));
  if (all) c.spreads.push_back({with(part_of(c, comm::Kind::broadcast, 0), leads ? result : nullptr, c.whole.to)});
}

inline void Hierarchy::plan_divided(Call& c) {
  bool const all = c.whole.kind == comm::Kind::all_reduce;
  Place const root = all ? Place() : place(c.whole.root);
  std::int64_t const extent = c.whole.count;
  std::int64_t const element = c.whole.element_bytes();
  std::int64_t const line = element < 64 ? 64 / element : 1;
  std::int64_t count = ((extent + local_size_ - 1) / local_size_ + line - 1) / line * line;
  if (count > extent) count = extent;
  std::byte* const part = scratch(c.scratch, count, element);
  std::byte* const sum = c.wide ? scratch(c.wide_scratch, count, sizeof(float)) : part;
  bool const keeps = all || node_ == root.node;

  auto gather = reduce_scatter_part(c, in_reach(c, c.whole.from, c.whole.block_bytes()), sum, count);
  gather.extent = extent;
  c.gathers.push_back(gather);
  auto between = with(part_of(c, c.whole.kind, all ? -1 : root.node), sum, keeps ? sum : nullptr);
  between.count = count;
  exchange_wide(c, between, keeps ? count : 0);
  c.widened = reinterpret_cast<float const*>(sum);
  c.narrowed = part;
  if (!keeps) return;
  comm::shared::Part spread{with(
      part_of(c, all ? comm::Kind::all_gather : comm::Kind::gather, all ? -1 : root.local_rank), part, c.whole.to)};
  spread.call.count = count;
  spread.extent = extent;
  c.spreads.push_back(spread);
}

inline void Hierarchy::plan_all_gather(Call& c) {
  std::int64_t const block = c.whole.block_bytes();
  std::byte* const blocks = scratch(c.scratch, nodes_, block);
  exchange(c, with(c.whole, c.whole.from, blocks));
  for (int n = 0; n < nodes_; ++n)
    c.spreads.push_back(
        {with(c.whole, blocks + n * block, static_cast<std::byte*>(c.whole.to) + n * local_size_ * block)});
}

inline void Hierarchy::plan_reduce_scatter(Call& c) {
  std::int64_t const block = c.whole.block_bytes();
  std::int64_t const element = c.wide ? sizeof(float) : c.whole.element_bytes();
  std::byte* const sums = scratch(c.scratch, nodes_ * c.whole.count, element);
  auto const* const from = static_cast<std::byte const*>(in_reach(c, c.whole.from, nodes_ * local_size_ * block));
  for (int n = 0; n < nodes_; ++n)
    c.gathers.push_back(reduce_scatter_part(c, from + n * local_size_ * block, sums + n * c.whole.count * element,
                                            c.whole.count));
  std::byte* const result = c.wide ? scratch(c.wide_scratch, c.whole.count, element) : nullptr;
  exchange_wide(c, with(c.whole, sums, c.wide ? result : c.whole.to), c.whole.count);
  c.widened = reinterpret_cast<float const*>(result);
  c.narrowed = c.whole.to;
}

}  // namespace tutti::mpi
