// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Updates shared out between ranks (Rajbhandari et al. 2020, arXiv 1910.02054): each reduces, sums the squares of, and
/// updates a section of every bucket of gradients. The ranks of a node have one copy of parameters and moments
/// together, shared memory in the place of the gather; others gather the parameters, bucket by bucket.

#include <tutti/core/list.hpp>
#include <tutti/graph/division.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

/// After buckets are made, before memory is planned.
class UpdateDivision {
 public:
  UpdateDivision(StepList& list, Division const& division) : list_(list), division_(division) {}

  void run() {
    if (division_.ranks == 1) return;
    if (division_.gathers) list_updated();
    for (Step& step : list_.steps)
      if (step.kind == StepKind::adamw) narrow_update(step);
    if (division_.everybody) {
      divide_norms();
      scatter_buckets();
    }
    if (division_.gathers) gather_parameters();
    else fence_updates();
  }

 private:
  struct Range {
    std::int64_t begin = 0, end = 0;  // elements
  };
  BufferId bucket(Ref const& ref) const {
    BufferId const root = list_.home(ref.buffer).root;
    return list_[root].pool == Pool::communicator ? root : -1;
  }
  /// What of a gradient is this rank's: a section of its bucket, or of itself where it has none.
  Range mine(Ref const& gradient) const {
    auto const size = static_cast<std::int64_t>(size_of(gradient.dtype));
    BufferId const root = bucket(gradient);
    std::int64_t const bytes = root < 0 ? gradient.bytes() : list_[root].bytes;
    std::int64_t const at = root < 0 ? 0 : list_.home(gradient.buffer).offset + gradient.offset;
    std::int64_t const section = align_up((bytes + division_.ranks - 1) / division_.ranks);
    auto const inside = [&](std::int64_t byte) {
      return std::clamp<std::int64_t>((byte - at) / size, 0, gradient.shape.size());
    };
    return {inside(std::max(section * division_.rank, at)), inside(std::max(section * (division_.rank + 1), at))};
  }
  static Ref part(Ref ref, Range range) {
    ref.offset += range.begin * static_cast<std::int64_t>(size_of(ref.dtype));
    return contiguous_ref(ref.buffer, ref.offset, ref.dtype, {range.end - range.begin});
  }

  void narrow_update(Step& step) {
    List<Ref> reads, writes;
    for (std::size_t i = 0; i < 4; ++i) reads.push_back(step.reads[i]);
    for (std::size_t i = 4, w = 0; i + 3 < step.reads.size(); i += 4, w += 3) {
      Range const range = mine(step.reads[i + 1]);
      if (range.begin == range.end) continue;
      for (std::size_t k = 0; k < 4; ++k) reads.push_back(part(step.reads[i + k], range));
      for (std::size_t k = 0; k < 3; ++k) writes.push_back(part(step.writes[w + k], range));
    }
    step.reads = std::move(reads);
    step.writes = std::move(writes);
  }

  /// Chains of sums of squares over gradients: each rank sums its sections, then the ranks' sums are added up.
  void divide_norms() {
    List<bool> partial(list_.buffers.size());  // values that are sums over this rank's sections
    auto const is_partial = [&](Ref const& ref) { return ref && partial[static_cast<std::size_t>(ref.buffer)]; };
    auto const divisible = [&](Step const& step) {
      if (step.kind != StepKind::square_sum || (step.reads[0] && !is_partial(step.reads[0]))) return false;
      for (std::size_t i = 1; i < step.reads.size(); ++i)
        if (bucket(step.reads[i]) < 0) return false;
      return true;
    };
    for (Step const& step : list_.steps)
      if (divisible(step)) partial[static_cast<std::size_t>(step.writes[0].buffer)] = true;
    // A sum that goes on may not be read by anybody else.
    List<bool> goes_on(list_.buffers.size()), read(list_.buffers.size());
    for (Step const& step : list_.steps)
      for (std::size_t i = 0; i < step.reads.size(); ++i)
        if (is_partial(step.reads[i]))
          (i == 0 && divisible(step) ? goes_on : read)[static_cast<std::size_t>(step.reads[i].buffer)] = true;
    for (std::size_t id = 0; id < goes_on.size(); ++id)
      if (goes_on[id] && read[id]) return;

    List<BufferId> total(list_.buffers.size(), -1);  // by the partial sum that it replaces
    List<Step> steps;
    for (Step& step : list_.steps) {
      bool const divided = divisible(step);
      if (divided) {
        List<Ref> reads{step.reads[0]};
        for (std::size_t i = 1; i < step.reads.size(); ++i)
          if (Range const range = mine(step.reads[i]); range.begin < range.end)
            reads.push_back(part(step.reads[i], range));
        step.reads = std::move(reads);
      }
      for (Ref& ref : step.reads)
        if (ref && static_cast<std::size_t>(ref.buffer) < total.size() &&
            total[static_cast<std::size_t>(ref.buffer)] >= 0)
          ref.buffer = total[static_cast<std::size_t>(ref.buffer)];
      steps.push_back(std::move(step));
      if (!divided) continue;
      Step const& last = steps.back();
      Ref const sum = last.writes[0];
      if (goes_on[static_cast<std::size_t>(sum.buffer)]) continue;
      Step add = communication(StepKind::node_sum, last);
      add.reads = {sum};
      add.writes = {sum};
      if (bucket(sum) < 0) {  // else it is sent on along another axis, from where it lies
        Buffer memory = list_[sum.buffer];
        memory.part_of = -1;
        memory.over = sum.buffer;
        memory.offset = 0;
        add.writes[0].buffer = total[static_cast<std::size_t>(sum.buffer)] = list_.add(memory);
      }
      steps.push_back(std::move(add));
    }
    list_.steps = std::move(steps);
  }

