// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A training step of which this rank does a stage: its programs, its part of the state, and the whole of it.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/graph/amp.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline.hpp>
#include <tutti/parallel/pipeline_cut.hpp>
#include <tutti/parallel/rank_parts.hpp>
#include <tutti/parallel/sections.hpp>
#include <tutti/train/stage_state.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/step_programs.hpp>
#include <tutti/train/target_weights.hpp>
#include <tutti/train/whole_state.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// A stage's part of a TrainStep, made from the graph of the loss alone.
/// Ranks  where a function says so all stages of the pipeline, in the same order
class PipelinedStep {
 public:
  using Give = parallel::StageRun::Give;

  /// `model` is a micro-batch's loss, `evaluated` that of an evaluation; `state` gets the fields of this stage and
  /// outlives this. Errors: those of PipelineCut and of minimise; configuration, for a stage that there is not.
  PipelinedStep(graph::Graph const& model, graph::Graph const& evaluated, optim::AnyOptimizer optimizer,
                TrainStepOptions const& options, graph::State& state, std::source_location where)
      : options_(options),
        layout_(options.pipeline),
        optimizer_(std::move(optimizer)),
        state_(state),
        cut_(weighed(model, options), layout_, where),
        evaluated_(evaluated, layout_, where) {
    if (layout_.stage < 0 || layout_.stage >= layout_.stages)
      throw Error(ErrorKind::configuration, "TrainStep",
                  concat("stage ", layout_.stage, " of a pipeline of ", layout_.stages, " does not exist"), where);
    static_cast<void>(pipeline_tasks(layout_, options.micro_steps, where));  // refuses what a schedule cannot do
    graph::Builder builder;
    builder.load(cut_.model());
    graph::Var const loss{&builder, builder.graph().find_output("loss")};
    trained_ = optim::detail::step_gradients(loss, optim::Pass::whole, step_options(false), where).parameters;
    for (graph::Parameter const& parameter : cut_.model().parameters) {
      if (!cut_.has(parameter, layout_.stage)) continue;
      graph::Field* const field =
          state_.add(name_of(parameter), DType::float32, cut_.shape_on(parameter, layout_.stage), parameter.init);
      field->parameter = true;
      field->stacked = parameter.stacked;
    }
    for (std::size_t i = 0; i < cut_.model().states.size(); ++i)
      if (graph::Id const id = cut_.model().states[i]; cut_.has(id, layout_.stage))
        state_.add(cut_.model().name(id), cut_.model().dtype(id), cut_.model().shape(id),
                   cut_.model().state_inits[i]);
    state_.add(update_graph(layout_.stage, false));
    for (optim::Trained const& trained : trained_)
      if (List<int> stages = cut_.owners(trained.parameter); stages.size() > 1)
        sums_.push_back({concat("accumulated.", name_of(trained.parameter)), std::move(stages)});
  }
  PipelinedStep(PipelinedStep const&) = delete;
  PipelinedStep& operator=(PipelinedStep const&) = delete;

