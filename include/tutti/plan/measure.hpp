// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Measures what a plan is made of: the steps of a layout's own programs, run by one rank without its peers, and
/// collectives between ranks that are there.

#include <tutti/comm/port.hpp>
#include <tutti/core/error.hpp>
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
#include <functional>
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

/// Runs the programs of one rank of a layout `runs` times, short ones several times in a row, and gives the mean times
/// of their steps in the fastest quarter of these runs. Where several ranks of this node measure at once, `most(x)`
/// waits for all of them and gives the largest x: times are those of ranks in company, and a run lasts until the last
/// of them is done, for which a step waits. `ranks_of_process`: how many of these are threads of this process.
/// Errors: those of predictions and of kernels. Cost: memory of a training step, of a pipeline that of every program of
/// its stages; and their time.
template <class Loss>
Measurement measure_steps(exec::Context& context, typename Loss::Config const& config, Work const& work,
                          Layout const& layout, Cluster const& cluster, int runs, int ranks_of_process = 1,
                          std::function<double(double)> const& most = [](double x) { return x; },
                          std::source_location where = std::source_location::current()) {
  if (cluster.device.kind != DeviceKind::cpu)
    throw Error(ErrorKind::unavailable, "plan::measure_steps",
                "steps are measured on processors. Give the rates of other devices in the cluster's description",
                where);
  RankPrograms programs = compile_programs<Loss>(config, work.options, work.optimizer, layout, cluster, where);
  std::vector<graph::Program const*> const all = programs.all();
  // Parts of a stage have fields of the same names and other shapes: a state for each program of a pipeline.
  std::vector<graph::State> states(layout.pipeline > 1 ? all.size() : 1);
  auto const state_of = [&](std::size_t program) -> graph::State& { return states[program % states.size()]; };
  std::uint64_t stream = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (auto const* entries : {&all[i]->list.fields, &all[i]->list.copies})
      for (graph::Entry const& entry : *entries)
        if (graph::State& state = state_of(i); state.find(entry.name) == nullptr) {
          graph::Field* const field = state.add(entry.name, entry.dtype, entry.shape);
          std::memset(field->data(), 0,
                      static_cast<std::size_t>(field->bytes()));  // in memory, though others update it
          if (programs.names.contains(entry.name) && entry.dtype == DType::float32)
            CounterRandom{1, stream++}.fill_normal(field->view<float>().elements(), 0, 0.02f);
        }
  LonePort data(layout.data), tensor(layout.tensor), pipeline(layout.pipeline), node(std::min(cluster.devices_per_node, layout.ranks()));
  Measurement result;
  MeasuredSteps& measured = result.steps;
  double planned = 0;
  for (graph::State const& state : states) planned += static_cast<double>(state.bytes());
  measured.ranks_on_node = std::min(cluster.devices_per_node, layout.ranks());
  measured.threads = cluster.threads;
  Shared<graph::Workspace> const workspace = graph::Workspace::of(all);
  planned += static_cast<double>(workspace->arena.bytes() + workspace->communicator.bytes());
  for (std::size_t i = 0; i < all.size(); ++i) {
    graph::StepList const& list = all[i]->list;
    graph::Executor executor(context, *all[i], state_of(i),
                             {.port = &data, .tensor = &tensor, .pipeline = &pipeline,
                              .node = layout.zero > 0 ? &data : &node, .workspace = workspace, .profile = true});
    for (graph::Entry const& entry : list.inputs) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(std::max<std::int64_t>(entry.shape.size(), 1)));
      if (entry.dtype == DType::int32 && entry.shape.rank() > 0) {
        for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int32_t>(k * 7 % 2);
        executor.set(entry.name, entry.dtype, entry.shape, ids.data(), where);
      } else {
        executor.set(entry.name, 1.0, where);
      }
    }
    if (executor.takes("learning_rate")) optim::set_step(executor, work.optimizer, 1e-4, 1);
    nn::StepRandom::set(executor, 1, 0, 0);
    std::size_t const steps = list.steps.size();
    std::vector<std::pair<double, std::vector<double>>> times;  // of all ranks together, and of steps here
    std::vector<std::int64_t> before(steps, 0);
    executor.run(where);  // touches memory for the first time
    most(0);
    std::int64_t const begin = exec::now_ns();
    executor.run(where);
    // Where ranks take turns at processors, a run must last for several turns to be one in company.
    double const once = most(static_cast<double>(exec::now_ns() - begin) / 1e9);
    auto const row = static_cast<std::int64_t>(std::ceil(std::min(100.0, 0.02 / std::max(once, 1e-6))));
    for (std::size_t s = 0; s < steps; ++s) before[s] = executor.profile().nanoseconds(s);
    for (int run = 0; run < runs; ++run) {
      most(0);
      std::int64_t const from = exec::now_ns();
      for (std::int64_t again = 0; again < row; ++again) executor.run(where);
      most(0);
      // A rank that began late, since others had its processor, took as long as they all did.
      double const together = most(static_cast<double>(exec::now_ns() - from) / static_cast<double>(row));
      std::vector<double> taken(steps);
      for (std::size_t s = 0; s < steps; ++s) {
        std::int64_t const sum = executor.profile().nanoseconds(s);
        taken[s] = static_cast<double>(sum - before[s]) / static_cast<double>(row);
        before[s] = sum;
      }
      double const mine = std::accumulate(taken.begin(), taken.end(), 0.0);
      for (double& one : taken) one *= together / std::max(mine, 1.0);
      times.push_back({together, std::move(taken)});
    }
    std::sort(times.begin(), times.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    times.resize(std::max<std::size_t>(1, (times.size() + 3) / 4));
    for (std::size_t s = 0; s < steps; ++s) {
      Collective kind{};
      double bytes = 0, sum = 0;
      graph::Step const& step = list.steps[s];
      if (graph::is_wait(step.kind) || detail::collective_of(step, kind, bytes)) continue;
      for (auto const& run : times) sum += run.second[s];
      measured.add(list.steps[s], sum / static_cast<double>(times.size()) / 1e9);
    }
  }
  most(0);
  double const resident = static_cast<double>(train::ProcessUse::memory());
  result.beside = std::max(0.0, resident / ranks_of_process - planned);
  most(0);  // before any rank of this process gives memory back
  return result;
}

