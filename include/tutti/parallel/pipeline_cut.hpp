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
#include <tutti/parallel/node_copier.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::parallel {

/// Names of what passes between stages, value `i` of those that the loop carries from layer to layer.
inline std::string pipeline_name(char const* what, std::size_t i) { return concat("pipeline.", what, ".", i); }

/// The parts of a model that the stages of a pipeline have: one each, or several. The loop over its Stack with the most
/// layers is divided: each part has some layers, one behind the other. What stands before the loop belongs to the first
/// part, what depends on the loop to the last one. What layers or the last part read of values from before the loop
/// (positions, masks) each part computes for itself. A parameter that several stages read (tied embeddings) each of
/// them has, with an addend of its gradient.
class PipelineCut {
 public:
  /// `model` has the output "loss". Errors: unavailable, for a model that cannot be cut, with the reason;
  /// configuration, in figures, for layers that stages do not divide.
  PipelineCut(graph::Graph model, PipelineLayout const& layout,
              std::source_location where = std::source_location::current())
      : model_(std::move(model)), stages_(layout.stages), parts_(layout.parts()) {
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
    first_.push_back(0);
    if (std::string const wrong = divide_layers(layout); !wrong.empty()) refuse(ErrorKind::configuration, wrong);
    List<graph::Id> const reached = graph::reachable_order(model_, {loss_});
    List<char> above(model_.nodes.size(), char{0});
    above[at(loop_)] = 1;
    for (graph::Id id : reached)
      for (graph::Id operand : model_.operands(id)) above[at(id)] |= above[at(operand)];
    if (above[at(loss_)] == 0) refuse(ErrorKind::unavailable, concat(loop, "does not lead to the loss. Use one stage"));
    for (graph::Id id : reached)
      if (parts_ > 1 && model_.op(id) == graph::Op::result && model_.operand(id, 0) == loop_ &&
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
    for (int part = 0; part < parts_; ++part) needed_.push_back(needed_by(part));
    auto const keep_somewhere = [&](graph::Id id) {  // what nobody reads is in checkpoints as well
      bool read = false;
      for (List<char> const& needed : needed_) read = read || needed[at(id)] != 0;
      if (!read) needed_[0][at(id)] = 1;
    };
    for (graph::Parameter const& parameter : model_.parameters) keep_somewhere(parameter.node);
    for (graph::Id state : model_.states) keep_somewhere(state);
  }

  PipelineCut(graph::Graph model, int stages, std::source_location where = std::source_location::current())
      : PipelineCut(std::move(model), PipelineLayout{.stages = stages}, where) {}

  int stages() const noexcept { return stages_; }
  int parts() const noexcept { return parts_; }
  std::int64_t layers() const noexcept { return shape_.length; }
  graph::Graph const& model() const noexcept { return model_; }
  /// Values that pass from a part to the next.
  int carried() const noexcept { return shape_.carried; }

  /// Of a part; and the number of its first one in the model.
  std::int64_t layers_of(int part) const { return first_[at(part + 1)] - first_[at(part)]; }
  std::int64_t first_layer(int part) const { return first_[at(part)]; }
  /// Layers of a stage: those of its parts, one part behind the other, and where a part's begin among them.
  std::int64_t layers_on(int stage) const { return layer_on_stage(stage + parts_); }
  std::int64_t layer_on_stage(int part) const {
    std::int64_t layers = 0;
    for (int before = part % stages_; before < part && before < parts_; before += stages_) layers += layers_of(before);
    return layers;
  }

  /// Whether a stage has some layers of this parameter.
  bool divided(graph::Parameter const& parameter) const { return divided_[at(parameter.node)] != 0; }
  /// Whether stage `stage` reads this parameter, or its layers of it; of one that nobody reads the first
  /// has all.
  bool has(graph::Parameter const& parameter, int stage) const { return has(parameter.node, stage); }
  /// The same of any node of the model; of none no stage does.
  bool has(graph::Id node, int stage) const {
    bool found = false;
    for (int part = stage; part < parts_; part += stages_) found = found || reads(node, part);
    return found;
  }
  /// Whether part `part` does.
  bool reads(graph::Id node, int part) const { return node != graph::none && needed_[at(part)][at(node)] != 0; }
  /// The stages that have the whole parameter, in ascending order; none of one that is divided or that nobody reads.
  List<int> owners(graph::Parameter const& parameter) const {
    List<int> stages;
    for (int stage = 0; stage < stages_ && !divided(parameter); ++stage)
      if (has(parameter, stage)) stages.push_back(stage);
    return stages;
  }
  /// Of what a stage has of it.
  Shape shape_on(graph::Parameter const& parameter, int stage) const {
    Shape const& shape = model_.shape(parameter.node);
    return divided(parameter) ? shape.with(0, layers_on(stage)) : shape;
  }

  /// A part as a graph of its own. It reads states "pipeline.input.i", but for the first, and has outputs
  /// "pipeline.output.i", or the last one "loss".
  graph::Graph part(int number) const {
    graph::Builder builder;
    detail::NodeCopier copier(model_, builder);
    List<char> const& needed = needed_[at(number)];
    for (graph::Id id = 0; id < model_.size(); ++id) {
      if (needed[at(id)] == 0) continue;
      if (id == loop_) add_loop(copier, builder, number);
      else if (divided_[at(id)] != 0) add_layers(copier, id, number);
      else copier.add(id);
    }
    builder.copy_source(model_.source(loop_), model_[loop_].line);
    if (number + 1 == parts_) {
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

  /// Sets the first layer of each part; says why that cannot be.
  std::string divide_layers(PipelineLayout const& layout) {
    std::int64_t const length = shape_.length;
    std::string const of = concat("the ", length, " layers of the model do not divide among ", stages_, " stages");
    if (!layout.layers.empty()) {
      for (std::int64_t layers : layout.layers) first_.push_back(first_.back() + std::max<std::int64_t>(layers, 0));
      bool fits = static_cast<int>(layout.layers.size()) == parts_ && first_.back() == length;
      for (std::int64_t layers : layout.layers) fits = fits && layers > 0;
      return fits ? std::string()
                  : concat(of, " as said, of which each has at least one: say ", parts_, " numbers that add up to ",
                           length);
    }
    if (parts_ >= 1 && length % parts_ == 0) {
      for (int part = 1; part <= parts_; ++part) first_.push_back(length / parts_ * part);
      return {};
    }
    std::string fitting;
    for (std::int64_t n = 1; n <= length; ++n)
      if (length % n == 0) fitting += concat(fitting.empty() ? "" : ", ", n);
    return parts_ == stages_ ? concat(of, ". Use one of ", fitting, ", or say how many layers each stage has")
                             : concat(of, " with ", layout.virtual_stages, " parts each, which are ", parts_,
                                      ". Use as many parts as one of ", fitting);
  }
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
  /// The nodes of the model that a part has.
  List<char> needed_by(int part) const {
    List<char> needed(model_.nodes.size(), char{0});
    needed[at(loop_)] = 1;
    if (part + 1 == parts_) needed[at(loss_)] = 1;
    for (graph::Id id = model_.size(); id-- > 0;) {
      if (needed[at(id)] == 0) continue;
      auto const operands = model_.operands(id);
      for (std::size_t i = id == loop_ && part > 0 ? at(shape_.carried) : 0; i < operands.size(); ++i)
        needed[at(operands[i])] = 1;
    }
    return needed;
  }
  void add_layers(detail::NodeCopier& copier, graph::Id id, int number) const {
    for (graph::Parameter const& parameter : model_.parameters)
      if (parameter.node == id) copier.add(parameter, model_.shape(id).with(0, layers_of(number)));
  }
  void add_loop(detail::NodeCopier& copier, graph::Builder& builder, int number) const {
    std::int64_t const layers = layers_of(number), first = first_layer(number);
    List<graph::Id> operands;
    for (int i = 0; i < static_cast<int>(model_.operands(loop_).size()); ++i) {
      graph::Id const operand = model_.operand(loop_, i);
      copier.trace(loop_);
      if (i < shape_.carried && number > 0)
        operands.push_back(detail::state_of(builder, pipeline_name("input", at(i)), model_.type(loop_, i)).id);
      else if (i >= shape_.carried + shape_.invariants && divided_[at(operand)] == 0 && parts_ > 1)
        operands.push_back(sliced(copier.var(operand), first, layers).id);
      else operands.push_back(copier[operand]);
    }
    List<std::int64_t> integers{model_.integers(loop_).begin(), model_.integers(loop_).end()};
    integers[0] = layers;
    copier.set(loop_, copier.copy(loop_, std::move(operands), std::move(integers)));
  }
  static graph::Var sliced(graph::Var stacked, std::int64_t first, std::int64_t count) {
    Shape const shape = stacked.shape();
    List<std::int64_t> starts(at(shape.rank()), 0), limits(shape.begin(), shape.end());
    starts[0] = first;
    limits[0] = first + count;
    return graph::slice(stacked, std::move(starts), std::move(limits));
  }

  graph::Graph model_;
  int stages_, parts_;
  List<std::int64_t> first_;  // layer of each part, and the number of all
  graph::Id loss_ = graph::none, loop_ = graph::none;
  graph::RepeatShape shape_;
  List<char> divided_;        // by node of the model: a parameter of which each part has its layers
  List<List<char>> needed_;   // by part and node
};

}  // namespace tutti::parallel