  /// Of the whole model, of which a rank has these parts, or the stages of such ranks together.
  std::int64_t parameter_count(parallel::RankParts const& parts) const { return parameters_of_whole(list(), parts); }
  /// The same of what this stage has.
  parallel::RankParts on_stage(parallel::RankParts const& parts) const {
    return parts.on_stage(cut_.layers_on(layout_.stage), [&](std::string_view name) {
      for (graph::Parameter const& parameter : cut_.model().parameters)
        if (cut_.model().name(parameter.node) == name) return cut_.divided(parameter);
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
    bool const averages = ranks_.port && ranks_.port->size() > 1;
    auto const compiled = [&](graph::Graph const& graph) {
      graph::CompileOptions compiling;
      compiling.bucket_bytes = options_.bucket_bytes;
      return graph::compile(graph::amp(graph, options_.compute), compiling);
    };
    programs_ = {{}, cut_.carried()};
    evaluations_ = {};
    for (int mine = 0; mine < layout_.virtual_stages; ++mine) {
      int const part = layout_.part(mine);
      parallel::StageGraphs graphs = parallel::stage_graphs(cut_.part(part), wishes(mine));
      bool const splits = !graphs.inputs.updates.empty();
      programs_.programs.push_back({compiled(graphs.forward), compiled(graphs.first_backward),
                                    compiled(graphs.backward), splits ? compiled(graphs.inputs) : graph::Program(),
                                    {}, splits});
      programs_.programs.back().graphs = {std::move(graphs.forward), std::move(graphs.first_backward),
                                          std::move(graphs.backward), std::move(graphs.inputs)};
      evaluations_.graphs.push_back(parallel::evaluation_graph(evaluated_.part(part)));
      evaluations_.programs.push_back(compiled(evaluations_.graphs.back()));
    }
    graph::CompileOptions dividing;
    dividing.division = parallel::division_of(ranks_, false);
    dividing.bucket_bytes = options_.bucket_bytes;
    update_program_ = graph::compile(graph::amp(update_graph(layout_.stage, averages), options_.compute), dividing);
    planned_ = true;
  }
  /// Takes the memory of programs. Errors: invalid_argument, unless connected.
  void prepare(exec::Context& context, std::source_location where) {
    if (run_) return;
    require_connected(where);
    plan();
    std::vector<graph::Program const*> const all = programs();
    comm::Port* const tensor = ranks_.tensor.get();
    workspace_ = graph::Workspace::of(all, tensor != nullptr ? tensor : ranks_.port.get());
    update_ = std::make_unique<graph::Executor>(
        context, update_program_, state_,
        graph::ExecutorOptions{.port = ranks_.port.get(),
                               .tensor = tensor,
                               .pipeline = ranks_.pipeline.get(),
                               .node = ranks_.sharded ? ranks_.port.get() : nullptr,
                               .workspace = workspace_,
                               .profile = options_.profile});
    auto const refer = [this](graph::State& to, int mine) { refer_part(to, mine); };
    evaluation_ =
        std::make_unique<parallel::StageEvaluation>(context, evaluations_, refer, layout_, ranks_, workspace_);
    run_ = std::make_unique<parallel::StageRun>(context, state_, programs_, refer, layout_, options_.micro_steps,
                                                ranks_, workspace_, options_.profile);
  }
  bool planned() const noexcept { return planned_; }
  /// Fields that the ranks of the data axis can share out, each updating its part; and the program that does.
  std::vector<std::string> moments() const {
    std::vector<std::string> names;
    graph::Graph const update = update_graph(layout_.stage, false);
    for (graph::Update const& one : update.updates)
      if (graph::is_divisible(update, one) && update.op(one.target) == graph::Op::state)
        names.emplace_back(update.name(one.target));
    return names;
  }
  graph::StepList const& update_list() const { return update_program_.list; }
  /// Times of every program of the stage; valid until the next call or `connect`.
  std::vector<ProfiledPass> profiles() {
    measured_ = run_->profiles();
    std::vector<ProfiledPass> all{{1, &update_->profile(), concat("stage ", layout_.stage, ", update")}};
    for (parallel::StageRun::Measured const& one : measured_)
      all.push_back({one.runs, &one.profile,
                     concat("stage ", layout_.stage, ", ",
                            layout_.virtual_stages > 1 ? concat("part ", one.part, ", ") : std::string(), one.what)});
    return all;
  }

  /// One update, number `update` counted from 1. Ranks: all. Blocking.
  StepResult step(Give give, double learning_rate, std::int64_t update, std::source_location where) {
    double loss = run_->passes(give, where);
    run_->add_up(sums_, where);
    optim::set_step(*update_, optimizer_, learning_rate, update);
    update_->run(where);
    int const last = layout_.stages - 1;
    if (layout_.stage == last) parallel::all_reduce(*ranks_.port, {&loss, 1}, comm::PortOp::avg, where);
    ranks_.pipeline->wait(ranks_.pipeline->start_broadcast(&loss, 1, DType::float64, last, where));
    StepResult result;
    result.loss = static_cast<float>(loss);
    result.grad_norm = static_cast<float>(update_->value("grad_norm"));
    result.add(graph::MeshAxis::pipeline, run_->waited_ns());
    result.add(update_->waits());
    return result;
  }
  double evaluate(FunctionRef<void(graph::Executor&)> give, std::source_location where) {
    return (*evaluation_)(give, where);
  }

  /// Of what activations of micro-batches under way keep, of gradients and of programs while they run.
  std::int64_t workspace_bytes() {
    plan();
    return memory_of(programs()) + activation_bytes();
  }
  /// Of those alone that a stage keeps for the backward passes of the micro-batches that are under way.
  std::int64_t activation_bytes() {
    plan();
    auto const tasks = pipeline_tasks(layout_, options_.micro_steps);
    std::int64_t bytes = 0;
    for (std::size_t mine = 0; mine < programs_.programs.size(); ++mine)
      bytes += parallel::kept_micro_batches(tasks, static_cast<int>(mine)) *
               bytes_of(programs_.programs[mine].graphs, "pipeline.");
    return bytes;
  }
  /// As TrainStep's: to other stages what is sent, along the axis of data what is reduced.
  std::int64_t sent_bytes(graph::MeshAxis axis, int ring_ranks) {
    plan();
    auto const sent = [&](graph::Program const& program) {
      return ring_ranks > 0 ? graph::ring_bytes(program.list, axis, ring_ranks) : graph::sent_bytes(program.list, axis);
    };
    bool const between = axis == graph::MeshAxis::pipeline;
    std::int64_t bytes = 0;
    for (std::size_t mine = 0; mine < programs_.programs.size(); ++mine) {
      parallel::StagePrograms const& of = programs_.programs[mine];
      bytes += !between ? sent(of.forward) + sent(of.backward) + (of.splits ? sent(of.inputs) : 0)
                        : bytes_of(of.graphs, "pipeline.output.") + bytes_of(of.graphs, "pipeline.input_gradient.");
    }
    return options_.micro_steps * bytes + (between ? 0 : sent(update_program_));
  }
  /// The step tables of the stage's programs.
  std::string table() {
    plan();
    std::string text;
    for (parallel::StagePrograms const& of : programs_.programs)
      text += concat("forward\n", to_string(of.forward),
                     of.splits ? concat("gradient of inputs\n", to_string(of.inputs)) : std::string(), "backward\n",
                     to_string(of.backward));
    return concat(text, "update\n", to_string(update_program_));
  }

 private:
  static graph::Graph weighed(graph::Graph const& model, TrainStepOptions const& options) {
    if (!options.weigh_targets) return model;
    graph::Graph of = model;
    graph::Id const loss = of.find_output("loss");
    of.outputs = {};
    graph::Builder builder;
    builder.load(std::move(of));
    builder.output("loss", graph::Var{&builder, loss} * builder.scalar(target_weight_name, DType::float32));
    return canonical(builder.graph());
  }
  optim::StepOptions step_options(bool averages) const {
    return {.clip = options_.clip,
            .reduce = averages,
            .weight = options_.weight,
            .frozen = List<std::string_view>(options_.frozen.begin(), options_.frozen.end()),
            .groups = options_.groups,
            .compress = &options_.compress,
            .ranks = ranks_.port ? ranks_.port->size() : 1,
            .stages = true};
  }
  std::string name_of(graph::Parameter const& parameter) const {
    return std::string(cut_.model().name(parameter.node));
  }
  /// Of the states whose names begin so, each counted once.
  static std::int64_t bytes_of(List<graph::Graph> const& graphs, std::string_view prefix) {
    std::int64_t bytes = 0;
    List<std::string_view> seen;
    for (graph::Graph const& graph : graphs)
      for (graph::Id id : graph.states) {
        std::string_view const name = graph.name(id);
        if (!name.starts_with(prefix) || graph::detail::contains(seen, name)) continue;
        seen.push_back(name);
        bytes += graph.shape(id).size() * static_cast<std::int64_t>(size_of(graph.dtype(id)));
      }
    return bytes;
  }
  /// Every one that runs.
  std::vector<graph::Program const*> programs() const {
    std::vector<graph::Program const*> all;
    for (parallel::StagePrograms const& of : programs_.programs)
      for (graph::Program const* program : of.all()) all.push_back(program);
    for (graph::Program const& program : evaluations_.programs) all.push_back(&program);
    all.push_back(&update_program_);
    return all;
  }
  /// Of this stage's part `mine`. Parts go back in descending order: the last one that has a parameter begins its sum.
  parallel::StageWishes wishes(int mine) const {
    parallel::StageWishes wishes{.share = options_.weight / static_cast<double>(options_.micro_steps),
                                 .recompute = options_.recompute,
                                 .splits = parallel::splits_backward(layout_.schedule)};
    for (optim::Trained const& trained : trained_) {
      wishes.trained.push_back(name_of(trained.parameter));
      bool begun = false;
      for (int later = mine + 1; later < layout_.virtual_stages && !cut_.divided(trained.parameter); ++later)
        begun = begun || cut_.reads(trained.parameter.node, layout_.part(later));
      if (begun) wishes.begun.push_back(name_of(trained.parameter));
    }
    return wishes;
  }
  /// What part `mine` has of the fields of this stage.
  void refer_part(graph::State& to, int mine) {
    int const part = layout_.part(mine);
    for (graph::Field const& field : state_.fields()) {
      std::string_view name = field.name;
      if (optim::is_accumulator(name)) name.remove_prefix(std::string_view("accumulated.").size());
      Shape shape = field.shape;
      std::int64_t offset = 0;
      for (graph::Parameter const& parameter : cut_.model().parameters)
        if (cut_.model().name(parameter.node) == name && cut_.divided(parameter)) {
          shape = shape.with(0, cut_.layers_of(part));
          offset = field.bytes() / cut_.layers_on(layout_.stage) * cut_.layer_on_stage(part);
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
    workspace_ = nullptr;
    planned_ = false;
  }

  /// Norm, clipping and updates of a stage's parameters, from the sums of their gradients; or of all, for a stage below
  /// 0. A parameter that several stages have counts once in the norm.
  graph::Graph update_graph(int stage, bool averages) const {
    graph::Where const where = graph::Where::current();
    graph::Builder builder;
    optim::detail::StepGradients found;
    for (optim::Trained trained : trained_) {
      graph::Parameter const parameter = trained.parameter;
      if (stage >= 0 && !cut_.has(parameter, stage)) continue;
      std::string const name = name_of(parameter);
      graph::Replications const parts = cut_.model().type(parameter.node).replication.with(
          graph::MeshAxis::pipeline, graph::Replication::varying);
      Shape const shape = stage < 0 ? cut_.model().shape(parameter.node) : cut_.shape_on(parameter, stage);
      found.wrt.push_back(builder.parameter(name, shape, parameter.init, parameter.stacked, where, parts));
      found.gradients.push_back(
          parallel::detail::state_of(builder, concat("accumulated.", name), {DType::float32, parts, shape}));
      List<int> const owners = cut_.owners(parameter);
      trained.parameter = builder.graph().parameters.back();
      trained.counted = owners.empty() || owners[0] == stage;
      found.parameters.push_back(std::move(trained));
    }
    optim::detail::update_parameters(builder, found, optimizer_, step_options(averages), where);
    return canonical(builder.graph());
  }

  StageState parts() const { return {cut_, layout_.stage, state_, update_graph(-1, false)}; }

  TrainStepOptions options_;
  parallel::PipelineLayout layout_;
  optim::AnyOptimizer optimizer_;
  graph::State& state_;
  parallel::PipelineCut cut_, evaluated_;
  List<optim::Trained> trained_;       // of the whole model
  List<parallel::StageSum> sums_;      // of parameters that several stages have
  parallel::DataParallel ranks_;       // before what uses them
  bool planned_ = false;
  parallel::StageParts programs_;
  parallel::StageEvaluations evaluations_;
  graph::Program update_program_;
  Shared<graph::Workspace> workspace_;
  std::unique_ptr<graph::Executor> update_;
  std::unique_ptr<parallel::StageEvaluation> evaluation_;
  std::unique_ptr<parallel::StageRun> run_;
  std::vector<parallel::StageRun::Measured> measured_;
};

}  // namespace tutti::train
