// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The programs of a training step: one for each kind of its micro-steps, and one that evaluates.

#include <tutti/core/list.hpp>
#include <tutti/graph/packed.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/execution.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// Bytes of the memory in which these run, one at a time.
inline std::int64_t memory_of(std::vector<graph::Program const*> const& programs) {
  std::int64_t arena = 0, communicator = 0;
  for (graph::Program const* program : programs) {
    arena = std::max(arena, program->plan.arena_bytes);
    communicator = std::max(communicator, program->plan.communicator_bytes);
  }
  return arena + communicator;
}

/// Of a program that a step runs so often: its times.
struct ProfiledPass {
  std::int64_t runs = 1;
  graph::Profile const* profile = nullptr;
  std::string name{};  ///< of a pass of a pipeline; others are the micro-steps of a step, in their order
};

template <class Device>
class StepPrograms {
 public:
  using Program = typename Execution<Device>::Program;
  using Ready = typename Execution<Device>::Ready;

  explicit StepPrograms(std::int64_t micro_steps) : micro_steps_(micro_steps) {}

  bool planned() const noexcept { return !passes_.empty(); }
  /// `compiled(pass)` gives the program of a pass, or without one, where there is to be one, that of evaluation.
  template <class F>
  void plan(bool evaluates, F&& compiled) {
    using optim::Pass;
    auto const add = [&](Pass pass) { passes_.push_back({own(compiled(std::optional(pass))), nullptr}); };
    add(micro_steps_ == 1 ? Pass::whole : Pass::first);
    if (micro_steps_ > 2) add(Pass::middle);
    if (micro_steps_ > 1) add(Pass::last);
    if (evaluates) evaluation_.program = own(compiled(std::optional<Pass>()));
  }
  /// All of them, behind others.
  std::vector<graph::Program const*> list(std::vector<graph::Program const*> all = {}) {
    for (Runnable* runnable : runnables()) all.push_back(runnable->program.get());
    return all;
  }
  /// Makes executors, in memory that was taken for all of these programs.
  void prepare(Execution<Device>& execution, parallel::DataParallel const& ranks, bool keeps_packed, bool profile) {
    for (Runnable* runnable : runnables()) {
      bool const evaluates = runnable == &evaluation_;
      runnable->executor = execution.ready(
          *runnable->program, ranks, {keeps_packed && !evaluates, profile, evaluates || runnable == &passes_.back()});
    }
  }
  void clear() {
    passes_.clear();
    evaluation_ = {};
  }

  /// Of a micro-step.
  Ready& operator[](std::int64_t micro) const {
    bool const last = micro + 1 == micro_steps_;
    return *passes_[last ? passes_.size() - 1 : micro == 0 ? 0 : 1].executor;
  }
  /// The one that updates, with collectives.
  Ready& last() const { return *passes_.back().executor; }
  graph::StepList const& last_list() const { return passes_.back().program->list; }
  Ready& evaluation() const { return *evaluation_.executor; }

  /// Bytes of the weights that all micro-steps keep packed.
  std::int64_t packed_bytes() const { return graph::kept_bytes(passes_.front().program->list); }
  /// Bytes that this rank gives to collectives along an axis of the mesh in a step; or that it sends there, one of
  /// `ring_ranks`: graph::ring_bytes.
  std::int64_t sent_bytes(graph::MeshAxis axis, int ring_ranks) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      graph::StepList const& list = passes_[i].program->list;
      bytes +=
          runs_of(i) * (ring_ranks > 0 ? graph::ring_bytes(list, axis, ring_ranks) : graph::sent_bytes(list, axis));
    }
    return bytes;
  }
  /// The step table of the program that updates.
  std::string table() const { return to_string(*passes_.back().program); }
  /// In the order of their micro-steps.
  std::vector<ProfiledPass> profiles() const {
    std::vector<ProfiledPass> all;
    for (std::size_t i = 0; i < passes_.size(); ++i)
      all.push_back({runs_of(i), &passes_[i].executor->profile()});
    return all;
  }

 private:
  struct Runnable {
    std::unique_ptr<Program> program;
    std::unique_ptr<Ready> executor;
  };

  static std::unique_ptr<Program> own(Program program) {
    return std::make_unique<Program>(std::move(program));
  }
  List<Runnable*> runnables() {
    List<Runnable*> all;
    for (Runnable& runnable : passes_) all.push_back(&runnable);
    if (evaluation_.program) all.push_back(&evaluation_);
    return all;
  }
  /// Of a pass, in a step.
  std::int64_t runs_of(std::size_t i) const noexcept { return i == 1 && passes_.size() == 3 ? micro_steps_ - 2 : 1; }

  std::int64_t micro_steps_;
  std::vector<Runnable> passes_;
  Runnable evaluation_;
};

}  // namespace tutti::train
