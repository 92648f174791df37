// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Measures the steps of a layout's own programs, run by one rank without its peers.

#include <tutti/comm/port.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/pages.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/optim/optimizer.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/plan/step_times.hpp>
#include <tutti/tensor/random.hpp>
#include <tutti/train/process_use.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plan {

/// A port of ranks that are not there: what it is asked for is done at once, with this rank's contribution in the place
/// of the others'. For measuring what a rank of many computes.
class LonePort final : public comm::Port {
 public:
  explicit LonePort(int size) : size_(size) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return size_; }
  Ticket start_all_reduce(void*, std::int64_t, DType, comm::PortOp, std::source_location) override { return 0; }
  Ticket start_broadcast(void*, std::int64_t, DType, int, std::source_location) override { return 0; }
  Ticket start_all_gather(void const* from, void* to, std::int64_t count, DType dtype, std::source_location) override {
    return repeat(from, to, count, dtype);
  }
  Ticket start_reduce_scatter(void const* from, void* to, std::int64_t count, DType dtype, comm::PortOp,
                              std::source_location) override {
    std::memmove(to, from, static_cast<std::size_t>(count) * size_of(dtype));
    return 0;
  }
  Ticket start_all_to_all(void const* from, void* to, std::int64_t count, DType dtype, std::source_location) override {
    std::memmove(to, from, static_cast<std::size_t>(count) * static_cast<std::size_t>(size_) * size_of(dtype));
    return 0;
  }
  Ticket start_send(void const*, std::int64_t, int, int, std::source_location where) override {
    throw_no_messages(where);
  }
  Ticket start_receive(void*, std::int64_t, int, int, std::source_location where) override { throw_no_messages(where); }
  bool test(Ticket) override { return true; }
  void wait(Ticket) override {}
  void cancel(Ticket) noexcept override {}
  void* allocate(std::size_t bytes) override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void release(void* memory) noexcept override { std::free(memory); }

 private:
  [[noreturn]] static void throw_no_messages(std::source_location where) {
    throw Error(ErrorKind::unavailable, "LonePort", "the stages of a pipeline are not measured on one rank", where);
  }
  Ticket repeat(void const* from, void* to, std::int64_t count, DType dtype) const {
    std::size_t const bytes = static_cast<std::size_t>(count) * size_of(dtype);
    for (int r = 0; r < size_; ++r)
      std::memmove(static_cast<std::byte*>(to) + static_cast<std::size_t>(r) * bytes, from, bytes);
    return 0;
  }
  int size_;
};

struct Measurement {
  MeasuredSteps steps;
  double beside = 0;  ///< bytes of a rank's process beside tensors: program, stacks, what kernels pack
};

namespace detail {

/// The programs of a rank's step, ready to run on it alone.
class LoneStep {
 public:
  /// `sequence` is what a step runs, in its order. `shares_state`: its programs have the same fields.
  LoneStep(exec::Context& context, std::vector<graph::Program const*> const& sequence, bool shares_state,
           Work const& work, RankPrograms const& programs, Layout const& layout, Cluster const& cluster,
           std::source_location where)
      : sequence_(sequence), data_(layout.data), tensor_(layout.tensor), pipeline_(layout.pipeline),
        node_(std::min(cluster.devices_per_node, layout.ranks())), workspace_(graph::Workspace::of(sequence)) {
    for (graph::Program const* program : sequence) {
      if (executors_.contains(program)) continue;
      if (states_.empty() || !shares_state) states_.emplace_back();
      for (auto const* entries : {&program->list.fields, &program->list.copies})
        for (graph::Entry const& entry : *entries) add(states_.back(), entry, programs.names.contains(entry.name));
      auto executor = std::make_unique<graph::Executor>(
          context, *program, states_.back(),
          graph::ExecutorOptions{.port = &data_, .tensor = &tensor_, .pipeline = &pipeline_,
                                 .node = layout.zero > 0 ? &data_ : &node_, .workspace = workspace_, .profile = true});
      give(*executor, program->list, work, where);
      executors_.emplace(program, std::move(executor));
    }
  }
  LoneStep(LoneStep const&) = delete;
  LoneStep& operator=(LoneStep const&) = delete;

  void run(std::source_location where) {
    for (graph::Program const* program : sequence_) executors_.at(program)->run(where);
  }
  double bytes() const {
    double sum = static_cast<double>(workspace_->arena.bytes() + workspace_->communicator.bytes());
    for (graph::State const& state : states_) sum += static_cast<double>(state.bytes());
    return sum;
  }
  /// Of every step of every program: nanoseconds since it was made.
  std::vector<double> times() const {
    std::vector<double> all;
    for (auto const& [program, executor] : executors_)
      for (std::size_t s = 0; s < program->list.steps.size(); ++s)
        all.push_back(static_cast<double>(executor->profile().nanoseconds(s)));
    return all;
  }
  /// f(step, runs) for the same, in the same order: how often a step of training runs it.
  template <class F>
  void each(F&& f) const {
    for (auto const& [program, executor] : executors_) {
      auto const runs = static_cast<double>(std::count(sequence_.begin(), sequence_.end(), program));
      for (graph::Step const& step : program->list.steps) f(step, runs);
    }
  }

