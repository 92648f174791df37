// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Pipelines of stages, simulated micro-batch by micro-batch in the order of their schedule; nothing of the stages is
/// known but their times and what they send.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/plan/layout.hpp>
#include <tutti/plan/simulation.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::plan {

/// Seconds of one micro-batch in one chunk of a stage. Under zero_bubble `weights` is the part of backward that no
/// other stage waits for: gradients of weights.
struct StageTimes {
  double forward = 0, backward = 0;
  double weights = 0;  ///< of backward
};

/// One piece of work of a rank's schedule.
struct PipelineWork {
  enum class Kind : unsigned char { forward, backward, weights };
  Kind kind{};
  int chunk = 0;
  std::int64_t micro = 0;
};

/// What rank `stage` of `stages` does, in its order.
/// Requires  micro-batches a multiple of the stages where schedule is interleaved
inline std::vector<PipelineWork> pipeline_order(Schedule schedule, int stage, int stages, int chunks,
                                                std::int64_t micro) {
  using Kind = PipelineWork::Kind;
  std::vector<PipelineWork> order;
  if (schedule == Schedule::gpipe) {
    for (std::int64_t m = 0; m < micro; ++m) order.push_back({Kind::forward, 0, m});
    for (std::int64_t m = 0; m < micro; ++m) order.push_back({Kind::backward, 0, m});
    return order;
  }
  std::int64_t const all = micro * chunks;
  std::int64_t const warm = std::min<std::int64_t>(
      all, schedule == Schedule::interleaved ? 2 * (stages - stage - 1) + (chunks - 1) * stages : stages - stage - 1);
  // The k-th forward and backward of a rank: micro-batches go through its chunks in groups of as many as stages.
  auto const work = [&](Kind kind, std::int64_t k) {
    if (chunks == 1) return PipelineWork{kind, 0, k};
    std::int64_t const group = k / (stages * chunks), in = k % (stages * chunks);
    auto const chunk = static_cast<int>(in / stages);
    return PipelineWork{kind, kind == Kind::forward ? chunk : chunks - 1 - chunk, group * stages + in % stages};
  };
  std::int64_t forward = 0, backward = 0, weights = 0;
  while (forward < warm) order.push_back(work(Kind::forward, forward++));
  bool const splits = schedule == Schedule::zero_bubble;
  while (backward < all) {
    if (forward < all) order.push_back(work(Kind::forward, forward++));
    order.push_back(work(Kind::backward, backward++));
    // ZB-H1: weights wait for as many micro-batches as the stage is away from the first, so that no stage keeps more
    // activations than the first one does, and what is left fills the end.
    if (splits && backward > stage) order.push_back(work(Kind::weights, weights++));
  }
  while (splits && weights < all) order.push_back(work(Kind::weights, weights++));
  return order;
}

struct PipelineTimes {
  double seconds = 0;  ///< until the last stage is done
  double bubble = 0;   ///< share of the devices' time in which they wait
};

/// `stages`: times of every stage, of each of its chunks alike. `send`: seconds of a message to the next stage.
/// Errors: configuration, for micro-batches that the schedule cannot divide.
inline PipelineTimes simulate_pipeline(Schedule schedule, std::vector<StageTimes> const& stages, int chunks,
                                       std::int64_t micro, double send, Simulation* picture = nullptr) {
  using Kind = PipelineWork::Kind;
  using Task = Simulation::Task;
  auto const count = static_cast<int>(stages.size());
  if (schedule == Schedule::interleaved && micro % count != 0)
    throw Error(ErrorKind::configuration, "plan::simulate_pipeline",
                concat("the interleaved schedule needs micro-batches that are a multiple of the ", count,
                       " stages, not ", micro));
  if (schedule != Schedule::interleaved) chunks = 1;
  Simulation simulation;
  std::vector<int> device, next, back;
  for (int s = 0; s < count; ++s) device.push_back(simulation.resource(concat("stage ", s)));
  for (int s = 0; s < count; ++s) {
    next.push_back(simulation.resource(concat("stage ", s, " sends on")));
    back.push_back(simulation.resource(concat("stage ", s, " sends back")));
  }
  auto const index = [&](int stage, int chunk, std::int64_t m) {
    return static_cast<std::size_t>((static_cast<std::int64_t>(stage) * chunks + chunk) * micro + m);
  };
  std::size_t const all = static_cast<std::size_t>(static_cast<std::int64_t>(count) * chunks * micro);
  std::vector<Task> forward(all, -1), backward(all, -1);
  double busy = 0;
  for (int s = 0; s < count; ++s) {
    StageTimes const& t = stages[static_cast<std::size_t>(s)];
    bool const splits = schedule == Schedule::zero_bubble;
    Task last = -1;
    for (PipelineWork const& work : pipeline_order(schedule, s, count, chunks, micro)) {
      double const seconds = work.kind == Kind::forward    ? t.forward
                             : work.kind == Kind::weights ? t.weights
                                                           : t.backward - (splits ? t.weights : 0);
      busy += seconds;
      last = simulation.task(device[static_cast<std::size_t>(s)], seconds,
                             work.kind == Kind::forward    ? Simulation::Kind::forward
                             : work.kind == Kind::weights ? Simulation::Kind::update
                                                           : Simulation::Kind::backward,
                             {last});
      if (work.kind == Kind::forward) forward[index(s, work.chunk, work.micro)] = last;
      if (work.kind == Kind::backward) backward[index(s, work.chunk, work.micro)] = last;
    }
  }
  // Chunk c of stage s is part c * stages + s of the model: behind the last stage comes the next chunk of the first.
  for (int s = 0; s < count; ++s)
    for (int c = 0; c < chunks; ++c)
      for (std::int64_t m = 0; m < micro; ++m) {
        int const s_next = (s + 1) % count, c_next = s + 1 == count ? c + 1 : c;
        Task const f = forward[index(s, c, m)], b = backward[index(s, c, m)];
        if (c_next == chunks) {
          simulation.order(f, b);
          continue;
        }
        Task const sent = simulation.task(next[static_cast<std::size_t>(s)], send, Simulation::Kind::transfer, {f});
        simulation.order(sent, forward[index(s_next, c_next, m)]);
        Task const came = simulation.task(back[static_cast<std::size_t>(s_next)], send, Simulation::Kind::transfer,
                                          {backward[index(s_next, c_next, m)]});
        simulation.order(came, b);
        simulation.order(f, b);
      }
  PipelineTimes times;
  times.seconds = simulation.run();
  times.bubble = times.seconds > 0 ? 1 - busy / (times.seconds * count) : 0;
  if (picture != nullptr) *picture = std::move(simulation);
  return times;
}

/// Micro-batches whose activations a stage holds at most, in chunks of its layers.
inline double held_micro_batches(Schedule schedule, int stage, int stages, int chunks, std::int64_t micro) {
  if (schedule == Schedule::gpipe) return static_cast<double>(micro);
  std::int64_t held = 0, most = 0;
  for (PipelineWork const& work : pipeline_order(schedule, stage, stages, chunks, micro)) {
    held += work.kind == PipelineWork::Kind::forward ? 1 : work.kind == PipelineWork::Kind::backward ? -1 : 0;
    most = std::max(most, held);
  }
  return static_cast<double>(most) / chunks;
}

}  // namespace tutti::plan
