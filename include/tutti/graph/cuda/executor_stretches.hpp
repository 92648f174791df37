// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Steps of a program on a device: bound to their kernels, divided into stretches that the device does by itself, and
/// these captured and launched.

#include <tutti/graph/cuda/executor.hpp>
#include <tutti/graph/cuda/joined_steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <vector>

namespace tutti::graph::cuda {

inline void Executor::find_writes() {
  StepList const& list = program_.list;
  for (Step const& step : list.steps)
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
      if (!step.writes[i]) continue;
      Buffer const& root = list[list.home(step.writes[i].buffer).root];
      if (root.pool != Pool::state || step.writes[i].dtype == DType::bfloat16) continue;
      writes_state_ = true;
      std::size_t const copy = 3 * (step.reads.size() / 4 - 1) + i / 3;  // of AdamW's p, m, v
      if (step.kind == StepKind::adamw && i % 3 == 0 && copy < step.writes.size() && step.writes[copy]) continue;
      left_.push_back(&state_.twin(list.fields[lowering::at(root.entry)].name));
    }
}

inline std::int64_t Executor::place_staged(std::int64_t first) {
  struct Place {
    std::int32_t slot = -1;  // of the collective that is on its way there
    std::int64_t begin = 0, end = 0;
  };
  List<Place> taken;  // in the order of memory
  std::int64_t end = first;
  staged_at_.assign(flights_.size(), first);
  for (std::size_t s = 0; s < program_.list.steps.size(); ++s) {
    Step const& step = program_.list.steps[s];
    if (is_wait(step.kind)) taken.erase_if([&](Place const& place) { return place.slot == step.slot; });
    if (calls_[s] || !is_collective(step.kind) || !is_start(step)) continue;
    std::int64_t const bytes = align_up(step.reads[0].bytes()) + align_up(step.writes[0].bytes());
    std::int64_t at = first;
    std::size_t i = 0;
    for (; i < taken.size() && taken[i].begin < at + bytes; ++i) at = taken[i].end;
    taken.push_back({step.slot, at, at + bytes});
    for (std::size_t k = taken.size() - 1; k > i; --k) std::swap(taken[k], taken[k - 1]);
    staged_at_[lowering::at(step.slot)] = at;
    end = std::max(end, at + bytes);
  }
  return end;
}

inline void Executor::bind_steps() {
  StepList const& list = program_.list;
  std::int32_t slots = 0;
  std::int64_t staged = 0;
  calls_.resize(list.steps.size());
  auto const operands_of = [&](Step const& step) {
    Operands operands{step};
    for (Ref const& ref : step.reads) operands.reads.push_back(pointer(ref));
    for (Ref const& ref : step.writes) operands.writes.push_back(pointer(ref));
    return operands;
  };
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    Step const& step = list.steps[s];
    slots = std::max(slots, step.slot + 1);
    if (std::size_t const joined = detail::joined_steps(list, s); joined > 1) {
      std::vector<Operands> run;
      for (std::size_t k = s; k < s + joined; ++k) run.push_back(operands_of(list.steps[k]));
      std::span<Operands const> const all(run.data(), run.size());
      calls_[s] = step.kind == StepKind::adamw ? detail::bind_adamw(all) : detail::bind_square_sum(all);
      for (std::size_t k = s + 1; k < s + joined; ++k) calls_[k] = detail::launch([](Context&) {});
      s += joined - 1;
      continue;
    }
    Operands const operands = operands_of(step);
    if (step.kind == StepKind::rank) {
      int const rank = port_of(step) == nullptr ? 0 : port_of(step)->rank();
      calls_[s] = detail::launch([&step, rank, y = operands.writes[0]](Context& context) {
        generic::fill(context, step.writes[0].dtype, y, 1, rank);
      });
    } else {
      calls_[s] = graph::cuda::bind(operands, options_.bodies);
    }
    bool const alone = !calls_[s] && port_of(step) == nullptr;  // of one rank alone collectives are copies
    if (alone && is_collective(step.kind)) calls_[s] = copy_of(step, operands);
    if (alone && !calls_[s]) calls_[s] = detail::launch([](Context&) {});
    if (!calls_[s] && step.kind == StepKind::all_reduce_start) staged = std::max(staged, end_of_bucket(step));
    if (!calls_[s] && is_collective(step.kind) && !is_start(step))
      staging_bytes_ = std::max({staging_bytes_, step.reads[0].bytes(), step.writes[0].bytes()});
  }
  flights_.assign(lowering::at(slots), {});
  find_queue();
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    led_by_host_ |= is_of_host(s);
    bool const begins = stretches_.empty() || is_of_host(s) || is_of_host(s - 1);
    if (begins) stretches_.push_back({s, s, {}});
    stretches_.back().last = s + 1;
  }
  if (std::none_of(ports_.begin(), ports_.end(), [](comm::Port const* port) { return port != nullptr; })) return;
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    if (calls_[s] || is_start(list.steps[s])) continue;
    for (Slot& slot : slots_) {
      using Timing = tutti::cuda::Event::Timing;
      int const device = stream().device();
      slot.waits.push_back(
          {tutti::cuda::Event(device, Timing::on), tutti::cuda::Event(device, Timing::on), list.steps[s].mesh_axis});
    }
  }
  for (auto* const events : {&events_, &arrivals_}) {
    events->resize(flights_.size() + 1);  // the last one's are those of collectives that their own step waits for
    for (tutti::cuda::Event& event : *events) event = tutti::cuda::Event(stream().device());
  }
  bool passes_host = false;
  for (std::size_t s = 0; s < list.steps.size(); ++s) passes_host |= !calls_[s] && !reaches_device(list.steps[s]);
  if (!passes_host) return;
  copies_ = tutti::cuda::Stream(stream().device(), tutti::cuda::Stream::Priority::high);
  staged = place_staged(align_up(staged));
  staged_ = tutti::cuda::PinnedMemory(static_cast<std::size_t>(std::max<std::int64_t>(staged, 1)));
  staging_ = Memory(std::max<std::int64_t>(2 * staging_bytes_, 1));
}

