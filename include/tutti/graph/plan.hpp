// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The memory plan of a step list: which buffer lives where, from when to when. It is data: it prints, and `validate`
/// checks it by replaying the steps on a model of memory that knows nothing of how the plan was made.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::graph {

inline constexpr std::int64_t plan_alignment = 64;

struct MemoryPlan {
  struct Life {
    std::int32_t first = -1, last = -1;  ///< steps, both included; -1: never used
  };
  List<std::int64_t>
      offset;  ///< per buffer: bytes from the start of its pool, or from its root outside the two planned pools
  List<Life> life;            ///< per buffer that is a root
  std::int64_t arena_bytes = 0;
  std::int64_t communicator_bytes = 0;
  std::int64_t unshared_bytes = 0;   ///< what both pools would need if nothing were reused
};

constexpr std::int64_t align_up(std::int64_t bytes) noexcept {
  return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment;
}
constexpr bool is_planned(Pool pool) noexcept { return pool == Pool::arena || pool == Pool::communicator; }

namespace detail {

/// Best fit, the largest first: among the gaps between buffers alive at the same time the smallest that is large
/// enough.
inline std::int64_t place(List<BufferId> const& order, StepList const& list, MemoryPlan& plan) {
  struct Placed {
    std::int64_t begin = 0, end = 0;
    BufferId id = -1;
  };
  List<Placed> placed;  // sorted by begin
  std::int64_t total = 0;
  auto life = [&](BufferId id) { return plan.life[static_cast<std::size_t>(id)]; };
  for (BufferId id : order) {
    std::int64_t const bytes = align_up(list[id].bytes);
    std::int64_t best = -1, best_gap = 0, end = 0;
    for (Placed const& other : placed) {
      if (life(other.id).last < life(id).first || life(id).last < life(other.id).first) continue;
      std::int64_t const gap = other.begin - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, other.end);
    }
    if (best < 0) best = end;
    plan.offset[static_cast<std::size_t>(id)] = best;
    total = std::max(total, best + bytes);
    Placed const entry{best, best + bytes, id};
    placed.push_back(entry);
    for (std::size_t i = placed.size() - 1; i > 0 && entry.begin < placed[i - 1].begin; --i)
      std::swap(placed[i], placed[i - 1]);
  }
  return total;
}

}  // namespace detail

/// Cost  quadratic in the number of buffers, once per program.
inline MemoryPlan plan_memory(StepList const& list) {
  MemoryPlan plan;
  std::size_t const count = list.buffers.size();
  plan.offset.assign(count, 0);
  plan.life.assign(count, {});
  List<StepList::Home> homes(count);
  for (std::size_t id = 0; id < count; ++id) homes[id] = list.home(static_cast<BufferId>(id));
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    auto use = [&](Ref const& ref) {
      if (!ref) return;
      auto& life = plan.life[static_cast<std::size_t>(homes[static_cast<std::size_t>(ref.buffer)].root)];
      if (life.first < 0) life.first = static_cast<std::int32_t>(s);
      life.last = static_cast<std::int32_t>(s);
    };
    for (Ref const& ref : list.steps[s].reads) use(ref);
    for (Ref const& ref : list.steps[s].writes) use(ref);
  }
  for (Pool pool : {Pool::arena, Pool::communicator}) {
    List<BufferId> order;
    for (std::size_t id = 0; id < count; ++id)
      if (list.buffers[id].pool == pool && homes[id].root == static_cast<BufferId>(id) && plan.life[id].first >= 0)
        order.push_back(static_cast<BufferId>(id));
    order.stable_sort([&](BufferId a, BufferId b) { return list[a].bytes > list[b].bytes; });
    for (BufferId id : order) plan.unshared_bytes += align_up(list[id].bytes);
    (pool == Pool::arena ? plan.arena_bytes : plan.communicator_bytes) = detail::place(order, list, plan);
  }
  for (std::size_t id = 0; id < count; ++id) {
    auto const [root, offset] = homes[id];
    if (root != static_cast<BufferId>(id)) plan.offset[id] = plan.offset[static_cast<std::size_t>(root)] + offset;
  }
  return plan;
}

namespace detail {

/// Who wrote each byte last: disjoint intervals of one address space.
class Ownership {
 public:
  void write(std::int64_t begin, std::int64_t end, BufferId owner) {
    if (begin >= end) return;
    List<Piece> pieces;  // in order, as before
    std::size_t i = 0;
    for (; i < pieces_.size() && pieces_[i].end <= begin; ++i) pieces.push_back(pieces_[i]);
    if (i < pieces_.size() && pieces_[i].begin < begin) pieces.push_back({pieces_[i].begin, begin, pieces_[i].owner});
    pieces.push_back({begin, end, owner});
    for (; i < pieces_.size(); ++i)
      if (pieces_[i].end > end) pieces.push_back({std::max(pieces_[i].begin, end), pieces_[i].end, pieces_[i].owner});
    pieces_ = std::move(pieces);
  }
  /// Calls f(owner) for every piece of [begin, end), with -1 for bytes that nobody wrote.
  template <class F>
  void read(std::int64_t begin, std::int64_t end, F&& f) const {
    std::int64_t at = begin;
    for (Piece const& piece : pieces_) {
      if (piece.end <= at) continue;
      if (piece.begin >= end) break;
      if (piece.begin > at) f(BufferId{-1});
      f(piece.owner);
      at = piece.end;
    }
    if (at < end) f(BufferId{-1});
  }

