// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/parallel/pipeline_schedule.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace tutti;
using parallel::PipelineSchedule;
using parallel::PipelineTask;

namespace {

struct Simulated {
  std::int64_t span = -1;  // below 0: somebody waits for ever
  bool each_once = true;   // every stage does both passes of every micro-batch once, in ascending order
};

/// When stages do their tasks in order, each as soon as what it needs is there; a forward pass takes one unit of time,
/// a backward pass two.
Simulated simulate(PipelineSchedule schedule, int stages, std::int64_t micro_batches) {
  Simulated result;
  auto const n = static_cast<std::size_t>(stages), m = static_cast<std::size_t>(micro_batches);
  std::vector<List<PipelineTask>> tasks;
  for (int stage = 0; stage < stages; ++stage)
    tasks.push_back(parallel::pipeline_tasks(schedule, stages, stage, micro_batches));
  std::vector<std::vector<std::int64_t>> forward(n, std::vector<std::int64_t>(m, -1)), backward = forward;
  std::vector<std::size_t> next(n, 0);
  std::vector<std::int64_t> clock(n, 0), expected(2 * n, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < n; ++s)
      for (; next[s] < tasks[s].size(); ++next[s], moved = true) {
        PipelineTask const task = tasks[s][next[s]];
        auto const k = static_cast<std::size_t>(task.micro_batch);
        std::int64_t ready = 0;
        if (!task.backward && s > 0) ready = forward[s - 1][k];
        if (task.backward) ready = s + 1 < n ? backward[s + 1][k] : forward[s][k];
        if (ready < 0 || (task.backward && forward[s][k] < 0)) break;
        result.each_once = result.each_once && task.micro_batch == expected[2 * s + (task.backward ? 1 : 0)]++;
        clock[s] = std::max(clock[s], ready) + (task.backward ? 2 : 1);
        (task.backward ? backward : forward)[s][k] = clock[s];
      }
  }
  for (std::size_t s = 0; s < n; ++s) {
    if (next[s] < tasks[s].size()) return result;
    result.each_once = result.each_once && tasks[s].size() == 2 * m;
    result.span = std::max(result.span, clock[s]);
  }
  return result;
}

}  // namespace

TEST_CASE("schedules: nobody waits for ever, and what is idle is (p - 1) / (m + p - 1) of the time") {
  for (PipelineSchedule schedule : {PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe})
    for (int stages : {1, 2, 3, 4, 7})
      for (std::int64_t micro_batches : {1, 2, 3, 4, 5, 8, 17}) {
        INFO(static_cast<int>(schedule) << ": " << stages << " stages, " << micro_batches << " micro-batches");
        Simulated const run = simulate(schedule, stages, micro_batches);
        CHECK(run.each_once);
        CHECK(run.span == 3 * (micro_batches + stages - 1));
        double const idle = 1 - static_cast<double>(3 * micro_batches) / static_cast<double>(run.span);
        CHECK(std::abs(idle - parallel::pipeline_bubble(stages, micro_batches)) < 1e-12);
      }
}

TEST_CASE("schedules: 1F1B keeps activations of min(m, p - stage) micro-batches, GPipe of all") {
  for (int stages : {1, 2, 4, 5})
    for (int stage = 0; stage < stages; ++stage)
      for (std::int64_t m : {1, 3, 4, 9}) {
        CHECK(parallel::kept_micro_batches(parallel::pipeline_tasks(PipelineSchedule::one_forward_one_backward, stages,
                                                                    stage, m)) ==
              std::min<std::int64_t>(m, stages - stage));
        CHECK(parallel::kept_micro_batches(parallel::pipeline_tasks(PipelineSchedule::gpipe, stages, stage, m)) == m);
      }
  List<PipelineTask> const last = parallel::pipeline_tasks(PipelineSchedule::one_forward_one_backward, 2, 1, 2);
  CHECK(last == List<PipelineTask>{{false, 0}, {true, 0}, {false, 1}, {true, 1}});
  REQUIRE_ERROR(parallel::pipeline_tasks(PipelineSchedule::gpipe, 2, 2, 1), ErrorKind::configuration,
                "stage 2 of 2 with 1 micro-batches cannot be");
}