inline void Executor::find_queue() {
  if (device_port() == nullptr || data_port() == nullptr || !options_.capture || options_.profile) return;
  comm::PortQueue* const queue = data_port()->queue();
  if (queue == nullptr) return;
  bool has_any = false;
  for (std::size_t s = 0; s < calls_.size(); ++s) {
    Step const& step = program_.list.steps[s];
    if (calls_[s] || is_wait(step.kind)) continue;
    if (step.mesh_axis != MeshAxis::data) return;  // one queue is captured, and keeps the order of one axis
    comm::PortCall const call = port_call(step);
    if (!queue->takes(call)) return;
    total_.dtype = call.dtype;
    total_.count += call.count;
    has_any = true;
  }
  if (has_any) queue_ = queue;
}

inline void Executor::enqueue_steps(std::source_location where) {
  bool const warm = enqueued_++ > 0;
  if (profile_.measures()) newest().marks[0].record(stream(), where);
  if (warm && queue_ != nullptr) queue_->begin(stream().native(), where);
  // Working memory that grew since, for another program, lies elsewhere now.
  if (warm && options_.capture && !profile_.measures() && captured_with_ != context().scratch_version())
    capture(where);
  for (Stretch& stretch : stretches_) {
    tutti::cuda::Graph const& graph = stretch.graphs[queue_ != nullptr ? started_ % 2 : 0];
    if (graph.size() > 0) {
      graph.launch(stream(), where);
      progress();
    } else {
      for (std::size_t s = stretch.first; s < stretch.last; ++s) launch(s, where);
    }
  }
}

inline void Executor::capture(std::source_location where) {
  for (Stretch& stretch : stretches_) {
    if (is_of_host(stretch.first)) continue;
    for (std::size_t slot = 0; slot < (queue_ != nullptr ? 2 : 1); ++slot) {
      next_wait_ = 0;
      auto const steps = [&] {
        for (std::size_t s = stretch.first; s < stretch.last; ++s) {
          if (calls_[s]) calls_[s]->run(blas_);
          else enqueue(s, slots_[slot], where);
        }
      };
      stretch.graphs[slot] = tutti::cuda::Graph::capture(stream(), steps, where);
    }
  }
  captured_with_ = context().scratch_version();
}

inline void Executor::enqueue(std::size_t s, Slot& slot, std::source_location where) {
  Step const& step = program_.list.steps[s];
  bool const starts = is_start(step), ends = is_wait(step.kind);
  std::size_t const index = starts || ends ? lowering::at(step.slot) : flights_.size();
  if (is_collective(step.kind) && step.kind != StepKind::broadcast && step.root != data_port()->size())
    refuse_ranks(step, data_port()->size());
  Wait const* const wait = starts ? nullptr : &slot.waits[next_wait_++];
  if (wait != nullptr) wait->begin.record_in_runs(stream(), where);
  if (!ends) {
    if (step.kind == StepKind::broadcast)
      tutti::cuda::copy_on_device(stream(), pointer(step.writes[0]), pointer(step.reads[0]),
                                  static_cast<std::size_t>(step.reads[0].bytes()), where);
    events_[index].record(stream(), where);
    queue_->enqueue(port_call(step), events_[index].native(), arrivals_[index].native(), where);
  }
  if (wait == nullptr) return;
  stream().wait_for(arrivals_[index], where);
  wait->end.record_in_runs(stream(), where);
}

inline void Executor::poison() {
  Workspace const& workspace = *options_.workspace;
  tutti::cuda::fill_bytes(stream(), workspace.arena.data(), 0xff, static_cast<std::size_t>(program_.plan.arena_bytes));
  tutti::cuda::fill_bytes(stream(), workspace.communicator_data(), 0xff,
                          static_cast<std::size_t>(program_.plan.communicator_bytes));
  tutti::cuda::fill_bytes(stream(), static_cast<std::byte*>(device_ports_.data()) + input_bytes(), 0xff,
                          static_cast<std::size_t>(port_bytes() - input_bytes()));
}

inline void Executor::add_profile(Slot const& slot) {
  profile_.begin_run(1);
  std::int64_t begin = 1;  // of the run; the host's clock has no part in it
  for (std::size_t s = 0; s < calls_.size(); ++s) {
    std::int64_t const end =
        begin +
        static_cast<std::int64_t>(1e6 * double{tutti::cuda::milliseconds_between(slot.marks[s], slot.marks[s + 1])});
    profile_.add(s, begin, end);
    begin = end;
  }
}

}  // namespace tutti::graph::cuda
