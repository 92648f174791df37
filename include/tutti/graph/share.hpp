// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Values share memory: what would be copied into an output, a bucket, a stack or a field is computed there, and a
/// result takes the place of an operand that nobody reads again. Runs last; it changes where values lie and never their
/// order.

#include <tutti/core/list.hpp>
#include <tutti/graph/rewrite.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::graph::lowering {

/// Drops copies whose source can be written at its destination in the first place.
class CopyElision {
 public:
  explicit CopyElision(StepList& list) : list_(list), at_(list), overwriter_(list.buffers.size(), -1) {
    for (std::size_t id = 0; id < list.buffers.size(); ++id)
      if (list.buffers[id].over >= 0)
        overwriter_[static_cast<std::size_t>(list.buffers[id].over)] = static_cast<BufferId>(id);
    fields_.resize(list.buffers.size());
    for (std::int32_t s = 0; s < at_.size(); ++s)
      for (Ref const& ref : at_.step(s).reads)
        if (ref && list_[ref.buffer].pool == Pool::state && list_[ref.buffer].over < 0)
          fields_[static_cast<std::size_t>(ref.buffer)].push_back({s, ref.offset, ref.offset + ref.span_bytes()});
  }

  void run() {
    for (std::int32_t s = 0; s < at_.size(); ++s) {
      if (at_.step(s).kind != StepKind::copy || at_.step(s).reads.size() != at_.step(s).writes.size()) continue;
      at_.detach(s);
      Step step = std::move(at_.step(s));
      std::size_t kept = 0;
      for (std::size_t i = 0; i < step.reads.size(); ++i) {
        if (place(step.reads[i], step.writes[i], s)) continue;
        step.reads[kept] = step.reads[i];
        step.writes[kept++] = step.writes[i];
      }
      step.reads.resize(kept);
      step.writes.resize(kept);
      if (kept == 0) {
        at_.kill(s);
      } else {
        at_.step(s) = std::move(step);
        at_.attach(s);
      }
    }
    at_.compact();
  }

 private:
  struct FieldRead {
    std::int32_t step;
    std::int64_t begin, end;
  };

  bool place(Ref const& from, Ref const& to, std::int32_t copy) {
    Buffer& source = list_[from.buffer];
    if (source.pool != Pool::arena || source.part_of >= 0 || source.over >= 0 || from.dtype != to.dtype) return false;
    if (!at_.is_whole(from) || !to.contiguous() || source.bytes == 0) return false;
    std::int32_t const writer = at_.writer(from.buffer);
    if (writer < 0) return false;
    Buffer const& target = list_[to.buffer];
    if (target.over >= 0) {
      if (target.pool != Pool::state || !field_is_free(from, target, writer)) return false;
      source.pool = Pool::state;
      source.over = target.over;
      source.offset = target.offset + to.offset;
      return true;
    }
    // Reduced in place later: the value must be needed no longer by then.
    BufferId const overwriter = overwriter_[static_cast<std::size_t>(to.buffer)];
    if (overwriter >= 0 && at_.last_reader(from.buffer) > copy) return false;
    source.part_of = to.buffer;
    source.offset = to.offset;
    return true;
  }

  /// Whether nobody reads the field's old value once `writer` has written; the writer itself only where it may work in
  /// place.
  bool field_is_free(Ref const& from, Buffer const& target, std::int32_t writer) {
    std::int64_t const begin = target.offset, end = target.offset + target.bytes;
    for (FieldRead const& read : fields_[static_cast<std::size_t>(target.over)]) {
      if (read.end <= begin || read.begin >= end || read.step < writer) continue;
      if (read.step > writer) return false;
      Step const& step = at_.step(writer);
      for (std::size_t i = 0; i < step.reads.size(); ++i) {
        Ref const& operand = step.reads[i];
        if (!operand || operand.buffer != target.over || operand.offset + operand.span_bytes() <= begin ||
            operand.offset >= end)
          continue;
        bool const aligned = operand.contiguous() && operand.offset == begin && operand.bytes() == target.bytes &&
                             operand.dtype == from.dtype;
        bool const in_place = step.kind == StepKind::elementwise ||
                              (step.kind == StepKind::gemm && i == 3 && step.writes[0].buffer == from.buffer);
        if (!aligned || !in_place) return false;
      }
    }
    return true;
  }

  StepList& list_;
  Rewriter at_;
  List<BufferId> overwriter_;
  List<List<FieldRead>> fields_;  // per field: who reads which bytes
};

