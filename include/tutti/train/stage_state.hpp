// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between the state of a stage of a pipeline and that of a whole model: parameters, moments and states of the model's.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline.hpp>
#include <tutti/parallel/pipeline_cut.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// Of a whole model's state: all of it, or what each rank of the data axis has of its own.
enum class StageFields : unsigned char { model, own };

/// Of stage `stage` of a cut, whose fields `state` has. `update` is the graph of a whole model's update: its states,
/// but for sums of gradients, are the fields of a whole model beside the parameters.
class StageState {
 public:
  StageState(parallel::PipelineCut const& cut, int stage, graph::State& state, graph::Graph update)
      : cut_(cut), stage_(stage), state_(state), update_(std::move(update)) {}

  /// The fields of a whole model, in the order in which one rank has them, or the one of this name.
  graph::State list(std::string_view only = {}) const { return whole_fields(StageFields::model, only); }

  /// f(state) writes these fields of a whole model, of which this stage then takes its part.
  void fill(FunctionRef<void(graph::State&)> f, StageFields fields) const {
    graph::State whole = whole_fields(fields);
    f(whole);
    for (graph::Field const& field : whole.fields()) take(field);
  }
  /// This stage's part of a field of `list`, which has contents.
  void take(graph::Field const& whole) const {
    graph::Field* const field = state_.find(whole.name);
    for (int part = stage_; part < cut_.parts() && field != nullptr; part += cut_.stages()) {
      Section const section = section_of(whole, part);
      std::memcpy(static_cast<std::byte*>(field->data()) + section.in_stage,
                  static_cast<std::byte const*>(whole.data()) + section.in_whole,
                  static_cast<std::size_t>(section.bytes));
    }
  }
  /// f(in_whole, in_stage, bytes) for what this stage has of a field of `list`, and no stage before it: where it begins
  /// in the field and in this stage's one, in bytes.
  void each_section(graph::Field const& whole, FunctionRef<void(std::int64_t, std::int64_t, std::int64_t)> f) const {
    for (int const part : parts_of(whole)) {
      if (part % cut_.stages() != stage_) continue;
      Section const section = section_of(whole, part);
      f(section.in_whole, section.in_stage, section.bytes);
    }
  }
  /// The one of this name, with its contents on the first stage. Ranks: the stages of one pipeline. Blocking.
  graph::State collect(comm::Port& pipeline, std::string_view name, std::source_location where) const {
    graph::State one = list(name);
    graph::Field& whole = one.at(name);
    for (int const part : parts_of(whole)) hand_over(pipeline, whole, part, 0, where);
    return one;
  }
  /// f(state) sees these fields of the whole model on the stages that want it, on others nothing: of the first
  /// pipeline, of each with `parts` of what ranks of the data axis have, or of each what is its own. Ranks: all.
  /// Blocking.
  void show(parallel::DataParallel const& ranks, bool parts, bool wanted, FunctionRef<void(graph::State&)> f,
            std::source_location where, StageFields fields) const {
    graph::State whole;
    if (ranks.port->rank() == 0 || parts || fields == StageFields::own) {
      double any = wanted ? 1 : 0;  // of the ranks that have a part of this stage each, who join them afterwards
      if (ranks.tensor) any = parallel::largest(*ranks.tensor, any, where);
      if (parts) any = parallel::largest(*ranks.port, any, where);
      wanted = any != 0;
      std::vector<double> wants(static_cast<std::size_t>(cut_.stages()), 0.0);
      wants[static_cast<std::size_t>(stage_)] = wanted ? 1 : 0;
      parallel::all_reduce(*ranks.pipeline, wants, comm::PortOp::sum, where);
      graph::State all = whole_fields(fields);
      for (graph::Field& field : all.fields()) {
        for (int part : parts_of(field))
          for (int to = 0; to < cut_.stages(); ++to)
            if (wants[static_cast<std::size_t>(to)] != 0) hand_over(*ranks.pipeline, field, part, to, where);
      }
      if (wanted) whole = std::move(all);
    }
    f(whole);
  }
  /// Errors: communication, where stages differ in a parameter that several have. Ranks: all, of equal data ranks.
  void require_equal(comm::Port& pipeline, std::string const& when, std::source_location where) const {
    for (graph::Parameter const& parameter : cut_.model().parameters) {
      List<int> const stages = cut_.owners(parameter);
      graph::Field const* const field = state_.find(name_of(parameter));
      if (stages.size() < 2 || !graph::detail::contains(stages, stage_)) continue;
      std::uint64_t const mine = hash_bytes({static_cast<std::byte const*>(field->data()),
                                             static_cast<std::size_t>(field->bytes())}, 0);
      parallel::StageMessages messages(pipeline);
      if (stage_ != stages[0]) messages.send(&mine, sizeof mine, stages[0], hash_tag, where);
      std::vector<std::uint64_t> others(stages.size(), mine);
      for (std::size_t i = 1; i < stages.size() && stage_ == stages[0]; ++i)
        messages.receive(&others[i], sizeof mine, stages[i], hash_tag, where);
      messages.wait();
      for (std::size_t i = 0; i < stages.size(); ++i)
        if (others[i] != mine)
          throw Error(ErrorKind::communication, "TrainStep",
                      concat("stages ", stages[0], " and ", stages[i], " of the pipeline differ in '", field->name,
                             "', of which each has a copy, ", when, ". Give both the same values"), where);
    }
  }

