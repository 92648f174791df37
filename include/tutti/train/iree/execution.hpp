// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training steps by IREE: `TrainStep<Loss, Iree>` runs in a graph::iree::Runner.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/iree/executor.hpp>
#include <tutti/train/execution.hpp>

#include <memory>
#include <source_location>
#include <span>
#include <string>

namespace tutti::train {

/// Parameters and moments are with IREE while it trains, as they are on a GPU with Execution<Cuda>.
template <>
class Execution<Iree> {
 public:
  using Context = graph::iree::Runner;
  using Program = graph::iree::Program;
  using Ready = graph::iree::Executor;
  static constexpr graph::Target target = graph::Target::iree;
  static constexpr bool asynchronous = false, averages = false, pipelines = false;

  Execution(Context& context, graph::State& state) : context_(context), state_(context, state) {}

  exec::Context& host() {
    if (!host_) host_ = std::make_unique<exec::Context>();
    return *host_;
  }
  Program compile(graph::Graph const& graph, graph::CompileOptions const&) {
    Program program = graph::iree::compile(context_, graph);
    paths_.push_back(program.compiled.path);
    return program;
  }
  void require_runnable() {
    if (open_) return;
    try {
      context_.open();
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      std::string modules;
      for (std::string const& path : paths_) modules += concat(modules.empty() ? "" : ", ", path);
      throw Error(ErrorKind::unavailable, "iree",
                  concat("iree:", context_.device().text(),
                         " cannot run on this machine, for which IREE finds no device: ", error.message(),
                         ". What was compiled for it lies in ", modules));
    }
    open_ = true;
  }
  void prepare(std::span<graph::Program const* const>, parallel::DataParallel const&) { prepared_ = true; }
  bool prepared() const noexcept { return prepared_; }
  std::unique_ptr<Ready> ready(Program const& program, parallel::DataParallel const&, ExecutionSettings const&) {
    return std::make_unique<Ready>(program, state_);
  }
  template <class F>
  void share(Shared<comm::Port> const&, F&&) {}
  void begin_step() {}
  static void step(Ready& ready, std::source_location where) { ready.run(where); }
  void state() {
    state_.to_host();
    state_.host_wrote();
  }
  void close() {
    state();
    paths_.clear();
    prepared_ = false;
  }

 private:
  Context& context_;
  graph::iree::DeviceState state_;
  List<std::string> paths_;
  std::unique_ptr<exec::Context> host_;  // made when it is first asked for
  bool open_ = false, prepared_ = false;
};
static_assert(Executor<Execution<Iree>>);

}  // namespace tutti::train
