// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Pipelines of stages, simulated micro-batch by micro-batch through the tasks that the trainer's stages do; nothing of
/// the stages is known but their times and what they send.

#include <tutti/core/concat.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>
#include <tutti/plan/simulation.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::plan {

/// Seconds of one micro-batch in one part of the model. Where the schedule splits backward passes `weights` is the part
/// of backward that no other stage waits for: gradients of weights.
struct StageTimes {
  double forward = 0, backward = 0;
  double weights = 0;  ///< of backward
};

/// A gradient that several stages add up: each sends its addend to the first of them once it is done with its own
/// micro-batches, and this one sends them the sum.
struct SumOfStages {
  std::vector<int> stages;
  double send = 0;  ///< seconds of one message
};

struct PipelineTimes {
  double seconds = 0;  ///< until the last stage is done
  double sums = 0;     ///< from then until all have the sums
  double bubble = 0;   ///< share of the devices' time in which they wait
};

/// `parts`: times of every part of the model, in its order. `send`: seconds of a message to the next stage. `at_once`:
/// stages for which there are processors; 0: for all. `sums`: behind all else.
/// Errors: configuration, for micro-batches that the schedule cannot divide.
inline PipelineTimes simulate_pipeline(parallel::PipelineLayout layout, std::vector<StageTimes> const& parts,
                                       std::int64_t micro, double send, Simulation* picture = nullptr,
                                       double at_once = 0, std::vector<SumOfStages> const& sums = {}) {
  using Work = parallel::PipelineWork;
  using Task = Simulation::Task;
  int const stages = layout.stages, count = layout.parts();
  bool const splits = parallel::splits_backward(layout.schedule);
  Simulation simulation;
  std::vector<int> device, next, back;
  for (int s = 0; s < stages; ++s) device.push_back(simulation.resource(concat("stage ", s)));
  for (int s = 0; s < stages && at_once > 0; ++s) simulation.share(device[static_cast<std::size_t>(s)], at_once);
  for (int s = 0; s < stages; ++s) {
    next.push_back(simulation.resource(concat("stage ", s, " sends on")));
    back.push_back(simulation.resource(concat("stage ", s, " sends back")));
  }
  auto const at = [](auto index) { return static_cast<std::size_t>(index); };
  auto const index = [&](int part, std::int64_t m) { return at(part * micro + m); };
  std::vector<Task> forward(at(count * micro), -1), backward = forward, done;  // done: by stage, its last task
  for (layout.stage = 0; layout.stage < stages; ++layout.stage) {
    Task last = -1;
    for (parallel::PipelineTask const& task : parallel::pipeline_tasks(layout, micro)) {
      int const part = layout.part(task.part);
      StageTimes const& t = parts[at(part)];
      double const seconds = task.work == Work::forward    ? t.forward
                             : task.work == Work::weights ? t.weights
                                                           : t.backward - (splits ? t.weights : 0);
      last = simulation.task(device[at(layout.stage)], seconds,
                             task.work == Work::forward    ? Simulation::Kind::forward
                             : task.work == Work::weights ? Simulation::Kind::update
                                                           : Simulation::Kind::backward,
                             {last});
      if (task.work == Work::forward) forward[index(part, task.micro_batch)] = last;
      if (task.work == Work::backward) backward[index(part, task.micro_batch)] = last;
    }
    done.push_back(last);
  }
  for (int part = 0; part < count; ++part)
    for (std::int64_t m = 0; m < micro; ++m) {
      Task const f = forward[index(part, m)], b = backward[index(part, m)];
      simulation.order(f, b);
      if (part + 1 == count) continue;
      Task const sent = simulation.task(next[at(part % stages)], send, Simulation::Kind::transfer, {f});
      simulation.order(sent, forward[index(part + 1, m)]);
      Task const came = simulation.task(back[at((part + 1) % stages)], send, Simulation::Kind::transfer,
                                        {backward[index(part + 1, m)]});
      simulation.order(came, b);
    }
  for (SumOfStages const& sum : sums) {
    std::vector<Task> came{done[at(sum.stages.front())]};
    for (std::size_t s = 1; s < sum.stages.size(); ++s)
      came.push_back(
          simulation.task(back[at(sum.stages[s])], sum.send, Simulation::Kind::transfer, {done[at(sum.stages[s])]}));
    for (std::size_t s = 1; s < sum.stages.size(); ++s)
      simulation.task(next[at(sum.stages.front())], sum.send, Simulation::Kind::transfer, came);
  }
  PipelineTimes times;
  double const end = simulation.run();
  for (Task const one : done) times.seconds = std::max(times.seconds, simulation.end(one));
  times.sums = end - times.seconds;
  double busy = 0;
  for (int const one : device) busy += simulation.busy(one);
  times.bubble = times.seconds > 0 ? 1 - busy / (times.seconds * stages) : 0;
  if (picture != nullptr) *picture = std::move(simulation);
  return times;
}

}  // namespace tutti::plan