  /// Where only sections are read of what a bucket's reduction gives, the rest of it is not made.
  void scatter_buckets() {
    List<bool> whole(list_.buffers.size());  // results of which somebody reads more than this rank's section
    for (Step const& step : list_.steps)
      for (Ref const& ref : step.reads)
        if (ref && !(step.kind == StepKind::adamw || (step.kind == StepKind::square_sum && inside(ref))))
          whole[static_cast<std::size_t>(ref.buffer)] = true;
    List<bool> scattered;  // by slot
    for (Step const& step : list_.steps)
      if (step.kind == StepKind::all_reduce_wait) {
        scattered.resize(std::max(scattered.size(), static_cast<std::size_t>(step.slot) + 1));
        scattered[static_cast<std::size_t>(step.slot)] = !whole[static_cast<std::size_t>(step.writes[0].buffer)];
      }
    for (Step& step : list_.steps)
      if (step.kind == StepKind::all_reduce_start) step.scatter = scattered[static_cast<std::size_t>(step.slot)];
  }
  bool inside(Ref const& ref) const {
    Range const range = mine(ref);
    return range.begin == 0 && range.end == ref.shape.size();
  }

  /// Nobody writes a parameter that another rank still reads, or reads one that is not written yet.
  void fence_updates() {
    List<Step> steps;
    for (std::size_t s = 0; s < list_.steps.size(); ++s) {
      bool const update = list_.steps[s].kind == StepKind::adamw;
      bool const first = update && (s == 0 || steps.back().kind != StepKind::adamw);
      bool const last = update && (s + 1 == list_.steps.size() || list_.steps[s + 1].kind != StepKind::adamw);
      if (first) steps.push_back(communication(StepKind::node_barrier, list_.steps[s]));
      steps.push_back(std::move(list_.steps[s]));
      if (last) steps.push_back(communication(StepKind::node_barrier, steps.back()));
    }
    list_.steps = std::move(steps);
  }
  /// Parameters, by the bucket of their gradients; one whose gradient is in none has a group of its own.
  struct Updated {
    Ref parameter;
    std::int64_t at = 0;  // in the group, bytes
    Range mine;
  };
  struct Group {
    BufferId bucket = -1;
    std::int64_t section = 0;  // bytes of a rank
    List<Updated> parameters;
  };
  void list_updated() {
    for (Step const& step : list_.steps) {
      if (step.kind != StepKind::adamw) continue;
      for (std::size_t i = 4, w = 0; i + 3 < step.reads.size(); i += 4, w += 3) {
        Ref const& gradient = step.reads[i + 1];
        BufferId const root = bucket(gradient);
        Group* group = nullptr;
        for (Group& one : groups_)
          if (root >= 0 && one.bucket == root) group = &one;
        if (group == nullptr) {
          std::int64_t const bytes = root < 0 ? gradient.bytes() : list_[root].bytes;
          groups_.push_back({root, align_up((bytes + division_.ranks - 1) / division_.ranks), {}});
          group = &groups_[groups_.size() - 1];
        }
        std::int64_t const at = root < 0 ? 0 : list_.home(gradient.buffer).offset + gradient.offset;
        group->parameters.push_back({step.writes[w], at, mine(gradient)});
      }
    }
  }
  /// Behind the last update each rank's section of every group is gathered, and what it holds put in its place.
  void gather_parameters() {
    std::size_t last = list_.steps.size();
    while (last > 0 && list_.steps[last - 1].kind != StepKind::adamw) --last;
    List<Step> steps;
    for (std::size_t s = 0; s < last; ++s) steps.push_back(std::move(list_.steps[s]));
    auto const memory = [&](std::int64_t bytes) {
      Buffer made;
      made.pool = Pool::communicator;
      made.bytes = bytes;
      return list_.add(made);
    };
    for (Group const& group : groups_) {
      Step const& update = steps[last - 1];
      std::int64_t const whole = group.section * division_.ranks, first = group.section * division_.rank;
      BufferId const own = memory(group.section), all = memory(whole);
      auto const flat = [&](BufferId buffer, std::int64_t bytes) {
        return contiguous_ref(buffer, 0, DType::float32, {bytes / 4});
      };
      Step pack = communication(StepKind::copy, update), gather = communication(StepKind::all_gather, update),
           unpack = communication(StepKind::copy, update);
      for (Updated const& one : group.parameters) {
        if (one.mine.begin < one.mine.end) {
          pack.reads.push_back(part(one.parameter, one.mine));
          pack.writes.push_back(contiguous_ref(own, one.at + 4 * one.mine.begin - first, DType::float32,
                                               {one.mine.end - one.mine.begin}));
        }
        unpack.reads.push_back(contiguous_ref(all, one.at, DType::float32, {one.parameter.shape.size()}));
        unpack.writes.push_back(part(one.parameter, {0, one.parameter.shape.size()}));
      }
      pack.writes.push_back(flat(own, group.section));  // padding too
      gather.root = division_.ranks;
      gather.reads = {flat(own, group.section)};
      gather.writes = {flat(all, whole)};
      for (Step* step : {&pack, &gather, &unpack}) steps.push_back(std::move(*step));
    }
    for (std::size_t s = last; s < list_.steps.size(); ++s) steps.push_back(std::move(list_.steps[s]));
    list_.steps = std::move(steps);
  }
  static Step communication(StepKind kind, Step const& beside) {
    Step step;
    step.kind = kind;
    step.node = beside.node;
    step.where = beside.where;
    step.scope = beside.scope;
    return step;
  }

  StepList& list_;
  Division const& division_;
  List<Group> groups_;
};

}  // namespace tutti::graph::lowering
