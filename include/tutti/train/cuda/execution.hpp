// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training steps on a CUDA device: `TrainStep<Loss, Cuda>` runs in a kernel::cuda::Blas.

#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/graph/cuda/executor.hpp>
#include <tutti/train/execution.hpp>

#include <memory>
#include <span>

namespace tutti::train {

/// Parameters and moments are on the device while it trains; the state that TrainStep shows is a copy in memory of the
/// host, brought up to date when it is asked for, and read back by the next step.
template <>
class Execution<Cuda> {
 public:
  using Context = kernel::cuda::Blas;
  using Program = graph::Program;
  using Ready = graph::cuda::Executor;
  static constexpr graph::Target target = graph::Target::cuda;
  static constexpr bool asynchronous = true, averages = true, pipelines = true;

  /// See parallel::StageExecution. What passes between stages passes through the host.
  class Part {
   public:
    explicit Part(Execution& of) : device_state_(state_, of.device_state_) {}
    Part(Part const&) = delete;
    Part& operator=(Part const&) = delete;
    graph::State& state() noexcept { return state_; }
    graph::cuda::DeviceState& device_state() noexcept { return device_state_; }
    void* read(graph::Field& field, std::source_location where) { return device_state_.read(field.name, where); }
    void* place(graph::Field& field, std::source_location where) { return device_state_.place(field.name, where); }
    void write(graph::Field& field, void const* from, std::source_location where) {
      device_state_.write(field.name, from, where);
    }

   private:
    graph::State state_;
    graph::cuda::DeviceState device_state_;
  };

  Execution(Context& context, graph::State& state)
      : context_(context), device_state_(context.context().stream(), state) {}

  exec::Context& host() {
    if (!host_) host_ = std::make_unique<exec::Context>();
    return *host_;
  }
  Program compile(graph::Graph const& graph, graph::CompileOptions const& options) {
    return graph::compile(graph, options);
  }
  void require_runnable() {}
  void close() { workspace_ = nullptr; }
  bool prepared() const noexcept { return static_cast<bool>(workspace_); }
  void prepare(std::span<graph::Program const* const> programs, parallel::DataParallel const& ranks) {
    workspace_ = graph::cuda::Workspace::of(context_.context().stream(), programs,
                                            ranks.device ? ranks.device.get() : ranks.tensor_device.get());
  }
  std::unique_ptr<Ready> ready(Program const& program, parallel::DataParallel const& ranks,
                               ExecutionSettings const& settings, Part* part = nullptr) {
    graph::cuda::ExecutorOptions options;
    bool const direct = ranks.device || ranks.tensor_device;
    options.port = direct ? ranks.device.get() : ranks.port.get();
    options.tensor = direct ? ranks.tensor_device.get() : ranks.tensor.get();
    options.pipeline = ranks.pipeline.get();
    if (part != nullptr) options.beside = ranks.pipeline.get();
    options.reach = direct ? graph::cuda::Reach::device : graph::cuda::Reach::host;
    options.workspace = workspace_;
    options.forgets_mistakes = settings.updates;
    options.profile = settings.profile;
    return std::make_unique<Ready>(context_, program, part != nullptr ? part->device_state() : device_state_, options);
  }
  template <class F>
  void share(Shared<comm::Port> const&, F&&) {}
  void begin_step() {}
  static void step(Ready& ready, std::source_location where) { ready.start(where); }
  void* read(graph::Field& field, std::source_location where) { return device_state_.read(field.name, where); }
  void write(graph::Field& field, void const* from, std::source_location where) {
    device_state_.write(field.name, from, where);
  }
  void state() {
    device_state_.to_host();
    device_state_.host_wrote();
  }

 private:
  Context& context_;
  std::unique_ptr<exec::Context> host_;
  graph::cuda::DeviceState device_state_;
  Shared<graph::cuda::Workspace> workspace_;
};
static_assert(Executor<Execution<Cuda>>);

}  // namespace tutti::train
