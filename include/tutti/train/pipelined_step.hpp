// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A training step of which this rank does a stage: its programs, its part of the state, and the whole of it.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline.hpp>
#include <tutti/parallel/rank_parts.hpp>
#include <tutti/parallel/sections.hpp>
#include <tutti/parallel/stage_evaluation.hpp>
#include <tutti/train/stage_programs.hpp>
#include <tutti/train/stage_state.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/step_programs.hpp>
#include <tutti/train/whole_state.hpp>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// A stage's part of a TrainStep, made from the graph of the loss alone. What others see of the state, and write, is
/// the one in memory of the host: Execution::state.
/// Ranks  where a function says so all stages of the pipeline, in the same order
template <parallel::StageExecution E>
class PipelinedStep {
 public:
  using Run = parallel::StageRun<E>;
  using Give = typename Run::Give;

  /// `model` is a micro-batch's loss, `evaluated` that of an evaluation; `state` gets the fields of this stage and
  /// outlives this. Errors: those of PipelineCut and of minimise; configuration, for a stage that there is not.
  PipelinedStep(graph::Graph const& model, graph::Graph const& evaluated, optim::AnyOptimizer optimizer,
                TrainStepOptions const& options, graph::State& state, std::source_location where)
      : options_(options),
        layout_(options.pipeline),
        optimizer_(optimizer),
        state_(state),
        model_(model, evaluated, std::move(optimizer), options, where) {
    if (layout_.stage < 0 || layout_.stage >= layout_.stages)
      throw Error(ErrorKind::configuration, "TrainStep",
                  concat("stage ", layout_.stage, " of a pipeline of ", layout_.stages, " does not exist"), where);
    state_.add(model_.fields(layout_.stage));
    state_.add(model_.update(layout_.stage, 1));
  }
  PipelinedStep(PipelinedStep const&) = delete;
  PipelinedStep& operator=(PipelinedStep const&) = delete;

  /// Of the whole model, of which a rank has these parts, or the stages of such ranks together.
  std::int64_t parameter_count(parallel::RankParts const& parts) const { return parameters_of_whole(list(), parts); }
  /// The same of what this stage has.
  parallel::RankParts on_stage(parallel::RankParts const& parts) const {
    parallel::PipelineCut const& cut = model_.cut();
    return parts.on_stage(cut.layers_on(layout_.stage), [&](std::string_view name) {
      for (graph::Parameter const& parameter : cut.model().parameters)
        if (cut.model().name(parameter.node) == name) return cut.divided(parameter);
      return false;
    });
  }

  /// Between the state of this stage and that of a whole model: as StageState's.
  void fill(FunctionRef<void(graph::State&)> f, StageFields fields = StageFields::model) { parts().fill(f, fields); }
  void show(bool wanted, FunctionRef<void(graph::State&)> f, std::source_location where,
            StageFields fields = StageFields::model) {
    require_connected(where);
    parts().show(ranks_, options_.state_ranks > 1, wanted, f, where, fields);
  }
  graph::State list(std::string_view only = {}) const { return parts().list(only); }
  void take(graph::Field const& whole) { parts().take(whole); }
  void each_section(graph::Field const& whole, FunctionRef<void(std::int64_t, std::int64_t, std::int64_t)> f) {
    parts().each_section(whole, f);
  }
  graph::State collect(std::string_view name, std::source_location where) {
    require_connected(where);
    return parts().collect(*ranks_.pipeline, name, where);
  }
  void require_equal(std::string const& when, std::source_location where) const {
    if (ranks_.pipeline) parts().require_equal(*ranks_.pipeline, when, where);
  }

  /// Errors: invalid_argument, for other ranks than the step was made for.
  void connect(parallel::DataParallel const& ranks, std::source_location where) {
    int const stages = ranks.pipeline ? ranks.pipeline->size() : 1;
    if (stages != layout_.stages || ranks.pipeline->rank() != layout_.stage)
      throw Error(ErrorKind::invalid_argument, "TrainStep::connect",
                  concat("the step is stage ", layout_.stage, " of ", layout_.stages, ", and the ranks' pipeline has ",
                         stages, stages == layout_.stages
                                     ? concat(", of which this is rank ", ranks.pipeline->rank()) : std::string(),
                         ". Set TrainStepOptions::pipeline to this rank's place in the mesh"), where);
    release();
    ranks_ = ranks;
  }

