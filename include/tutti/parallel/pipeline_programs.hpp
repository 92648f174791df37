// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The gradient of a part of a model as two programs: a forward pass that keeps what the backward pass reads, and the
/// backward pass. Between them other micro-batches have their turn.

#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/parallel/gradient_split.hpp>
#include <tutti/parallel/pipeline_cut.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::parallel {

/// What is wanted of the gradient of a part.
struct StageWishes {
  List<std::string> trained{};  ///< parameters whose gradients are
  List<std::string> begun{};    ///< of these, which another part of the same stage has in common and goes back before
  double share = 1;             ///< multiplies the loss
  graph::Recompute recompute = graph::Recompute::none;  ///< becomes that of every loop
  bool splits = false;  ///< gradients of what came in, and of parameters, are programs of their own
};

/// The graphs of a part. All they tell each other is in states, a set of its own for every micro-batch that is under
/// way: "pipeline.input.i" and "pipeline.output.i", what comes and goes forward; "pipeline.gradient.i" of the output
/// and "pipeline.input_gradient.i", what comes and goes backward; "pipeline.kept.i", what the backward pass reads of
/// the forward pass. Gradients of parameters are summed in "accumulated.NAME": `first_backward` sets it, `backward`
/// adds. The last part's forward pass has the output "loss", multiplied with its share of the step's loss.
/// Where the backward pass is split, `inputs` is its first half, which keeps "pipeline.between.i" for the second; it is
/// empty for the first part of a model, where nothing came in.
struct StageGraphs {
  graph::Graph forward, first_backward, backward, inputs{};
  std::int64_t kept_bytes = 0;  ///< of "pipeline.kept.i" in all
};

namespace detail {

class StageGradient {
 public:
  using Id = graph::Id;
  using Op = graph::Op;

  StageGradient(graph::Graph const& stage, StageWishes const& wishes) : wishes_(wishes) {
    builder_.load(stage);
    if (wishes.recompute != graph::Recompute::none) builder_.set_recompute(wishes.recompute);
    forward_size_ = stage.size();
    differentiate(stage, wishes.share);
    choose_cuts();
  }

  StageGraphs graphs() const {
    graph::Graph const gradient = backward();
    if (!wishes_.splits) return {forward(), adding(gradient, true), adding(gradient, false), {}, kept_bytes()};
    GradientSplit const split(gradient, [](std::string const& name) { return name.starts_with("pipeline."); });
    graph::Graph const weights = split.rest();
    return {forward(), adding(weights, true), adding(weights, false), split.early(), kept_bytes()};
  }

 private:
  struct Root {         // what the backward pass makes
    Id id;              // none: zeros
    std::string state;  // that it goes to
    bool adds;          // to what is there, but for the first micro-batch
    bool begun;         // and for that one too
    graph::Type type;
  };
  graph::Graph const& whole() const { return builder_.graph(); }
  static std::size_t at(auto index) { return static_cast<std::size_t>(index); }

  void differentiate(graph::Graph const& stage, double share) {
    List<Id> outputs, wrt;
    List<graph::Var> seeds;
    if (Id const loss = stage.find_output("loss"); loss != graph::none) {
      outputs.push_back(loss);
      seeds.push_back(graph::constant(builder_, share, {}, stage.dtype(loss)));
      loss_ = (graph::Var{&builder_, loss} * share).id;
    }
    for (std::size_t i = 0;; ++i) {
      Id const output = stage.find_output(pipeline_name("output", i));
      if (output == graph::none) break;
      outputs_.push_back(output);
      if (!is_floating(stage.dtype(output))) continue;
      outputs.push_back(output);
      seeds.push_back(state_of(builder_, pipeline_name("gradient", i), stage.type(output)));
      received_.push_back(seeds.back().id);
    }
    forward_size_ = std::max(forward_size_, loss_ + 1);
    for (graph::Parameter const& parameter : stage.parameters)
      if (std::string const name(stage.name(parameter.node)); graph::detail::contains(wishes_.trained, name)) {
        wrt.push_back(parameter.node);
        roots_.push_back({graph::none, concat("accumulated.", name), true,
                          graph::detail::contains(wishes_.begun, name), stage.type(parameter.node)});
      }
    for (std::size_t i = 0;; ++i) {
      Id const input = stage.find_leaf(pipeline_name("input", i));
      if (input == graph::none) break;
      if (!is_floating(stage.dtype(input))) continue;
      wrt.push_back(input);
      roots_.push_back({graph::none, pipeline_name("input_gradient", i), false, false, stage.type(input)});
    }
    graph::Reverse reverse(builder_, outputs, wrt);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (reverse.active(outputs[i])) reverse.add(outputs[i], seeds[i]);
    reverse.run();
    for (std::size_t i = 0; i < wrt.size(); ++i) roots_[i].id = reverse.cotangent(wrt[i]);
  }

