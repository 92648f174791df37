// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A training step of a model that is cut into the stages of a pipeline: graphs and programs of every stage, without
/// the memory in which they run.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/amp.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/pipeline.hpp>
#include <tutti/parallel/pipeline_cut.hpp>
#include <tutti/parallel/stage_evaluation.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/step_programs.hpp>
#include <tutti/train/target_weights.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// Everything that one stage runs in a step.
struct CompiledStage {
  parallel::PipelineLayout layout;  ///< with the number of the stage
  parallel::StageParts parts;
  parallel::StageEvaluations evaluations;
  graph::Program update;

  std::vector<graph::Program const*> all() const {
    std::vector<graph::Program const*> all;
    for (parallel::StagePrograms const& of : parts.programs)
      for (graph::Program const* program : of.all()) all.push_back(program);
    for (graph::Program const& program : evaluations.programs) all.push_back(&program);
    all.push_back(&update);
    return all;
  }
  /// Of what a stage keeps for the backward passes of the micro-batches that are under way.
  std::int64_t activation_bytes(std::int64_t micro_steps) const {
    auto const tasks = pipeline_tasks(layout, micro_steps);
    std::int64_t bytes = 0;
    for (std::size_t mine = 0; mine < parts.programs.size(); ++mine)
      bytes += parallel::kept_micro_batches(tasks, static_cast<int>(mine)) *
               bytes_of(parts.programs[mine].graphs, "pipeline.");
    return bytes;
  }
  /// To the next stage from a part of this one, for a micro-batch; or back.
  std::int64_t message_bytes(std::size_t mine, bool back) const {
    return bytes_of(parts.programs[mine].graphs, back ? "pipeline.input_gradient." : "pipeline.output.");
  }
  /// As TrainStep's: to other stages what is sent, along the axis of data what is reduced.
  std::int64_t sent_bytes(graph::MeshAxis axis, int ring_ranks, std::int64_t micro_steps) const {
    auto const sent = [&](graph::Program const& program) {
      return ring_ranks > 0 ? graph::ring_bytes(program.list, axis, ring_ranks) : graph::sent_bytes(program.list, axis);
    };
    bool const between = axis == graph::MeshAxis::pipeline;
    std::int64_t bytes = 0;
    for (std::size_t mine = 0; mine < parts.programs.size(); ++mine) {
      parallel::StagePrograms const& of = parts.programs[mine];
      bytes += between ? message_bytes(mine, false) + message_bytes(mine, true)
                       : sent(of.forward) + sent(of.backward) + (of.splits ? sent(of.inputs) : 0);
    }
    return micro_steps * bytes + (between ? 0 : sent(update));
  }
  /// The step tables.
  std::string table() const {
    std::string text;
    for (parallel::StagePrograms const& of : parts.programs)
      text += concat("forward\n", to_string(of.forward),
                     of.splits ? concat("gradient of inputs\n", to_string(of.inputs)) : std::string(), "backward\n",
                     to_string(of.backward));
    return concat(text, "update\n", to_string(update));
  }

 private:
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
};

/// Made from the graph of the loss alone; the same for all stages.
class PipelineModel {
 public:
  /// `model` is a micro-batch's loss, `evaluated` that of an evaluation. Errors: those of PipelineCut and of minimise;
  /// configuration, for what the schedule cannot do.
  PipelineModel(graph::Graph const& model, graph::Graph const& evaluated, optim::AnyOptimizer optimizer,
                TrainStepOptions const& options, std::source_location where)
      : options_(options),
        optimizer_(std::move(optimizer)),
        cut_(weighed(model, options), options.pipeline, where),
        evaluated_(evaluated, options.pipeline, where) {
    static_cast<void>(pipeline_tasks(options.pipeline, options.micro_steps, where));
    graph::Builder builder;
    builder.load(cut_.model());
    graph::Var const loss{&builder, builder.graph().find_output("loss")};
    trained_ = optim::detail::step_gradients(loss, optim::Pass::whole, step_options(1), where).parameters;
    for (optim::Trained const& trained : trained_)
      if (List<int> stages = cut_.owners(trained.parameter); stages.size() > 1)
        sums_.push_back({concat("accumulated.", name_of(trained.parameter)), std::move(stages)});
  }

  parallel::PipelineCut const& cut() const noexcept { return cut_; }
  /// Gradients of parameters that several stages have.
  List<parallel::StageSum> const& sums() const noexcept { return sums_; }

