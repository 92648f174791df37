// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The graph of a loss cut into the stages of a pipeline, at its loop over a Stack of layers: a pass over the graph of
/// a model, which knows nothing of it.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/canonical.hpp>
#include <tutti/graph/ops.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::parallel {

/// Names of what passes between stages, value `i` of those that the loop carries from layer to layer.
inline std::string pipeline_name(char const* what, std::size_t i) { return concat("pipeline.", what, ".", i); }

namespace detail {

/// Copies nodes of one graph into a builder of another, operands first.
class NodeCopier {
 public:
  using Id = graph::Id;

  NodeCopier(graph::Graph const& from, graph::Builder& to)
      : from_(from), to_(to), ids_(from.nodes.size(), graph::none) {}

  Id operator[](Id id) const { return ids_[static_cast<std::size_t>(id)]; }
  graph::Var var(Id id) const { return {&to_, (*this)[id]}; }
  void set(Id id, Id made) { ids_[static_cast<std::size_t>(id)] = made; }
  void trace(Id id) { to_.copy_source(from_.source(id), from_[id].line); }

  /// A node whose operands are there; with other integers, where they are said.
  Id copy(Id id, List<Id> operands) {
    return copy(id, std::move(operands), {from_.integers(id).begin(), from_.integers(id).end()});
  }
  Id copy(Id id, List<Id> operands, List<std::int64_t> integers) {
    trace(id);
    graph::Draft draft = graph::draft(from_.op(id), std::move(operands), std::move(integers),
                                      {from_.reals(id).begin(), from_.reals(id).end()}, from_.type(id));
    draft.custom = from_[id].custom;
    if (from_[id].body != graph::none) draft.body = to_.add_body(from_.body(id));
    return to_.emit(std::move(draft));
  }
  List<Id> operands(Id id) const {
    List<Id> made;
    for (Id operand : from_.operands(id)) made.push_back((*this)[operand]);
    return made;
  }
  /// As `copy`, and leaves as they are there.
  void add(Id id) {
    trace(id);
    switch (from_.op(id)) {
      case graph::Op::input:
        return set(id, to_.input(from_.name(id), from_.dtype(id), from_.shape(id), from_.type(id).replication).id);
      case graph::Op::scalar: return set(id, to_.scalar(from_.name(id), from_.dtype(id)).id);
      case graph::Op::parameter:
        for (graph::Parameter const& parameter : from_.parameters)
          if (parameter.node == id) add(parameter, from_.shape(id));
        return;
      case graph::Op::state:
        for (std::size_t i = 0; i < from_.states.size(); ++i)
          if (from_.states[i] == id)
            set(id, to_.state(from_.name(id), from_.type(id), from_.state_inits[i], graph::state_update(from_, id)).id);
        return;
      default: return set(id, copy(id, operands(id)));
    }
  }
  void add(graph::Parameter const& parameter, Shape const& shape) {
    trace(parameter.node);
    set(parameter.node, to_.parameter(from_.name(parameter.node), shape, parameter.init, parameter.stacked,
                                      std::source_location::current(), from_.type(parameter.node).replication).id);
  }

 private:
  graph::Graph const& from_;
  graph::Builder& to_;
  List<Id> ids_;
};

}  // namespace detail

