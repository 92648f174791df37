// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The loss of a batch by the stages of a pipeline, without a gradient.

#include <tutti/comm/port.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline.hpp>

#include <cstddef>
#include <deque>
#include <memory>
#include <source_location>
#include <vector>

namespace tutti::parallel {

/// The forward passes of a stage's parts alone.
struct StageEvaluations {
  std::vector<graph::Graph> graphs;      ///< evaluation_graphs
  std::vector<graph::Program> programs;  ///< compiled from them
};

/// The loss of a batch that every stage has, without a gradient: one forward pass, part after part.
class StageEvaluation {
 public:
  /// All of these outlive it, as those of StageRun.
  StageEvaluation(exec::Context& context, StageEvaluations const& parts, ReferPart refer, PipelineLayout const& layout,
                  DataParallel const& ranks, Shared<graph::Workspace> const& workspace)
      : layout_(layout), port_(*ranks.pipeline), messages_(port_) {
    for (std::size_t part = 0; part < parts.graphs.size(); ++part) {
      graph::State& own = own_.emplace_back();
      refer(own, static_cast<int>(part));
      own.add(parts.graphs[part]);
      executors_.push_back(std::make_unique<graph::Executor>(
          context, parts.programs[part], own,
          graph::ExecutorOptions{.port = ranks.port.get(), .tensor = ranks.tensor.get(), .workspace = workspace}));
    }
  }
  /// `give` gives the program its inputs. Ranks: all stages, which get the same loss. Blocking.
  double operator()(FunctionRef<void(graph::Executor&)> give, std::source_location where) {
    double loss = 0;
    int const stages = layout_.stages;
    for (std::size_t i = 0; i < executors_.size(); ++i) {
      int const part = layout_.part(static_cast<int>(i));
      bool const last = part + 1 == layout_.parts();
      if (part > 0) pass(own_[i], true, (layout_.stage + stages - 1) % stages, where);
      give(*executors_[i]);
      executors_[i]->run(where);
      if (last) loss = executors_[i]->value("loss");
      else pass(own_[i], false, (layout_.stage + 1) % stages, where);
    }
    port_.wait(port_.start_broadcast(&loss, 1, DType::float64, stages - 1, where));
    return loss;
  }

 private:
  void pass(graph::State& own, bool comes, int rank, std::source_location where) {
    for (std::size_t i = 0;; ++i) {
      graph::Field* const field = own.find(pipeline_name(comes ? "input" : "output", i));
      if (field == nullptr) break;
      int const tag = 2 * static_cast<int>(i);
      if (comes) messages_.receive(field->data(), field->bytes(), rank, tag, where);
      else messages_.send(field->data(), field->bytes(), rank, tag, where);
    }
    messages_.wait();
  }

  PipelineLayout layout_;
  comm::Port& port_;
  std::deque<graph::State> own_;  // by part, where executors refer to it
  StageMessages messages_;
  std::vector<std::unique_ptr<graph::Executor>> executors_;
};

}  // namespace tutti::parallel