 private:
  struct Piece {
    std::int64_t begin = 0, end = 0;
    BufferId owner = -1;
  };
  List<Piece> pieces_;
};

}  // namespace detail

/// Replays the steps: every read must find, in every byte, the value that it names, in memory that the pool has.
/// Errors  internal, naming step and buffer.
inline void validate(StepList const& list, MemoryPlan const& plan) {
  List<detail::Ownership> spaces(2 + list.buffers.size());  // 0 arena, 1 communicator, 2 + root otherwise
  auto fail = [&](std::size_t s, BufferId id, std::string const& why) {
    throw Error(ErrorKind::internal, "graph::validate",
                "step " + std::to_string(s) + " (" + std::string(name(list.steps[s].kind)) + ") and buffer " +
                    std::to_string(id) + ": " + why);
  };
  auto space_of = [&](BufferId id) -> std::size_t {
    BufferId const root = list.home(id).root;
    Pool const pool = list[root].pool;
    return pool == Pool::arena ? 0 : pool == Pool::communicator ? 1 : 2 + static_cast<std::size_t>(root);
  };
  auto at = [&](BufferId id) { return plan.offset[static_cast<std::size_t>(id)]; };
  List<List<BufferId>> parts(list.buffers.size());
  for (std::size_t id = 0; id < list.buffers.size(); ++id) {
    Buffer const& buffer = list.buffers[id];
    if (buffer.part_of >= 0) parts[static_cast<std::size_t>(buffer.part_of)].push_back(static_cast<BufferId>(id));
    bool const brings_value = buffer.pool == Pool::state || buffer.pool == Pool::input;
    if (brings_value && buffer.part_of < 0 && buffer.over < 0)
      spaces[2 + id].write(0, buffer.bytes, static_cast<BufferId>(id));
  }
  auto check_bounds = [&](std::size_t s, Ref const& ref) {
    if (ref.offset < 0 || ref.offset + ref.span_bytes() > list[ref.buffer].bytes)
      fail(s, ref.buffer, "the reference leaves the buffer");
    BufferId const root = list.home(ref.buffer).root;
    std::int64_t const limit = list[root].pool == Pool::arena          ? plan.arena_bytes
                               : list[root].pool == Pool::communicator ? plan.communicator_bytes
                                                                       : list[root].bytes;
    if (at(ref.buffer) < 0 || at(ref.buffer) + ref.offset + ref.span_bytes() > limit)
      fail(s, ref.buffer, "it lies outside its pool");
  };
  // A value is there if its own writer, or the writer of one of its parts, wrote every byte last.
  auto is_within = [&](BufferId inner, BufferId outer) {
    while (inner >= 0 && inner != outer) inner = list[inner].part_of;
    return inner == outer;
  };
  auto check_read = [&](auto& self, std::size_t s, BufferId id, std::int64_t begin, std::int64_t end) -> void {
    auto const& children = parts[static_cast<std::size_t>(id)];
    if (!children.empty() && list[id].over < 0) {  // composed of parts; what lies between them is padding
      for (BufferId child : children) {
        std::int64_t const from = std::max(begin, at(child)), to = std::min(end, at(child) + list[child].bytes);
        if (from < to) self(self, s, child, from, to);
      }
      return;
    }
    spaces[space_of(id)].read(begin, end, [&](BufferId owner) {
      if (owner < 0) fail(s, id, "it is read before it is written");
      if (!is_within(owner, id) && !is_within(id, owner))
        fail(s, id, "its memory was overwritten by buffer " + std::to_string(owner) + " while it was alive");
    });
  };
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    Step const& step = list.steps[s];
    for (Ref const& ref : step.reads) {
      if (!ref) continue;
      check_bounds(s, ref);
      std::int64_t const begin = at(ref.buffer) + ref.offset;
      if (ref.span_bytes() > 0) check_read(check_read, s, ref.buffer, begin, begin + ref.span_bytes());
    }
    for (Ref const& ref : step.writes) {
      if (!ref) continue;
      check_bounds(s, ref);
      Buffer const& buffer = list[ref.buffer];
      auto& space = spaces[space_of(ref.buffer)];
      bool keeps = step.kind == StepKind::all_reduce_wait;
      for (Ref const& read : step.reads) keeps |= read && buffer.over >= 0 && read.buffer == buffer.over;
      if (keeps)
        space.write(at(ref.buffer), at(ref.buffer) + buffer.bytes, ref.buffer);
      else
        space.write(at(ref.buffer) + ref.offset, at(ref.buffer) + ref.offset + ref.span_bytes(), ref.buffer);
    }
  }
  for (Entry const& output : list.outputs) {
    if (output.buffer < 0 || list[output.buffer].bytes == 0) continue;
    std::size_t const last = list.steps.empty() ? 0 : list.steps.size() - 1;
    if (!list.steps.empty())
      check_read(check_read, last, output.buffer, at(output.buffer), at(output.buffer) + list[output.buffer].bytes);
  }
}

}  // namespace tutti::graph