/// The stages of a model. The loop over its Stack with the most layers is divided: each stage has equally many layers,
/// one behind the other. What stands before the loop belongs to the first stage, what depends on the loop to the last
/// one. What layers or the last stage read of values from before the loop (positions, masks) each stage computes for
/// itself. A parameter that several stages read (tied embeddings) each of them has, with an addend of its gradient.
class PipelineCut {
 public:
  /// `model` has the output "loss". Errors: unavailable, for a model that cannot be cut, with the reason;
  /// configuration, in figures, for layers that stages do not divide.
  PipelineCut(graph::Graph model, int stages, std::source_location where = std::source_location::current())
      : model_(std::move(model)), stages_(stages) {
    auto const refuse = [&](ErrorKind kind, std::string text) {
      throw Error(kind, "pipeline", std::move(text), where);
    };
    loss_ = model_.find_output("loss");
    if (loss_ == graph::none) refuse(ErrorKind::invalid_argument, "the graph has no output \"loss\"");
    if (!model_.updates.empty())
      refuse(ErrorKind::unavailable,
             concat("the loss updates a state, '", model_.name(model_.updates[0].target),
                    "', which stages of a pipeline would do at different times. Use one stage"));
    loop_ = find_loop();
    if (loop_ == graph::none)
      refuse(ErrorKind::unavailable,
             "the model has no loop over a Stack of layers (graph::repeat) between whose layers it could be cut. Keep "
             "equal layers in a graph::Stack, or use one stage");
    shape_ = graph::repeat_shape(model_, loop_);
    std::string const loop = concat("the loop over layers (", model_.file(loop_), ":",
                                    std::to_string(model_[loop_].line), ") ");
    if (shape_.reversed) refuse(ErrorKind::unavailable, concat(loop, "goes from the last one back. Use one stage"));
    if (stages < 1 || shape_.length % stages != 0) {
      std::string fitting;
      for (std::int64_t n = 1; n <= shape_.length; ++n)
        if (shape_.length % n == 0) fitting += concat(fitting.empty() ? "" : ", ", n);
      refuse(ErrorKind::configuration, concat("the ", shape_.length, " layers of the model do not divide among ",
                                              stages, " stages. Use one of ", fitting));
    }
    List<graph::Id> const reached = graph::reachable_order(model_, {loss_});
    List<char> above(model_.nodes.size(), char{0});
    above[at(loop_)] = 1;
    for (graph::Id id : reached)
      for (graph::Id operand : model_.operands(id)) above[at(id)] |= above[at(operand)];
    if (above[at(loss_)] == 0) refuse(ErrorKind::unavailable, concat(loop, "does not lead to the loss. Use one stage"));
    for (graph::Id id : reached)
      if (stages > 1 && model_.op(id) == graph::Op::result && model_.operand(id, 0) == loop_ &&
          model_.integer(id) >= shape_.carried)
        refuse(ErrorKind::unavailable, concat(loop, "gives the loss values of every layer. Use one stage"));
    divided_.assign(model_.nodes.size(), char{0});
    for (int i = shape_.carried + shape_.invariants; i < static_cast<int>(model_.operands(loop_).size()); ++i) {
      graph::Id const operand = model_.operand(loop_, i);
      bool const stacked = model_.op(operand) == graph::Op::parameter;
      divided_[at(operand)] = stacked ? 1 : 0;
    }
    for (graph::Id id : reached) {  // whoever reads a parameter of layers otherwise needs all of it
      auto const operands = model_.operands(id);
      std::size_t const slices = at(shape_.carried + shape_.invariants);
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (id != loop_ || i < slices) divided_[at(operands[i])] = 0;
    }
    for (int stage = 0; stage < stages; ++stage) needed_.push_back(needed_by(stage));
    auto const keep_somewhere = [&](graph::Id id) {  // what nobody reads is in checkpoints as well
      bool read = false;
      for (List<char> const& needed : needed_) read = read || needed[at(id)] != 0;
      if (!read) needed_[0][at(id)] = 1;
    };
    for (graph::Parameter const& parameter : model_.parameters) keep_somewhere(parameter.node);
    for (graph::Id state : model_.states) keep_somewhere(state);
  }

  int stages() const noexcept { return stages_; }
  std::int64_t layers() const noexcept { return shape_.length; }
  graph::Graph const& model() const noexcept { return model_; }
  /// Values that pass from a stage to the next.
  int carried() const noexcept { return shape_.carried; }

  /// Whether a stage has some layers of this parameter.
  bool divided(graph::Parameter const& parameter) const { return divided_[at(parameter.node)] != 0; }
  /// Whether stage `stage` reads this parameter, or its layers of it; of one that nobody reads the first
  /// has all.
  bool has(graph::Parameter const& parameter, int stage) const { return has(parameter.node, stage); }
  /// The same of any node of the model; of none no stage does.
  bool has(graph::Id node, int stage) const { return node != graph::none && needed_[at(stage)][at(node)] != 0; }
  /// The stages that have the whole parameter, in ascending order; none of one that is divided or that nobody reads.
  List<int> owners(graph::Parameter const& parameter) const {
    List<int> stages;
    for (int stage = 0; stage < stages_ && !divided(parameter); ++stage)
      if (has(parameter, stage)) stages.push_back(stage);
    return stages;
  }
  /// Of what a stage has of it.
  Shape part_of(graph::Parameter const& parameter) const {
    Shape const& shape = model_.shape(parameter.node);
    return divided(parameter) ? shape.with(0, shape[0] / stages_) : shape;
  }