/// (write, read) operands that the kernel allows to be the same memory. A product whose residual is its result sums in
/// another order: it is left out, so that a result's bits do not depend on who else reads an operand.
inline std::span<std::array<std::size_t, 2> const> in_place_operands(StepKind kind) {
  using Pair = std::array<std::size_t, 2>;
  static constexpr Pair first[] = {{0, 0}}, embedding[] = {{0, 2}}, norm[] = {{0, 5}, {0, 0}},
                        rms[] = {{0, 4}, {0, 0}}, gate[] = {{0, 0}, {0, 1}, {1, 0}}, loss[] = {{1, 0}};
  switch (kind) {
    case StepKind::layer_norm: case StepKind::rms_norm: case StepKind::rotary: case StepKind::scatter_add:
    case StepKind::cumsum: case StepKind::dropout:
    case StepKind::dynamic_update_slice: return first;
    case StepKind::embedding_gradient: return embedding;
    case StepKind::layer_norm_gradient: return norm;
    case StepKind::rms_norm_gradient: return rms;
    case StepKind::swiglu: case StepKind::swiglu_gradient: return gate;
    case StepKind::cross_entropy: case StepKind::linear_cross_entropy: return loss;
    default: return {};
  }
}

inline void share_in_place(StepList& list) {
  std::size_t const count = list.buffers.size();
  List<std::int32_t> last(count, -1);
  for (std::size_t s = 0; s < list.steps.size(); ++s)
    for (Ref const& ref : list.steps[s].reads)
      if (ref) last[static_cast<std::size_t>(ref.buffer)] = static_cast<std::int32_t>(s);
  // A part is needed as long as the whole, and a whole as long as any part.
  List<std::int32_t> needed = last;
  for (std::size_t id = 0; id < count; ++id)
    for (BufferId up = list.buffers[id].part_of; up >= 0; up = list[up].part_of) {
      needed[id] = std::max(needed[id], last[static_cast<std::size_t>(up)]);
      needed[static_cast<std::size_t>(up)] = std::max(needed[static_cast<std::size_t>(up)], last[id]);
    }
  List<bool> taken(count), has_parts(count);
  for (Buffer const& buffer : list.buffers) {
    if (buffer.over >= 0) taken[static_cast<std::size_t>(buffer.over)] = true;
    if (buffer.part_of >= 0) has_parts[static_cast<std::size_t>(buffer.part_of)] = true;
  }
  auto whole = [&](Ref const& ref) {
    return ref && ref.offset == 0 && ref.contiguous() && ref.bytes() == list[ref.buffer].bytes && ref.bytes() > 0;
  };

  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    Step const& step = list.steps[s];
    auto share = [&](Ref const& write, Ref const& read) {
      if (!whole(write) || !whole(read) || write.bytes() != read.bytes() || write.dtype != read.dtype) return false;
      Buffer& to = list[write.buffer];
      Buffer& from = list[read.buffer];
      std::size_t const id = static_cast<std::size_t>(read.buffer);
      if (taken[id] || needed[id] != static_cast<std::int32_t>(s)) return false;
      for (Ref const& other : step.reads)  // another view of the same value would see it change
        if (other && &other != &read && other.buffer == read.buffer &&
            !(step.kind == StepKind::elementwise && whole(other)))
          return false;
      Pool const pool = list[list.home(read.buffer).root].pool;
      if (pool != Pool::arena && pool != Pool::communicator) return false;
      if (to.part_of < 0 && to.over < 0 && !has_parts[static_cast<std::size_t>(write.buffer)]) {
        to.over = read.buffer;
        to.offset = 0;
        taken[id] = true;
        return true;
      }
      // The result has its place already (a bucket, an output): let the operand be there before it.
      if (to.part_of >= 0 && from.part_of < 0 && from.over < 0 && !has_parts[id]) {
        from.over = to.part_of;
        from.offset = to.offset;
        taken[id] = true;
        return true;
      }
      return false;
    };
    if (step.kind == StepKind::elementwise) {
      List<bool> used(step.reads.size());
      for (Ref const& write : step.writes)
        for (std::size_t i = 0; i < step.reads.size(); ++i)
          if (!used[i] && share(write, step.reads[i])) {
            used[i] = true;
            break;
          }
    } else {
      for (auto const& [write, read] : in_place_operands(step.kind))
        if (write < step.writes.size() && read < step.reads.size() && step.writes[write] && step.reads[read] &&
            share(step.writes[write], step.reads[read]))
          break;
    }
  }
}

}  // namespace tutti::graph::lowering