  /// Compiles the programs. Does not communicate.
  void plan() {
    if (planned_) return;
    programs_ = model_.compile(layout_.stage, ranks_.port ? ranks_.port->size() : 1,
                               parallel::division_of(ranks_, false), E::target);
    planned_ = true;
  }
  /// Takes the memory of programs. Errors: invalid_argument, unless connected.
  void prepare(E& execution, std::source_location where) {
    if (run_) return;
    require_connected(where);
    plan();
    execution.prepare(programs_.all(), ranks_);
    update_ = execution.ready(programs_.update, ranks_, {false, options_.profile, true});
    auto const refer = [this](graph::State& to, int mine) { refer_part(to, mine); };
    evaluation_ =
        std::make_unique<parallel::StageEvaluation<E>>(execution, programs_.evaluations, refer, layout_, ranks_);
    run_ = std::make_unique<Run>(execution, state_, programs_.parts, refer, layout_, options_.micro_steps, ranks_,
                                 options_.profile);
  }
  bool planned() const noexcept { return planned_; }
  /// Fields that the ranks of the data axis can share out, each updating its part; and the program that does.
  std::vector<std::string> moments() const {
    std::vector<std::string> names;
    graph::Graph const update = model_.update(layout_.stage, 1);
    for (graph::Update const& one : update.updates)
      if (graph::is_divisible(update, one) && update.op(one.target) == graph::Op::state)
        names.emplace_back(update.name(one.target));
    return names;
  }
  graph::StepList const& update_list() const { return programs_.update.list; }
  /// Times of every program of the stage; valid until the next call or `connect`.
  std::vector<ProfiledPass> profiles() {
    measured_ = run_->profiles();
    std::vector<ProfiledPass> all{{1, &update_->profile(), concat("stage ", layout_.stage, ", update")}};
    for (parallel::MeasuredProgram const& one : measured_)
      all.push_back({one.runs, &one.profile,
                     concat("stage ", layout_.stage, ", ",
                            layout_.virtual_stages > 1 ? concat("part ", one.part, ", ") : std::string(), one.what)});
    return all;
  }

  /// One update, number `update` counted from 1. Ranks: all. Blocking.
  StepResult step(Give give, double learning_rate, std::int64_t update, std::source_location where) {
    double loss = run_->passes(give, where);
    run_->add_up(model_.sums(), where);
    optim::set_step(*update_, optimizer_, learning_rate, update);
    update_->run(where);
    StepResult result;
    auto const timed = [&](graph::MeshAxis axis, auto&& wait) {
      std::int64_t const begin = exec::now_ns();
      wait();
      result.add(axis, exec::now_ns() - begin);
    };
    int const last = layout_.stages - 1;
    if (layout_.stage == last)
      timed(graph::MeshAxis::data, [&] { parallel::all_reduce(*ranks_.port, {&loss, 1}, comm::PortOp::avg, where); });
    timed(graph::MeshAxis::pipeline,
          [&] { ranks_.pipeline->wait(ranks_.pipeline->start_broadcast(&loss, 1, DType::float64, last, where)); });
    result.loss = static_cast<float>(loss);
    result.grad_norm = static_cast<float>(update_->value("grad_norm"));
    result.add(run_->waits());
    result.add(update_->waits());
    return result;
  }
  double evaluate(FunctionRef<void(typename E::Ready&)> give, std::source_location where) {
    return (*evaluation_)(give, where);
  }

  /// Of what activations of micro-batches under way keep, of gradients and of programs while they run.
  std::int64_t workspace_bytes() {
    plan();
    return memory_of(programs_.all()) + programs_.activation_bytes(options_.micro_steps);
  }
  /// Of those alone that a stage keeps for the backward passes of the micro-batches that are under way.
  std::int64_t activation_bytes() {
    plan();
    return programs_.activation_bytes(options_.micro_steps);
  }
  /// As TrainStep's: to other stages what is sent, along the axis of data what is reduced.
  std::int64_t sent_bytes(graph::MeshAxis axis, int ring_ranks) {
    plan();
    return programs_.sent_bytes(axis, ring_ranks, options_.micro_steps);
  }
  /// The step tables of the stage's programs.
  std::string table() { return plan(), programs_.table(); }

 private:
  /// What part `mine` has of the fields of this stage.
  void refer_part(graph::State& to, int mine) {
    int const part = layout_.part(mine);
    parallel::PipelineCut const& cut = model_.cut();
    for (graph::Field const& field : state_.fields()) {
      std::string_view name = field.name;
      if (optim::is_accumulator(name)) name.remove_prefix(std::string_view("accumulated.").size());
      Shape shape = field.shape;
      std::int64_t offset = 0;
      for (graph::Parameter const& parameter : cut.model().parameters)
        if (cut.model().name(parameter.node) == name && cut.divided(parameter)) {
          shape = shape.with(0, cut.layers_of(part));
          offset = field.bytes() / cut.layers_on(layout_.stage) * cut.layer_on_stage(part);
        }
      to.refer(field.name, field.dtype, shape, static_cast<std::byte const*>(field.data()) + offset);
    }
  }
  void require_connected(std::source_location where) const {
    if (!ranks_.pipeline)
      throw Error(ErrorKind::invalid_argument, "TrainStep",
                  concat("the step is one of ", layout_.stages,
                         " stages of a pipeline and is not connected to the others. Call connect first"), where);
  }
  void release() {
    run_.reset(), evaluation_.reset(), update_.reset();
    planned_ = false;
  }

  StageState parts() const { return {model_.cut(), layout_.stage, state_, model_.update(-1, 1)}; }

  TrainStepOptions options_;
  parallel::PipelineLayout layout_;
  optim::AnyOptimizer optimizer_;
  graph::State& state_;
  PipelineModel model_;
  parallel::DataParallel ranks_;  // before what uses them
  bool planned_ = false;
  CompiledStage programs_;
  std::unique_ptr<typename E::Ready> update_;
  std::unique_ptr<parallel::StageEvaluation<E>> evaluation_;
  std::unique_ptr<Run> run_;
  std::vector<parallel::MeasuredProgram> measured_;
};

}  // namespace tutti::train
