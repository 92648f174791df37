// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What differs between devices in a training step: how graphs become programs, where these run, and where parameters
/// and moments are.

#include <tutti/core/shared.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/tensor/device.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <string_view>
#include <utility>

namespace tutti::train {

/// How the executor of one program is made.
struct ExecutionSettings {
  bool keeps_packed = false;  ///< products keep what they packed from the state
  bool profile = false;
  bool updates = true;  ///< the last program of a step, or one that is run to its end before the next
};

/// One program that is ready to run: what `Executor::ready` gives.
template <class R>
concept ReadyProgram = requires(R& run, R const& seen, std::string_view name, double number,
                                TensorView<std::int32_t const> tokens, std::source_location where) {
  run.set(name, tokens, where);
  run.set(name, number, where);
  { seen.takes(name) } -> std::same_as<bool>;
  run.run(where);
  { seen.value(name) } -> std::convertible_to<double>;
  { seen.waits() } -> std::convertible_to<graph::AxisWaits>;
  seen.profile();
};

/// What a device does for training, `e` an `E`, made of what it runs in and the state, which it borrows:
///   E::Context, E::Program, E::Ready    what it runs in; a graph that was compiled; one that may run
///   E::target                           what graphs are compiled for
///   E::asynchronous                     whether `step` returns before a run is done; then Ready has `finish`,
///                                       and `led_by_host`: whether `step` waits for its collectives
///   E::averages                         whether programs may cross the ranks along the axis of data
///   e.host()                            -> exec::Context&, threads of the host
///   e.compile(graph, options)           -> E::Program
///   e.require_runnable()                after the last `compile`. Errors: unavailable, for a device that is not here
///   e.prepare(programs, ranks)          takes the memory that these programs need. Ranks: all
///   e.prepared()
///   e.ready(program, ranks, settings)   -> std::unique_ptr<E::Ready>; after `prepare`
///   E::pipelines                        whether a rank may be a stage of a pipeline; then E is a StageExecution too
///   e.share(port, wanted)               a node's ranks have one copy of these fields from now on, where they can
///   e.begin_step()                      what was packed of the state before is out of date
///   e.step(ready, where)                runs a program, or begins to
///   e.state()                           brings up to date the state, which somebody may look at and write from
///                                       outside; the next step reads it back
///   e.close()                           gives back the memory of programs, which are gone; `prepare` may follow
/// Models: `Execution<Cpu>` here, `Execution<Cuda>` and `Execution<Iree>` in tutti/train/cuda and tutti/train/iree.
template <class E>
concept Executor = std::constructible_from<E, typename E::Context&, graph::State&> && ReadyProgram<typename E::Ready> &&
                   std::derived_from<typename E::Program, graph::Program> &&
                   requires(E& e, E const& seen, graph::Graph const& graph, graph::CompileOptions const& options,
                            typename E::Program const& program, std::span<graph::Program const* const> programs,
                            parallel::DataParallel const& ranks, ExecutionSettings const& settings,
                            Shared<comm::Port> const& port, bool (&wanted)(graph::Field const&),
                            typename E::Ready& ready, std::source_location where) {
                     { E::target } -> std::convertible_to<graph::Target>;
                     { E::asynchronous } -> std::convertible_to<bool>;
                     { E::averages } -> std::convertible_to<bool>;
                     { E::pipelines } -> std::convertible_to<bool>;
                     { e.host() } -> std::same_as<exec::Context&>;
                     { e.compile(graph, options) } -> std::same_as<typename E::Program>;
                     e.require_runnable();
                     e.prepare(programs, ranks);
                     { seen.prepared() } -> std::same_as<bool>;
                     { e.ready(program, ranks, settings) } -> std::same_as<std::unique_ptr<typename E::Ready>>;
                     e.share(port, wanted);
                     e.begin_step();
                     E::step(ready, where);
                     e.state();
                     e.close();
                   };

/// Specialised for every device that trains.
template <class Device>
class Execution;

template <>
class Execution<Cpu> {
 public:
  using Context = exec::Context;
  using Program = graph::Program;
  using Ready = graph::Executor;
  static constexpr graph::Target target = graph::Target::cpu;
  static constexpr bool asynchronous = false, averages = true, pipelines = true;

  /// See parallel::StageExecution.
  class Part {
   public:
    explicit Part(Execution&) {}
    graph::State& state() noexcept { return state_; }
    static void* read(graph::Field& field, std::source_location) { return field.data(); }
    static void* place(graph::Field& field, std::source_location) { return field.data(); }
    static void write(graph::Field& field, void const* from, std::source_location) {
      if (from != field.data()) std::memcpy(field.data(), from, static_cast<std::size_t>(field.bytes()));
    }

   private:
    graph::State state_;
  };

  Execution(Context& context, graph::State& state) : context_(context), state_(state) {}

  exec::Context& host() noexcept { return context_; }
  Program compile(graph::Graph const& graph, graph::CompileOptions const& options) {
    return graph::compile(graph, options);
  }
  void require_runnable() {}
  void close() {
    workspace_ = nullptr;
    packed_ = {};
  }
  bool prepared() const noexcept { return static_cast<bool>(workspace_); }
  /// Errors: out_of_memory.
  void prepare(std::span<graph::Program const* const> programs, parallel::DataParallel const& ranks) {
    // Where sums of activations travel, in the midst of the work, their memory is what is reached without a copy.
    workspace_ = graph::Workspace::of(programs, ranks.tensor ? ranks.tensor.get() : ranks.port.get());
  }
  std::unique_ptr<Ready> ready(Program const& program, parallel::DataParallel const& ranks,
                               ExecutionSettings const& settings, Part* part = nullptr) {
    return std::make_unique<Ready>(context_, program, part != nullptr ? part->state() : state_,
                                   graph::ExecutorOptions{.port = ranks.port.get(),
                                                          .tensor = ranks.tensor.get(),
                                                          .pipeline = ranks.pipeline.get(),
                                                          .node = (ranks.sharded ? ranks.port : ranks.node).get(),
                                                          .beside = part != nullptr ? ranks.pipeline.get() : nullptr,
                                                          .workspace = workspace_,
                                                          .packed = settings.keeps_packed ? &packed_ : nullptr,
                                                          .profile = settings.profile});
  }
  template <class F>
  void share(Shared<comm::Port> const& node, F&& wanted) {
    if (node && node->size() > 1) state_.share(node, std::forward<F>(wanted));
  }
  void begin_step() { packed_.expire(); }
  static void step(Ready& ready, std::source_location where) { ready.run(where); }
  static void* read(graph::Field& field, std::source_location where) { return Part::read(field, where); }
  static void write(graph::Field& field, void const* from, std::source_location where) {
    Part::write(field, from, where);
  }
  void state() noexcept {}

 private:
  Context& context_;
  graph::State& state_;
  Shared<graph::Workspace> workspace_;
  graph::PackedOperands packed_;  // of the programs of a step's micro-steps
};
static_assert(Executor<Execution<Cpu>>);

}  // namespace tutti::train