 private:
  void add(graph::State& state, graph::Entry const& entry, bool parameter) {
    if (state.find(entry.name) != nullptr) return;
    graph::Field* const field = state.add(entry.name, entry.dtype, entry.shape);
    // In memory, though others update it.
    std::memset(field->data(), 0, static_cast<std::size_t>(field->bytes()));
    if (parameter && entry.dtype == DType::float32)
      CounterRandom{1, stream_++}.fill_normal(field->view<float>().elements(), 0, 0.02f);
  }
  static void give(graph::Executor& executor, graph::StepList const& list, Work const& work,
                   std::source_location where) {
    for (graph::Entry const& entry : list.inputs) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(std::max<std::int64_t>(entry.shape.size(), 1)));
      if (entry.dtype == DType::int32 && entry.shape.rank() > 0) {
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 2);
        executor.set(entry.name, entry.dtype, entry.shape, ids.data(), where);
      } else {
        executor.set(entry.name, 1.0, where);
      }
    }
    if (executor.takes("learning_rate")) optim::set_step(executor, work.optimizer, 1e-4, 1);
    nn::StepRandom::set(executor, 1, 0, 0);
  }

  std::vector<graph::Program const*> const& sequence_;
  LonePort data_, tensor_, pipeline_, node_;
  Shared<graph::Workspace> workspace_;
  std::deque<graph::State> states_;
  std::uint64_t stream_ = 0;
  std::map<graph::Program const*, std::unique_ptr<graph::Executor>> executors_;
};

}  // namespace detail

/// Runs what one rank of a layout does in a step `runs` times, a short one several times in a row, and gives the mean
/// times of its parts in the fastest quarter of these runs. Where several ranks of this node measure at once, `most(x)`
/// waits for all of them and gives the largest x: times are those of ranks in company, and a run lasts until the last
/// of them is done, for which a step waits. `ranks_of_process`: how many of these are threads of this process.
/// Errors: those of predictions and of kernels. Cost: memory of a training step, and its time; of a pipeline those of
/// every stage that differs.
template <class Loss>
Measurement measure_steps(exec::Context& context, typename Loss::Config const& config, Work const& work,
                          Layout const& layout, Cluster const& cluster, int runs, int ranks_of_process = 1,
                          std::function<double(double)> const& most = [](double x) { return x; },
                          std::source_location where = std::source_location::current()) {
  if (cluster.device.kind != DeviceKind::cpu)
    throw Error(ErrorKind::unavailable, "plan::measure_steps",
                "steps are measured on processors. Give the rates of other devices in the cluster's description",
                where);
  RankPrograms const programs =
      compile_programs<Loss>(config, work.options, work.optimizer, layout, cluster, where);
  pages::return_free_heap();  // of what was measured before
  Measurement result;
  result.steps.ranks_on_node = std::min(cluster.devices_per_node, layout.ranks());
  result.steps.threads = cluster.threads;
  for (std::vector<graph::Program const*> const& sequence : programs.sequences(layout.micro_steps)) {
    detail::LoneStep step(context, sequence, layout.pipeline == 1, work, programs, layout, cluster, where);
    step.run(where);  // touches memory for the first time
    most(0);
    std::int64_t const begin = exec::now_ns();
    step.run(where);
    // Where ranks take turns at processors, a run must last for several turns to be one in company.
    double const once = most(static_cast<double>(exec::now_ns() - begin) / 1e9);
    double const row = std::ceil(std::min(100.0, 0.02 / std::max(once, 1e-6)));
    std::vector<std::pair<double, std::vector<double>>> times;  // of all ranks together, and of steps here
    std::vector<double> before = step.times();
    for (int run = 0; run < runs; ++run) {
      most(0);
      std::int64_t const from = exec::now_ns();
      for (int again = 0; again < static_cast<int>(row); ++again) step.run(where);
      most(0);
      // A rank that began late, since others had its processor, took as long as they all did.
      double const together = most(static_cast<double>(exec::now_ns() - from));
      std::vector<double> const until = step.times();
      std::vector<double> taken;
      for (std::size_t s = 0; s < until.size(); ++s) taken.push_back(until[s] - before[s]);
      before = until;
      double const mine = std::accumulate(taken.begin(), taken.end(), 0.0);
      for (double& one : taken) one *= together / std::max(mine, 1.0) / row;
      times.push_back({together, std::move(taken)});
    }
    std::sort(times.begin(), times.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    times.resize(std::max<std::size_t>(1, (times.size() + 3) / 4));
    std::size_t s = 0;
    step.each([&](graph::Step const& one, double in_step) {
      std::size_t const number = s++;
      Collective kind{};
      double bytes = 0, sum = 0;
      if (graph::is_wait(one.kind) || detail::collective_of(one, kind, bytes)) return;
      for (auto const& run : times) sum += run.second[number];
      result.steps.add(one, sum / static_cast<double>(times.size()) / in_step / 1e9);
    });
    most(0);
    // Of pages that several processes have a rank alone on its node has all, wherever else they are.
    double const resident = static_cast<double>(result.steps.ranks_on_node == 1 ? train::ProcessUse::memory()
                                                                                : train::ProcessUse::share_of_memory());
    result.beside = std::max(0.0, resident / ranks_of_process - step.bytes());
    most(0);  // before any rank of this process gives memory back
  }
  return result;
}

}  // namespace tutti::plan
