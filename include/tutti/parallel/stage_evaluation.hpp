// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The loss of a batch by the stages of a pipeline, without a gradient.

#include <tutti/comm/port.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline.hpp>

#include <cstddef>
#include <deque>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// The forward passes of a stage's parts alone.
struct StageEvaluations {
  std::vector<graph::Graph> graphs;      ///< evaluation_graphs
  std::vector<graph::Program> programs;  ///< compiled from them
};

/// The loss of a batch that every stage has, without a gradient: one forward pass, part after part.
template <StageExecution E>
class StageEvaluation {
 public:
  /// All of these outlive it, as those of StageRun.
  StageEvaluation(E& execution, StageEvaluations const& parts, ReferPart refer, PipelineLayout const& layout,
                  DataParallel const& ranks)
      : layout_(layout), port_(*ranks.pipeline), messages_(port_) {
    for (std::size_t part = 0; part < parts.graphs.size(); ++part) {
      typename E::Part& own = own_.emplace_back(execution);
      refer(own.state(), static_cast<int>(part));
      own.state().add(parts.graphs[part]);
      executors_.push_back(execution.ready(parts.programs[part], ranks, {false, false, true}, &own));
    }
  }
  /// `give` gives the program its inputs. Ranks: all stages, which get the same loss. Blocking.
  double operator()(FunctionRef<void(typename E::Ready&)> give, std::source_location where) {
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
  void pass(typename E::Part& own, bool comes, int rank, std::source_location where) {
    List<std::pair<graph::Field*, void*>> passed;
    for (std::size_t i = 0;; ++i) {
      graph::Field* const field = own.state().find(pipeline_name(comes ? "input" : "output", i));
      if (field == nullptr) break;
      void* const data = comes ? own.place(*field, where) : own.read(*field, where);
      passed.push_back({field, data});
      int const tag = 2 * static_cast<int>(i);
      if (comes) messages_.receive(data, field->bytes(), rank, tag, where);
      else messages_.send(data, field->bytes(), rank, tag, where);
    }
    messages_.wait();
    for (auto const& [field, data] : passed)
      if (comes) own.write(*field, data, where);
  }

  PipelineLayout layout_;
  comm::Port& port_;
  std::deque<typename E::Part> own_;  // by part, where executors refer to it
  StageMessages messages_;
  std::vector<std::unique_ptr<typename E::Ready>> executors_;
};

}  // namespace tutti::parallel
