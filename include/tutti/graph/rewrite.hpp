// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What passes over step lists share: who writes and who reads each buffer, kept up to date while steps are merged and
/// moved.

#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::graph::lowering {

/// Steps are addressed by their position. Merging empties a position; `compact` removes the empty ones.
class Rewriter {
 public:
  explicit Rewriter(StepList& steps)
      : list(steps), dead_(steps.steps.size()), writer_(steps.buffers.size(), -1), readers_(steps.buffers.size()) {
    for (std::int32_t s = 0; s < size(); ++s) attach(s);
  }

  StepList& list;

  std::int32_t size() const noexcept { return static_cast<std::int32_t>(list.steps.size()); }
  Step& step(std::int32_t s) { return list.steps[static_cast<std::size_t>(s)]; }
  bool dead(std::int32_t s) const { return dead_[static_cast<std::size_t>(s)]; }
  /// -1 for what comes from outside.
  std::int32_t writer(BufferId id) const { return writer_[static_cast<std::size_t>(id)]; }
  /// A step appears once for every operand that reads the buffer.
  List<std::int32_t> const& readers(BufferId id) const { return readers_[static_cast<std::size_t>(id)]; }
  std::int32_t last_reader(BufferId id) const {
    std::int32_t last = -1;
    for (std::int32_t reader : readers(id)) last = std::max(last, reader);
    return last;
  }
  bool read_only_by(BufferId id, std::int32_t s) const { return readers(id).size() == 1 && readers(id)[0] == s; }
  /// Whether everybody who reads what step `s` writes comes at or after `position`.
  bool may_sink(std::int32_t s, std::int32_t position) {
    for (Ref const& write : step(s).writes) {
      if (!write) continue;
      for (std::int32_t reader : readers(write.buffer))
        if (reader < position) return false;
    }
    return true;
  }

  /// Around a change of a step: detach, change, attach.
  void detach(std::int32_t s) {
    for (Ref const& ref : step(s).reads)
      if (ref) {
        bool found = false;  // one for each operand
        readers_[static_cast<std::size_t>(ref.buffer)].erase_if(
            [&](std::int32_t reader) { return reader == s && !std::exchange(found, true); });
      }
    for (Ref const& ref : step(s).writes)
      if (ref) writer_[static_cast<std::size_t>(ref.buffer)] = -1;
  }
  void attach(std::int32_t s) {
    for (Ref const& ref : step(s).reads)
      if (ref) readers_[static_cast<std::size_t>(ref.buffer)].push_back(s);
    for (Ref const& ref : step(s).writes)
      if (ref) writer_[static_cast<std::size_t>(ref.buffer)] = s;
  }
  /// For a detached step.
  void kill(std::int32_t s) {
    dead_[static_cast<std::size_t>(s)] = true;
    step(s) = Step{};
  }
  void compact() {
    List<Step> kept;
    for (std::int32_t s = 0; s < size(); ++s)
      if (!dead(s)) kept.push_back(std::move(step(s)));
    list.steps = std::move(kept);
  }
  /// Whether `ref` is exactly the buffer that it refers to.
  bool is_whole(Ref const& ref) const {
    return ref && ref.offset == 0 && ref.contiguous() && ref.bytes() == list[ref.buffer].bytes;
  }

 private:
  List<bool> dead_;
  List<std::int32_t> writer_;
  List<List<std::int32_t>> readers_;
};

/// Writes that a step can do without.
inline std::span<int const> optional_writes(StepKind kind) {
  static constexpr int first[] = {1}, second[] = {1, 2}, all[] = {0, 1, 2}, third[] = {1, 2, 3}, pair[] = {0, 1};
  switch (kind) {
    case StepKind::gemm: case StepKind::attention: case StepKind::rms_norm: return first;
    case StepKind::layer_norm: case StepKind::cross_entropy: return second;
    case StepKind::layer_norm_gradient: return all;
    case StepKind::linear_cross_entropy: return third;
    case StepKind::embedding_gradient: case StepKind::rms_norm_gradient: case StepKind::swiglu_gradient: return pair;
    default: return {};
  }
}

/// Removes steps that nothing depends on, and results that nobody reads. Before memory is shared: reads name writers
/// directly.
inline void eliminate_dead_steps(StepList& list) {
  List<bool> needed(list.buffers.size());
  List<bool> keep(list.steps.size());
  for (std::size_t s = list.steps.size(); s-- > 0;) {
    Step& step = list.steps[s];
    auto wanted = [&](Ref const& ref) {
      if (!ref) return false;
      Pool const pool = list[list.home(ref.buffer).root].pool;
      return needed[static_cast<std::size_t>(ref.buffer)] || pool == Pool::state || pool == Pool::output;
    };
    bool live = step.kind == StepKind::all_reduce_start || step.kind == StepKind::all_reduce_wait;
    for (Ref const& ref : step.writes) live |= wanted(ref);
    if (!live) continue;
    keep[s] = true;
    if (step.kind == StepKind::elementwise) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < step.writes.size(); ++i)
        if (wanted(step.writes[i])) {
          step.writes[kept] = step.writes[i];
          step.sources[kept++] = step.sources[i];
        }
      step.writes.resize(kept);
      step.sources.resize(kept);
    }
    for (int i : optional_writes(step.kind))
      if (!wanted(step.writes[static_cast<std::size_t>(i)])) step.writes[static_cast<std::size_t>(i)] = {};
    for (Ref const& ref : step.reads)
      if (ref) needed[static_cast<std::size_t>(ref.buffer)] = true;
  }
  List<Step> kept;
  for (std::size_t s = 0; s < list.steps.size(); ++s)
    if (keep[s]) kept.push_back(std::move(list.steps[s]));
  list.steps = std::move(kept);
}

}  // namespace tutti::graph::lowering
