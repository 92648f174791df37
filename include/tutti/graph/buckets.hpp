// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reductions over ranks: gathered into buckets in the order in which their operands become ready, started there, and
/// waited for just before the first use. With a repeat that order is layer by layer, so a layer's gradients travel
/// while the next layer's are computed. The order is a function of the program alone and so the same on every rank.

#include <tutti/core/list.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/rewrite.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

/// Replaces every all_reduce step by copies into a bucket (removed later where the operand can be written there), a
/// start and a wait. `bucket_bytes`  a bucket is closed before it would grow above this; a larger tensor has one of its
/// own. `sections`  that every bucket can be divided into, in whole cache lines.
inline void make_buckets(StepList& list, std::int64_t bucket_bytes, int sections = 1) {
  struct Item {
    std::int32_t step, ready, first_use;
  };
  struct Bucket {
    List<Item> items;
    std::int32_t ready = -1, first_use = 0;
    std::int64_t bytes = 0;
  };
  List<Item> items;
  {
    Rewriter at(list);
    for (std::int32_t s = 0; s < at.size(); ++s) {
      if (at.step(s).kind != StepKind::all_reduce) continue;
      Item item{s, at.writer(at.step(s).reads[0].buffer), at.size()};
      // The result of another reduction is there once that is waited for, which is before whoever reads it: this step.
      if (item.ready >= 0 && at.step(item.ready).kind == StepKind::all_reduce) item.ready = s;
      for (std::int32_t reader : at.readers(at.step(s).writes[0].buffer))
        item.first_use = std::min(item.first_use, reader);
      items.push_back(item);
    }
  }
  if (items.empty()) return;
  items.stable_sort([](Item const& a, Item const& b) { return a.ready < b.ready; });

  auto step = [&](std::int32_t s) -> Step& { return list.steps[static_cast<std::size_t>(s)]; };
  List<Bucket> buckets;
  std::array<std::int32_t, mesh_axes> last;  // of every axis of the mesh, the bucket that may take more
  last.fill(-1);
  for (Item const& item : items) {
    Step const& added = step(item.step);
    std::int64_t const bytes = align_up(added.reads[0].bytes());
    std::int32_t& open = last[static_cast<std::size_t>(added.mesh_axis)];
    bool fits = open >= 0;
    if (fits) {
      Bucket const& last_one = buckets[static_cast<std::size_t>(open)];
      Step const& first = step(last_one.items[0].step);
      fits = last_one.bytes + bytes <= bucket_bytes && first.operation == added.operation &&
             first.reads[0].dtype == added.reads[0].dtype &&
             item.ready < last_one.first_use;  // else it would wait for a result of its own bucket
    }
    if (!fits) {
      open = static_cast<std::int32_t>(buckets.size());
      buckets.push_back({{}, -1, item.first_use, 0});
    }
    Bucket& bucket = buckets[static_cast<std::size_t>(open)];
    bucket.items.push_back(item);
    bucket.ready = std::max(bucket.ready, item.ready);
    bucket.first_use = std::min(bucket.first_use, item.first_use);
    bucket.bytes += bytes;
  }
  // Slots count starts, also where a bucket of another axis was closed before an older one.
  buckets.stable_sort([](Bucket const& a, Bucket const& b) { return a.ready < b.ready; });

  struct Moved {
    BufferId bucket = -1;
    std::int64_t offset = 0;
  };
  List<Moved> moved(list.buffers.size());  // by the buffer of a result
  List<List<Step>> before(list.steps.size() + 1),
      after(list.steps.size() + 1);  // `after`: at position + 1
  std::int32_t slot = 0;
  for (Bucket const& bucket : buckets) {
    Step const head = step(bucket.items[0].step);
    DType const dtype = head.reads[0].dtype;
    Buffer memory;
    memory.pool = Pool::communicator;
    memory.bytes = align_up((bucket.bytes + sections - 1) / sections) * sections;
    Shape const flat{memory.bytes / static_cast<std::int64_t>(size_of(dtype))};
    BufferId const sent = list.add(memory);
    memory.over = sent;
    BufferId const received = list.add(memory);
    Step copy, start, wait;
    copy.kind = StepKind::copy;
    start.kind = StepKind::all_reduce_start;
    wait.kind = StepKind::all_reduce_wait;
    start.operation = head.operation;
    start.mesh_axis = wait.mesh_axis = head.mesh_axis;
    start.slot = wait.slot = slot++;
    copy.layer = start.layer = wait.layer = bucket.ready >= 0 ? step(bucket.ready).layer : -1;
    copy.node = start.node = wait.node = head.node;
    copy.where = start.where = wait.where = head.where;
    copy.scope = start.scope = wait.scope = head.scope;
    std::int64_t offset = 0;
    for (Item const& item : bucket.items) {
      Step const& reduced = step(item.step);
      copy.reads.push_back(reduced.reads[0]);
      copy.writes.push_back(contiguous_ref(sent, offset, dtype, reduced.reads[0].shape));
      start.reads.push_back(copy.writes.back());
      moved[static_cast<std::size_t>(reduced.writes[0].buffer)] = {received, offset};
      offset += align_up(reduced.reads[0].bytes());
    }
    wait.writes = {contiguous_ref(received, 0, dtype, flat)};
    auto& starts = after[static_cast<std::size_t>(bucket.ready + 1)];
    starts.push_back(std::move(copy));
    starts.push_back(std::move(start));
    before[static_cast<std::size_t>(bucket.first_use)].push_back(std::move(wait));
  }

  List<Step> steps;
  for (std::size_t s = 0; s <= list.steps.size(); ++s) {
    for (Step& added : after[s]) steps.push_back(std::move(added));
    for (Step& added : before[s]) steps.push_back(std::move(added));
    if (s < list.steps.size() && list.steps[s].kind != StepKind::all_reduce) steps.push_back(std::move(list.steps[s]));
  }
  for (Step& changed : steps)
    for (Ref& ref : changed.reads) {
      if (!ref || static_cast<std::size_t>(ref.buffer) >= moved.size()) continue;
      Moved const& to = moved[static_cast<std::size_t>(ref.buffer)];
      if (to.bucket < 0) continue;
      ref.buffer = to.bucket;
      ref.offset += to.offset;
    }
  list.steps = std::move(steps);
}

/// Steps that replace state in place go last: whatever else reads the old value comes before them.
inline void sink_state_updates(StepList& list) {
  List<bool> read(list.buffers.size());
  for (Step const& step : list.steps)
    for (Ref const& ref : step.reads)
      if (ref) read[static_cast<std::size_t>(ref.buffer)] = true;
  List<Step> steps, last;
  for (Step& step : list.steps) {
    bool sinks = step.kind == StepKind::adamw;
    for (Ref const& ref : step.writes) sinks &= !ref || !read[static_cast<std::size_t>(ref.buffer)];
    (sinks ? last : steps).push_back(std::move(step));
  }
  for (Step& step : last) steps.push_back(std::move(step));
  list.steps = std::move(steps);
}

}  // namespace tutti::graph::lowering