  /// Parameters and states of a stage, as leaves: what it has beside the fields of its update.
  graph::Graph fields(int stage) const {
    graph::Builder builder;
    parallel::detail::NodeCopier copier(cut_.model(), builder);
    for (graph::Parameter const& parameter : cut_.model().parameters)
      if (cut_.has(parameter, stage)) copier.add(parameter, cut_.shape_on(parameter, stage));
    for (graph::Id const id : cut_.model().states)
      if (cut_.has(id, stage)) copier.add(id);
    return builder.graph();
  }
  /// Norm, clipping and updates of a stage's parameters, from the sums of their gradients, averaged over `ranks` of the
  /// data axis; or of all, for a stage below 0. A parameter that several stages have counts once in the norm.
  graph::Graph update(int stage, int ranks) const {
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
      found.gradients.push_back(parallel::detail::state_of(builder, concat("accumulated.", name),
                                                           {DType::float32, parts, shape}));
      List<int> const owners = cut_.owners(parameter);
      trained.parameter = builder.graph().parameters.back();
      trained.counted = owners.empty() || owners[0] == stage;
      found.parameters.push_back(std::move(trained));
    }
    optim::detail::update_parameters(builder, found, optimizer_, step_options(ranks), where);
    return canonical(builder.graph());
  }
  /// For `ranks` of the data axis, which share out updates as `division` says.
  CompiledStage compile(int stage, int ranks, graph::Division const& division,
                        graph::Target target = graph::Target::cpu) const {
    auto const compiled = [&](graph::Graph const& graph, graph::Division const& of = {}) {
      graph::CompileOptions compiling;
      compiling.target = target;
      compiling.division = of;
      compiling.bucket_bytes = options_.bucket_bytes;
      return graph::compile(graph::amp(graph, options_.compute), compiling);
    };
    CompiledStage result{.layout = options_.pipeline, .parts = {{}, cut_.carried()}, .evaluations = {}, .update = {}};
    result.layout.stage = stage;
    for (int mine = 0; mine < result.layout.virtual_stages; ++mine) {
      int const part = result.layout.part(mine);
      parallel::StageGraphs graphs = parallel::stage_graphs(cut_.part(part), wishes(result.layout, mine));
      bool const splits = !graphs.inputs.updates.empty();
      result.parts.programs.push_back({compiled(graphs.forward), compiled(graphs.first_backward),
                                       compiled(graphs.backward), splits ? compiled(graphs.inputs) : graph::Program(),
                                       {}, splits});
      result.parts.programs.back().graphs = {std::move(graphs.forward), std::move(graphs.first_backward),
                                             std::move(graphs.backward), std::move(graphs.inputs)};
      result.evaluations.graphs.push_back(parallel::evaluation_graph(evaluated_.part(part)));
      result.evaluations.programs.push_back(compiled(result.evaluations.graphs.back()));
    }
    result.update = compiled(update(stage, ranks), division);
    return result;
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
  optim::StepOptions step_options(int ranks) const {
    return {.clip = options_.clip,
            .reduce = ranks > 1,
            .weight = options_.weight,
            .frozen = List<std::string_view>(options_.frozen.begin(), options_.frozen.end()),
            .groups = options_.groups,
            .compress = &options_.compress,
            .ranks = ranks,
            .stages = true};
  }
  std::string name_of(graph::Parameter const& parameter) const {
    return std::string(cut_.model().name(parameter.node));
  }
  /// Of a stage's part `mine`. Parts go back in descending order: the last one that has a parameter begins its sum.
  parallel::StageWishes wishes(parallel::PipelineLayout const& layout, int mine) const {
    parallel::StageWishes wishes{.share = options_.weight / static_cast<double>(options_.micro_steps),
                                 .recompute = options_.recompute,
                                 .splits = parallel::splits_backward(layout.schedule)};
    for (optim::Trained const& trained : trained_) {
      wishes.trained.push_back(name_of(trained.parameter));
      bool begun = false;
      for (int later = mine + 1; later < layout.virtual_stages && !cut_.divided(trained.parameter); ++later)
        begun = begun || cut_.reads(trained.parameter.node, layout.part(later));
      if (begun) wishes.begun.push_back(name_of(trained.parameter));
    }
    return wishes;
  }

  TrainStepOptions options_;
  optim::AnyOptimizer optimizer_;
  parallel::PipelineCut cut_, evaluated_;
  List<optim::Trained> trained_;   // of the whole model
  List<parallel::StageSum> sums_;  // of parameters that several stages have
};

}  // namespace tutti::train
