// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What must hold of every schedule of a pipeline, by simulation of the stages and of the messages between them.
// Covers: <tutti/parallel/pipeline_schedule.hpp> <tutti/parallel/pipeline_task.hpp>
// Covers: <tutti/parallel/schedules/gpipe.hpp> <tutti/parallel/schedules/one_forward_one_backward.hpp>
// Covers: <tutti/parallel/schedules/interleaved.hpp> <tutti/parallel/schedules/zero_bubble.hpp>
#include "support/catch.hpp"

#include <tutti/parallel/pipeline_schedule.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

using namespace tutti;
using parallel::PipelineLayout;
using parallel::PipelineSchedule;
using parallel::PipelineTask;
using parallel::PipelineWork;

namespace {

struct Simulated {
  std::string wrong;
  std::int64_t span = 0;
};

/// When stages do their tasks in order, each as soon as what it needs has come. A forward pass takes one unit of time,
/// a whole backward pass two, each of its halves one. Messages are those of parallel::StageRun: a receive is posted
/// when the one before it of its neighbour has been taken, a send is complete when its receive is posted, and a slot
/// sends again when what went from it has.
class Pipeline {
 public:
  Pipeline(PipelineLayout layout, std::int64_t micro_batches) : layout_(layout), micro_(micro_batches) {
    for (int stage = 0; stage < layout.stages; ++stage) {
      layout_.stage = stage;
      tasks_.push_back(parallel::pipeline_tasks(layout_, micro_batches));
      for (PipelineTask const& task : tasks_.back()) splits_ = splits_ || task.work == PipelineWork::weights;
    }
  }
  Simulated run() {
    Simulated result{complaints(), 0};
    auto const stages = static_cast<std::size_t>(layout_.stages);
    std::vector<std::size_t> next(stages, 0);
    std::vector<std::int64_t> clock(stages, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages; ++s)
        for (; next[s] < tasks_[s].size() && possible(static_cast<int>(s), tasks_[s][next[s]]); moved = true)
          start(static_cast<int>(s), tasks_[s][next[s]++], clock[s]);
    }
    for (std::size_t s = 0; s < stages; ++s) {
      if (next[s] < tasks_[s].size()) result.wrong += "stage " + std::to_string(s) + " waits for ever; ";
      result.span = std::max(result.span, clock[s]);
    }
    return result;
  }

 private:
  using Key = std::tuple<PipelineWork, int, std::int64_t>;  // a task of the whole model: its part's number

  int part_of(int stage, PipelineTask const& task) const { return task.part * layout_.stages + stage; }
  int parts() const { return layout_.parts(); }

  /// What is wrong with the lists alone.
  std::string complaints() const {
    std::string wrong;
    auto const kinds = splits_ ? std::vector{PipelineWork::forward, PipelineWork::backward, PipelineWork::weights}
                               : std::vector{PipelineWork::forward, PipelineWork::backward};
    for (auto const& list : tasks_) {
      if (list.size() != kinds.size() * static_cast<std::size_t>(micro_ * layout_.virtual_stages))
        wrong += "tasks are missing or doubled; ";
      for (int part = 0; part < layout_.virtual_stages; ++part) {
        std::array<std::int64_t, 3> done{};
        for (PipelineTask const& task : list) {
          if (task.part != part) continue;
          if (task.micro_batch != done[static_cast<std::size_t>(task.work)]++) wrong += "micro-batches do not ascend; ";
          if (done[0] < done[1] || done[1] < done[2]) wrong += "a pass comes before what it needs; ";
        }
      }
    }
    // What a stage sends in its order the neighbour takes in the same.
    for (int stage = 0; stage < layout_.stages; ++stage)
      for (PipelineWork work : {PipelineWork::forward, PipelineWork::backward}) {
        int const step = work == PipelineWork::forward ? 1 : -1;
        int const other = (stage + layout_.stages + step) % layout_.stages;
        std::vector<std::pair<int, std::int64_t>> sent, taken;
        for (PipelineTask const& task : tasks_[static_cast<std::size_t>(stage)])
          if (int const to = part_of(stage, task) + step; task.work == work && to >= 0 && to < parts())
            sent.emplace_back(to, task.micro_batch);
        for (PipelineTask const& task : tasks_[static_cast<std::size_t>(other)])
          if (int const from = part_of(other, task) - step; task.work == work && from >= 0 && from < parts())
            taken.emplace_back(part_of(other, task), task.micro_batch);
        if (sent != taken) wrong += "messages come in another order than they are taken in; ";
      }
    return wrong;
  }
  /// The task whose message this one takes; false where it takes none.
  bool source(int part, PipelineTask const& task, Key& key) const {
    int const from = task.work == PipelineWork::forward ? part - 1 : part + 1;
    if (task.work == PipelineWork::weights || from < 0 || from >= parts()) return false;
    key = {task.work, from, task.micro_batch};
    return true;
  }
  bool done(Key const& key) const { return ends_.find(key) != ends_.end(); }
  /// Whether the neighbour has posted the receive of what this task of the whole model sent.
  bool received(Key const& key) const {
    auto const [work, part, micro] = key;
    int const to = work == PipelineWork::forward ? part + 1 : part - 1;
    if (to < 0 || to >= parts()) return true;
    int const stage = to % layout_.stages;
    std::int64_t before = 0;  // messages that the neighbour takes before this one
    for (PipelineTask const& task : tasks_[static_cast<std::size_t>(stage)]) {
      Key unused;
      if (task.work != work || !source(part_of(stage, task), task, unused)) continue;
      if (part_of(stage, task) == to && task.micro_batch == micro) break;
      ++before;
    }
    auto const found = taken_.find({stage, work});
    return (found == taken_.end() ? 0 : found->second) >= before;
  }
  bool possible(int stage, PipelineTask const& task) const {
    int const part = part_of(stage, task);
    Key from;
    if (source(part, task, from) && !done(from)) return false;
    if (task.work != PipelineWork::forward && !done({PipelineWork::forward, part, task.micro_batch})) return false;
    if (task.work == PipelineWork::weights) return done({PipelineWork::backward, part, task.micro_batch});
    std::int64_t const slots =
        parallel::kept_micro_batches(tasks_[static_cast<std::size_t>(stage)], task.part);
    Key const before{task.work, part, task.micro_batch - slots};
    return task.micro_batch < slots || received(before);
  }
  void start(int stage, PipelineTask const& task, std::int64_t& clock) {
    int const part = part_of(stage, task);
    Key from;
    if (source(part, task, from)) {
      clock = std::max(clock, ends_[from]);
      ++taken_[{stage, task.work}];
    }
    clock += task.work == PipelineWork::backward && !splits_ ? 2 : 1;
    ends_[{task.work, part, task.micro_batch}] = clock;
  }