  bool is_forward(Id id) const {
    return id < forward_size_ || (whole().op(id) == Op::result && whole().operand(id, 0) < forward_size_);
  }
  static bool is_leaf(Op op) { return graph::info(op).kind == graph::OpClass::leaf; }
  /// Cheaper to do again than to keep, or meant to be.
  bool is_free(Id id) const {
    switch (Op const op = whole().op(id)) {
      case Op::constant:
      case Op::iota:
      case Op::reshape:
      case Op::broadcast_in_dim:
      case Op::vary:
      case Op::barrier:
      case Op::stop_gradient: return true;
      case Op::all_gather: return graph::gathering(whole(), id).again;
      default: return is_leaf(op);
    }
  }
  bool is_cut(Id id) const { return is_forward(id) && !is_free(id); }
  /// What the backward pass reads of the forward pass, in the order of ids.
  void choose_cuts() {
    needed_.assign(whole().nodes.size(), char{0});
    for (Root const& root : roots_)
      if (root.id != graph::none) needed_[at(root.id)] = 1;
    for (Id id : received_) needed_[at(id)] = 1;  // they come, whoever reads them
    for (Id id = whole().size(); id-- > 0;) {
      if (needed_[at(id)] == 0 || is_cut(id)) continue;
      for (Id operand : whole().operands(id)) needed_[at(operand)] = 1;
    }
    for (Id id = 0; id < whole().size(); ++id)
      if (needed_[at(id)] != 0 && is_cut(id)) cuts_.push_back(id);
  }
  std::int64_t kept_bytes() const {
    std::int64_t bytes = 0;
    for (Id id : cuts_) bytes += whole().shape(id).size() * static_cast<std::int64_t>(size_of(whole().dtype(id)));
    return bytes;
  }

  graph::Graph forward() const {
    graph::Builder to;
    NodeCopier copier(whole(), to);
    List<Id> wanted = outputs_;
    if (loss_ != graph::none) wanted.push_back(loss_);
    wanted.append(cuts_.begin(), cuts_.end());
    for (Id id : graph::reachable_order(whole(), wanted)) copier.add(id);
    to.copy_source({}, 0);
    if (loss_ != graph::none) to.output("loss", copier.var(loss_));
    for (std::size_t i = 0; i < outputs_.size(); ++i) keep(to, pipeline_name("output", i), copier.var(outputs_[i]));
    for (std::size_t i = 0; i < cuts_.size(); ++i) keep(to, pipeline_name("kept", i), copier.var(cuts_[i]));
    return canonical(to.graph());
  }
  /// With an output for each root, of the name of its state.
  graph::Graph backward() const {
    graph::Builder to;
    NodeCopier copier(whole(), to);
    std::size_t cut = 0;
    for (Id id = 0; id < whole().size(); ++id) {
      if (needed_[at(id)] == 0) continue;
      if (is_cut(id)) {
        copier.trace(id);
        copier.set(id, state_of(to, pipeline_name("kept", cut++), whole().type(id)).id);
      } else {
        copier.add(id);
      }
    }
    to.copy_source({}, 0);
    for (Root const& root : roots_)
      to.output(root.state, root.id != graph::none
                                ? copier.var(root.id)
                                : graph::constant(to, 0, root.type.shape, root.type.dtype));
    return to.graph();
  }
  /// Outputs go to their states.
  graph::Graph adding(graph::Graph const& gradient, bool first) const {
    graph::Builder to;
    NodeCopier copier(gradient, to);
    for (Id id = 0; id < gradient.size(); ++id) copier.add(id);
    to.copy_source({}, 0);
    for (Id id : received_)  // they come, whoever reads them
      if (std::string const name(whole().name(id)); gradient.find_leaf(name) == graph::none)
        state_of(to, name, whole().type(id));
    for (Root const& root : roots_) {
      Id const id = gradient.find_output(root.state);
      bool const adds = root.adds && (root.begun || !first);
      if (id == graph::none || (root.id == graph::none && adds)) continue;
      graph::Var const state = state_of(to, root.state, root.type);
      to.update(state, adds ? state + copier.var(id) : copier.var(id));
    }
    return canonical(to.graph());
  }

  StageWishes const& wishes_;
  graph::Builder builder_;
  Id forward_size_ = 0, loss_ = graph::none;
  List<Id> outputs_, received_;
  List<Root> roots_;
  List<char> needed_;  // by the backward pass
  List<Id> cuts_;
};

}  // namespace detail

/// `part`: of PipelineCut.
inline StageGraphs stage_graphs(graph::Graph const& part, StageWishes const& wishes) {
  return detail::StageGradient(part, wishes).graphs();
}

/// The forward pass of a part alone, with what goes to the next one in states "pipeline.output.i".
inline graph::Graph evaluation_graph(graph::Graph stage) {
  List<graph::Output> const outputs = std::exchange(stage.outputs, {});
  graph::Builder builder;
  builder.load(std::move(stage));
  for (graph::Output const& output : outputs) {
    std::string const name(builder.graph().text_of(output.name));
    graph::Var const value{&builder, output.node};
    if (name == "loss") builder.output(name, value);
    else detail::keep(builder, name, value);
  }
  return canonical(builder.graph());
}

}  // namespace tutti::parallel