/// The link that explains how long sums over the ranks of `port` take, small ones and some of `bytes`: the median of
/// `runs` of each. Ranks: all. Blocking.
inline Link measure_link(comm::Port& port, bool shared_memory, std::int64_t bytes = std::int64_t{4} << 20, int runs = 9,
                         std::source_location where = std::source_location::current()) {
  std::int64_t const count = bytes / 4;
  void* const memory = port.allocate(static_cast<std::size_t>(bytes));
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  auto const time = [&](std::int64_t elements) {
    std::vector<double> seconds;
    for (int run = 0; run <= runs; ++run) {
      port.barrier(where);
      std::int64_t const begin = exec::now_ns();
      port.wait(port.start_all_reduce(memory, elements, DType::float32, comm::PortOp::sum, where));
      if (run > 0) seconds.push_back(static_cast<double>(exec::now_ns() - begin) / 1e9);
    }
    std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
    return seconds[static_cast<std::size_t>(runs / 2)];
  };
  double const small = time(2), large = time(count);
  port.release(memory);
  Ring const way = ring(Collective::all_reduce, static_cast<double>(bytes), port.size());
  double const rest = std::max(large - small, large / 20);  // where something else took its time of the small ones
  return {.bandwidth = (shared_memory ? static_cast<double>(bytes) : way.bytes()) / rest,
          .latency = shared_memory ? small : small / std::max(1, way.stages),
          .shared_memory = shared_memory};
}

}  // namespace tutti::plan