 private:
  static constexpr int hash_tag = 32766, state_tag = 32765;

  std::string name_of(graph::Parameter const& parameter) const {
    return std::string(cut_.model().name(parameter.node));
  }
  graph::State whole_fields(StageFields fields, std::string_view only = {}) const {
    graph::State whole;
    graph::Graph const& model = cut_.model();
    for (graph::Parameter const& parameter : model.parameters) {
      if (fields == StageFields::own) break;
      if (!only.empty() && name_of(parameter) != only) continue;
      graph::Field* const field = whole.add(name_of(parameter), DType::float32, model.shape(parameter.node),
                                            parameter.init);
      field->parameter = true;
      field->stacked = parameter.stacked;
    }
    for (graph::Graph const* graph : {&model, &update_})
      for (std::size_t i = 0; i < graph->states.size(); ++i)
        if (graph::Id const id = graph->states[i];
            !optim::is_accumulator(graph->name(id)) && (only.empty() || graph->name(id) == only)) {
          bool const own = graph::state_update(*graph, id) == graph::StateUpdate::per_rank;
          if (own || fields == StageFields::model)
            whole.add(graph->name(id), graph->dtype(id), graph->shape(id), graph->state_inits[i])->per_rank = own;
        }
    return whole;
  }
  /// The parameter that a field of the whole model is, or that an optimizer or compressor keeps it for, as
  /// "PREFIX.NAME".
  std::optional<graph::Parameter> parameter_of(graph::Field const& whole) const {
    std::optional<graph::Parameter> best;
    for (graph::Parameter const& parameter : cut_.model().parameters) {
      std::string_view const name = cut_.model().name(parameter.node), field = whole.name;
      bool const kept = field.size() > name.size() && field.ends_with(name) &&
                        field[field.size() - name.size() - 1] == '.';
      if ((field == name || kept) && (!best || name.size() > cut_.model().name(best->node).size()))
        best = parameter;
    }
    return best;
  }
  bool divided(graph::Field const& whole) const {
    auto const parameter = parameter_of(whole);
    return parameter && cut_.divided(*parameter) && whole.shape.rank() > 0 && whole.shape[0] == cut_.layers();
  }
  /// Those that have something of it that others do not have.
  List<int> parts_of(graph::Field const& whole) const {
    auto const parameter = parameter_of(whole);
    graph::Id const node = parameter ? parameter->node : cut_.model().find_leaf(whole.name);
    List<int> parts;
    for (int part = 0; part < cut_.parts(); ++part)
      if (cut_.reads(node, part) && (parts.empty() || divided(whole))) parts.push_back(part);
    return parts;
  }
  struct Section {
    std::int64_t in_whole = 0, in_stage = 0, bytes = 0;  // where it begins
  };
  /// Of what a part of the model has, in the whole and on its stage.
  Section section_of(graph::Field const& whole, int part) const {
    if (!divided(whole)) return {0, 0, whole.bytes()};
    std::int64_t const layer = whole.bytes() / cut_.layers();
    return {layer * cut_.first_layer(part), layer * cut_.layer_on_stage(part), layer * cut_.layers_of(part)};
  }
  /// A part's section of a field goes into its place in the whole one of stage `to`.
  void hand_over(comm::Port& pipeline, graph::Field& whole, int part, int to, std::source_location where) const {
    int const stage = part % cut_.stages();
    if (stage_ != stage && stage_ != to) return;
    Section const section = section_of(whole, part);
    std::byte* const place = static_cast<std::byte*>(whole.data()) + section.in_whole;
    graph::Field const* const field = stage_ == stage ? state_.find(whole.name) : nullptr;
    auto const* const mine =
        field != nullptr ? static_cast<std::byte const*>(field->data()) + section.in_stage : nullptr;
    if (stage == to) return static_cast<void>(std::memcpy(place, mine, static_cast<std::size_t>(section.bytes)));
    parallel::StageMessages messages(pipeline);
    if (mine != nullptr) messages.send(mine, section.bytes, to, state_tag, where);
    else messages.receive(place, section.bytes, stage, state_tag, where);
    messages.wait();
  }

  parallel::PipelineCut const& cut_;
  int stage_;
  graph::State& state_;
  graph::Graph update_;
};

}  // namespace tutti::train
