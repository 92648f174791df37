// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What differs between devices in a training step: where programs run, and where parameters and moments are.

#include <tutti/core/shared.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/tensor/device.hpp>

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <utility>

namespace tutti::train {

/// How the executor of one program is made.
struct ExecutionSettings {
  bool keeps_packed = false;  ///< products keep what they packed from the state
  bool profile = false;
  bool updates = true;        ///< the last program of a step
};

/// Specialised for every device that trains: `Cpu` here, `Cuda` in tutti/train/cuda/execution.hpp. Borrows what it runs
/// in and the state.
template <class Device>
class Execution;

template <>
class Execution<Cpu> {
 public:
  using Context = exec::Context;
  using Executor = graph::Executor;
  static constexpr graph::Target target = graph::Target::cpu;
  static constexpr bool asynchronous = false;  ///< whether `start` returns before a run is done

  Execution(Context& context, graph::State& state) : context_(context), state_(state) {}

  /// Gives back the memory of programs; their executors are gone.
  void release() {
    workspace_ = nullptr;
    packed_ = {};
  }
  bool prepared() const noexcept { return static_cast<bool>(workspace_); }
  /// Takes the memory that these programs need. Ranks: all. Errors: out_of_memory.
  void prepare(std::span<graph::Program const* const> programs, parallel::DataParallel const& ranks) {
    // Where sums of activations travel, in the midst of the work, their memory is what is reached without a copy.
    workspace_ = graph::Workspace::of(programs, ranks.tensor ? ranks.tensor.get() : ranks.port.get());
  }
  std::unique_ptr<Executor> executor(graph::Program const& program, parallel::DataParallel const& ranks,
                                     ExecutionSettings const& settings) {
    return std::make_unique<Executor>(context_, program, state_,
                                      graph::ExecutorOptions{.port = ranks.port.get(),
                                                             .tensor = ranks.tensor.get(),
                                                             .node = (ranks.sharded ? ranks.port : ranks.node).get(),
                                                             .workspace = workspace_,
                                                             .packed = settings.keeps_packed ? &packed_ : nullptr,
                                                             .profile = settings.profile});
  }
  /// A node's ranks have one copy of these fields from now on, where they share memory. Ranks: all.
  template <class F>
  void share(Shared<comm::Port> const& node, F&& wanted) {
    if (node && node->size() > 1) state_.share(node, std::forward<F>(wanted));
  }
  /// A step begins: what was packed of the state before is out of date.
  void begin_step() { packed_.expire(); }
  static void start(Executor& executor, std::source_location where) { executor.run(where); }
  /// Somebody looks at the state from outside, and may write it.
  void show_state() noexcept {}

 private:
  Context& context_;
  graph::State& state_;
  Shared<graph::Workspace> workspace_;
  graph::PackedOperands packed_;  // of the programs of a step's micro-steps
};

}  // namespace tutti::train