  /// A stage as a graph of its own. It reads states "pipeline.input.i", but for the first, and has outputs
  /// "pipeline.output.i", or the last one "loss".
  graph::Graph stage(int number) const {
    graph::Builder builder;
    detail::NodeCopier copier(model_, builder);
    List<char> const& needed = needed_[at(number)];
    for (graph::Id id = 0; id < model_.size(); ++id) {
      if (needed[at(id)] == 0) continue;
      if (id == loop_) add_loop(copier, builder, number);
      else if (divided_[at(id)] != 0) add_part(copier, id);
      else copier.add(id);
    }
    builder.copy_source(model_.source(loop_), model_[loop_].line);
    if (number + 1 == stages_) {
      builder.output("loss", copier.var(loss_));
    } else {
      for (int i = 0; i < shape_.carried; ++i)
        builder.output(pipeline_name("output", at(i)),
                       graph::detail::result(copier.var(loop_), i, graph::Where::current()));
    }
    return canonical(builder.graph());
  }

 private:
  static std::size_t at(auto index) { return static_cast<std::size_t>(index); }

  /// The longest loop over parameters of a Stack; of equally long ones the last.
  graph::Id find_loop() const {
    graph::Id found = graph::none;
    for (graph::Id id = 0; id < model_.size(); ++id) {
      if (model_.op(id) != graph::Op::repeat) continue;
      graph::RepeatShape const shape = graph::repeat_shape(model_, id);
      bool layers = false;
      for (int i = shape.carried + shape.invariants; i < static_cast<int>(model_.operands(id).size()); ++i)
        for (graph::Parameter const& parameter : model_.parameters)
          layers = layers || (parameter.stacked && parameter.node == model_.operand(id, i));
      if (layers && (found == graph::none || shape.length >= graph::repeat_shape(model_, found).length)) found = id;
    }
    return found;
  }
  /// The nodes of the model that a stage has.
  List<char> needed_by(int stage) const {
    List<char> needed(model_.nodes.size(), char{0});
    needed[at(loop_)] = 1;
    if (stage + 1 == stages_) needed[at(loss_)] = 1;
    for (graph::Id id = model_.size(); id-- > 0;) {
      if (needed[at(id)] == 0) continue;
      auto const operands = model_.operands(id);
      for (std::size_t i = id == loop_ && stage > 0 ? at(shape_.carried) : 0; i < operands.size(); ++i)
        needed[at(operands[i])] = 1;
    }
    return needed;
  }
  void add_part(detail::NodeCopier& copier, graph::Id id) const {
    for (graph::Parameter const& parameter : model_.parameters)
      if (parameter.node == id) copier.add(parameter, part_of(parameter));
  }
  void add_loop(detail::NodeCopier& copier, graph::Builder& builder, int number) const {
    std::int64_t const layers = shape_.length / stages_, first = number * layers;
    List<graph::Id> operands;
    for (int i = 0; i < static_cast<int>(model_.operands(loop_).size()); ++i) {
      graph::Id const operand = model_.operand(loop_, i);
      copier.trace(loop_);
      if (i < shape_.carried && number > 0)
        operands.push_back(builder.state(pipeline_name("input", at(i)), model_.type(loop_, i), graph::zeros(),
                                         graph::StateUpdate::replicated).id);
      else if (i >= shape_.carried + shape_.invariants && divided_[at(operand)] == 0 && stages_ > 1)
        operands.push_back(layers_of(copier.var(operand), first, layers).id);
      else operands.push_back(copier[operand]);
    }
    List<std::int64_t> integers{model_.integers(loop_).begin(), model_.integers(loop_).end()};
    integers[0] = layers;
    copier.set(loop_, copier.copy(loop_, std::move(operands), std::move(integers)));
  }
  static graph::Var layers_of(graph::Var stacked, std::int64_t first, std::int64_t count) {
    Shape const shape = stacked.shape();
    List<std::int64_t> starts(at(shape.rank()), 0), limits(shape.begin(), shape.end());
    starts[0] = first;
    limits[0] = first + count;
    return graph::slice(stacked, std::move(starts), std::move(limits));
  }

  graph::Graph model_;
  int stages_;
  graph::Id loss_ = graph::none, loop_ = graph::none;
  graph::RepeatShape shape_;
  List<char> divided_;        // by node of the model: a parameter of which each stage has its layers
  List<List<char>> needed_;   // by stage and node
};

}  // namespace tutti::parallel