  PipelineLayout layout_;
  std::int64_t micro_;
  bool splits_ = false;
  std::vector<List<PipelineTask>> tasks_;
  std::map<Key, std::int64_t> ends_;
  std::map<std::pair<int, PipelineWork>, std::int64_t> taken_;
};

/// Of a stage, in parts.
std::int64_t kept(PipelineLayout const& layout, std::int64_t micro_batches) {
  std::int64_t now = 0, most = 0;
  bool splits = false;
  auto const tasks = parallel::pipeline_tasks(layout, micro_batches);
  for (PipelineTask const& task : tasks) splits = splits || task.work == PipelineWork::weights;
  for (PipelineTask const& task : tasks) {
    if (task.work == PipelineWork::forward) most = std::max(most, ++now);
    else if (!splits || task.work == PipelineWork::weights) --now;
  }
  return most;
}

}  // namespace

TEST_CASE("schedules: nobody waits for ever, messages come in order, and what is idle is the formula's") {
  for (auto const schedule :
       {PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe, PipelineSchedule::interleaved,
        PipelineSchedule::zero_bubble})
    for (int stages : {1, 2, 3, 4, 7})
      for (int parts : {1, 2, 3, 4})
        for (std::int64_t m : {1, 2, 3, 4, 5, 8, 12, 14, 17, 28}) {
          bool const interleaved = schedule == PipelineSchedule::interleaved;
          if ((!interleaved && parts > 1) || (interleaved && m % stages != 0)) continue;
          PipelineLayout const layout{stages, 0, schedule, parts, {}};
          INFO(static_cast<int>(schedule) << ": " << stages << " stages of " << parts << " parts, " << m
                                          << " micro-batches");
          Simulated const run = Pipeline(layout, m).run();
          CHECK(run.wrong == "");
          if (schedule == PipelineSchedule::zero_bubble && m < stages) continue;  // beyond the formula
          double const idle = 1 - static_cast<double>(3 * m * parts) / static_cast<double>(run.span);
          CHECK(std::abs(idle - parallel::pipeline_bubble(layout, m)) < 1e-12);
        }
}

TEST_CASE("schedules: 1F1B keeps min(m, p - stage) micro-batches, GPipe all, parts (v + 1) p - 2 stage - 1") {
  for (int stages : {1, 2, 4, 5})
    for (int stage = 0; stage < stages; ++stage)
      for (std::int64_t m : {1, 3, 4, 9, 20}) {
        CHECK(kept({stages, stage}, m) == std::min<std::int64_t>(m, stages - stage));
        CHECK(kept({stages, stage, PipelineSchedule::gpipe}, m) == m);
        CHECK(kept({stages, stage, PipelineSchedule::zero_bubble}, m) == std::min<std::int64_t>(m, stages));
        for (int parts : {1, 2, 3}) {
          if (m % stages != 0) continue;
          CHECK(kept({stages, stage, PipelineSchedule::interleaved, parts, {}}, m) ==
                std::min<std::int64_t>(m * parts, (parts + 1) * stages - 2 * stage - 1));
        }
      }
  List<PipelineTask> const last = parallel::pipeline_tasks({2, 1}, 2);
  PipelineWork const f = PipelineWork::forward, b = PipelineWork::backward;
  CHECK(last == List<PipelineTask>{{f, 0, 0}, {b, 0, 0}, {f, 0, 1}, {b, 0, 1}});
  List<PipelineTask> const two = parallel::pipeline_tasks({2, 1, PipelineSchedule::interleaved, 2, {}}, 2);
  CHECK(two == List<PipelineTask>{{f, 0, 0}, {f, 0, 1}, {f, 1, 0}, {b, 1, 0}, {f, 1, 1}, {b, 1, 1}, {b, 0, 0},
                                  {b, 0, 1}});
}

TEST_CASE("schedules: what cannot be says why") {
  REQUIRE_ERROR(parallel::pipeline_tasks({2, 2}, 1), ErrorKind::configuration,
                "stage 2 of 2 with 1 micro-batches and 1 virtual stages cannot be");
  REQUIRE_ERROR(parallel::pipeline_tasks({4, 0, PipelineSchedule::interleaved, 2, {}}, 6), ErrorKind::configuration,
                "takes micro-batches in groups of as many as there are stages, and 6 are not a multiple of 4. Use 4 or "
                "8 micro-batches");
  REQUIRE_ERROR(parallel::pipeline_tasks({4, 0, PipelineSchedule::gpipe, 2, {}}, 8), ErrorKind::configuration,
                "2 virtual stages of a stage are of the interleaved schedule alone");
}
