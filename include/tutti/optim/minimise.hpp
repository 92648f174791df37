// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training as part of a program: gradient, reduction over ranks, clipping and an optimizer's updates join the graph of
/// the loss, so that one plan and one run cover the whole step.

#include <tutti/graph/grad.hpp>
#include <tutti/optim/adamw.hpp>
#include <tutti/optim/gradient_compressor.hpp>
#include <tutti/optim/trained_parameters.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::optim {

/// Which part of a step a program does. A step of n micro-steps is `whole` for n = 1, else `first`, n - 2 times
/// `middle`, `last`.
enum class Pass : unsigned char { whole, first, middle, last };

/// Whether a state holds one rank's sums between micro-steps: it differs between ranks and is no part of a checkpoint.
constexpr bool is_accumulator(std::string_view state) noexcept { return state.starts_with("accumulated."); }

struct StepOptions {
  double clip = 0;               ///< largest global norm; 0 does not clip
  std::int64_t micro_steps = 1;  ///< gradients are averaged over them
  bool reduce = false;           ///< and over ranks
  double weight = 1;             ///< of this rank in that average; 1 on every rank where shares are even
  graph::Recompute recompute = graph::Recompute::none;  ///< by the backward loops of repeats
  List<std::string_view> frozen{};  ///< names of parameters that stay as they are; '*' stands for any text
  List<ParameterGroup> groups{};    ///< parameters that are trained otherwise, by name; later ones win
  AnyCompressor const* compress = nullptr;  ///< how gradients travel; null, or none: as they are
  int ranks = 1;                            ///< for compressors: of the data axis
  bool stages = false;                      ///< ranks of the pipeline axis have other parameters: the norm is of all
  /// In front of the step's outputs, scalars and accumulators, with a dot: tells the steps of one graph apart, which
  /// have a loss, an optimizer and parameters each. Give it to `set_step` too.
  std::string_view name{};
};

namespace detail {
constexpr graph::Var averaged(graph::Var value, bool reduce, graph::Where where) {
  return reduce ? graph::all_reduce(graph::vary(value, comm::PortOp::avg, where), comm::PortOp::avg, where) : value;
}
/// Whether ranks of the data axis have a part of this parameter each (parallel/gather_parameters.hpp), and with it of
/// its gradient, which is averaged where it arises.
constexpr bool in_parts(graph::Graph const& graph, graph::Parameter const& parameter) {
  return graph.replication(parameter.node) == graph::Replication::varying;
}
/// Whether a parameter is a matrix of a layer in a stack, or one that products alone read whose results are no logits.
constexpr bool is_hidden_matrix(graph::Graph const& graph, graph::Parameter const& parameter) {
  using graph::Op;
  if (!is_matrix(graph, parameter) || matrix_rank(graph, parameter) != 2) return false;
  if (parameter.stacked) return true;
  auto const makes_logits = [&](graph::Id product) {
    for (graph::Id id = product + 1; id < graph.size(); ++id)
      if (graph.op(id) == Op::cross_entropy && graph.operand(id, 0) == product) return true;
    return false;
  };
  bool used = false;
  for (graph::Id id = parameter.node + 1; id < graph.size(); ++id)
    for (graph::Id operand : graph.operands(id)) {
      if (operand != parameter.node) continue;
      used = true;
      bool const product = graph.op(id) == Op::linear || graph.op(id) == Op::dot_general;
      if (!(product || graph.op(id) == Op::repeat) || makes_logits(id)) return false;
    }
  return used;
}

/// Of every parameter that has one: this pass's gradient, and what the passes before it have summed.
struct StepGradients {
  List<Trained> parameters;
  List<graph::Var> wrt, gradients;
  graph::Var loss;
};
/// Errors: configuration: a pattern that names no parameter, or nothing to train
constexpr StepGradients step_gradients(graph::Var loss, Pass pass, StepOptions const& options, graph::Where where) {
  using graph::Var;
  graph::Builder& builder = graph::detail::home(loss, where);
  StepGradients found;
  List<Trained>& parameters = found.parameters = trained_parameters(builder.graph(), options.groups, options.frozen,
                                                                    where);
  for (Trained& trained : parameters)
    trained.hidden_matrix = !trained.group.vector && is_hidden_matrix(builder.graph(), trained.parameter);
  bool const reads = pass == Pass::middle || pass == Pass::last, writes = pass == Pass::first || pass == Pass::middle;
  // The accumulated value plus this micro-step's, kept for the next one where there is one.
  auto const accumulated = [&](Var value, std::string_view name) {
    if (pass == Pass::whole) return value;
    bool const own = value.type(where).replication[graph::MeshAxis::data] == graph::Replication::varying;
    Var const sum =
        builder.state(reflect::Path("accumulated.").append(reflect::joined(options.name, name)), value.type(where),
                      graph::zeros(), own ? graph::StateUpdate::per_rank : graph::StateUpdate::replicated, where);
    if (reads) value = sum + value;
    if (writes) builder.update(sum, value, where);
    return value;
  };

  for (Trained const& trained : parameters) found.wrt.push_back({&builder, trained.parameter.node});
  double const share = options.weight / static_cast<double>(options.micro_steps);
  found.gradients = graph::gradients(loss, found.wrt, share, options.recompute, where);
  for (std::size_t i = found.gradients.size(); i-- > 0;)
    if (is_absent(builder.graph(), found.gradients[i].id)) {
      found.gradients.erase(i);
      parameters.erase(i);
      found.wrt.erase(i);
    }
  if (found.gradients.empty())
    graph::refuse(where, "minimise", ErrorKind::configuration,
                  "no parameter has a gradient: all are frozen, behind stop_gradient or not used by the loss");
  found.loss = accumulated(share == 1 ? loss : loss * share, "loss");
  for (std::size_t i = 0; i < found.gradients.size(); ++i)
    found.gradients[i] = accumulated(found.gradients[i], builder.graph().name(parameters[i].parameter.node));
  return found;
}

/// What follows when the gradients of a step are known: their average over ranks, the norm, clipping and the updates.
template <class O>
constexpr void update_parameters(graph::Builder& builder, StepGradients const& found, O const& optimizer,
                                 StepOptions const& options, graph::Where where) {
  using graph::Var;
  List<Trained> const& parameters = found.parameters;
  List<Var> const& wrt = found.wrt;
  List<Var> gradients = found.gradients;
  auto const name_of = [&](std::size_t i) { return builder.graph().name(parameters[i].parameter.node); };
  // Of what every rank has whole; of what it has a part along the tensor axis, that of data, or both.
  Var squares{}, divided{}, parts{}, parts_of_divided{};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Var& gradient = gradients[i];
    if (options.compress != nullptr && *options.compress)
      gradient = options.compress->average({.builder = builder,
                                            .gradient = graph::vary(gradient, comm::PortOp::avg, where),
                                            .name = reflect::Path(name_of(i)),
                                            .stacked = parameters[i].parameter.stacked,
                                            .ranks = options.ranks,
                                            .where = where});
    else gradient = detail::averaged(gradient, options.reduce && !in_parts(builder.graph(), parameters[i].parameter),
                                     where);
    if (!parameters[i].counted) continue;
    bool const part = gradient.type(where).replication[graph::MeshAxis::tensor] == graph::Replication::varying;
    bool const rows = in_parts(builder.graph(), parameters[i].parameter);
    Var& sum = part && rows ? parts_of_divided : part ? divided : rows ? parts : squares;
    sum = sum.builder == nullptr ? square_sum(gradient, where) : square_sum(gradient, sum, where);
  }
  auto const add = [&](Var part, graph::MeshAxis axis, Var& to) {
    if (part.builder == nullptr) return;
    Var const all = all_reduce(partial(part, axis, where), axis, comm::PortOp::sum, where);
    to = to.builder == nullptr ? all : graph::Operand(to, where) + all;
  };
  add(parts_of_divided, graph::MeshAxis::data, divided);
  add(divided, graph::MeshAxis::tensor, squares);
  add(parts, graph::MeshAxis::data, squares);
  if (options.stages) {
    graph::MeshAxis const axis = graph::MeshAxis::pipeline;
    if (squares.builder == nullptr) squares = graph::constant(builder, 0, {}, DType::float64, where);
    if (squares.type(where).replication[axis] == graph::Replication::replicated)
      squares = graph::vary(squares, axis, comm::PortOp::sum, where);
    squares = all_reduce(partial(squares, axis, where), axis, comm::PortOp::sum, where);
  }
  Var const norm = convert(sqrt(squares, where), DType::float32, where);
  builder.output(reflect::joined(options.name, "grad_norm"), norm, where);
  Var const scale = options.clip > 0 ? options.clip / maximum(norm, options.clip)
                                     : graph::constant(builder, 1, {}, DType::float32, where);
  auto const range = builder.scope("update", where);
  Var const learning_rate = builder.scalar(reflect::joined(options.name, "learning_rate"), DType::float32, where);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    ParameterGroup const& group = parameters[i].group;
    reflect::Path const name(name_of(i));
    bool const decays = detail::is_matrix(builder.graph(), parameters[i].parameter);
    optimizer.update({.builder = builder,
                      .parameter = wrt[i],
                      .gradient = gradients[i],
                      .gradient_scale = scale,
                      .learning_rate = group.rate == 1 ? learning_rate : learning_rate * group.rate,
                      .weight_decay = group.decay ? *group.decay
                                      : decays    ? double{optimizer.weight_decay}
                                                  : 0.0,
                      .name = name,
                      .step = options.name,
                      .stacked = parameters[i].parameter.stacked,
                      .hidden_matrix = parameters[i].hidden_matrix,
                      .where = where});
  }
}
}  // namespace detail

/// Adds to the graph of `loss` what one program of a training step does with every parameter declared in it. Those that
/// are frozen, and those on which the loss does not depend (behind stop_gradient, not used), stay as they are: they
/// have no moments and do not decay. Weight decay applies to matrices and embeddings, parameters of rank two or more,
/// the axis of layers not counted, unless a group says otherwise.
/// Hidden matrices, of which optimizers such as Muon know: those of rank two in a Stack, and others of rank two that
/// only `linear`, `dot_general` and loops read, but for heads, whose product a cross-entropy reads.
/// Several in one graph, say of a generator and of what judges it, have a StepOptions::name each, which stands in front
/// of what follows, and train different parameters: the others' are frozen. All gradients are of the parameters before
/// any update.
/// Scalars    learning_rate, and those of the optimizer (of `whole` and `last`): `set_step` gives them
/// States     the optimizer's, and a compressor's; "accumulated.NAME" and "accumulated.loss" when there are micro-steps
/// Outputs    loss, averaged over micro-steps and (by their weights) ranks, and grad_norm, before clipping (of `whole`
///            and `last`)
/// Computes   scale = clip / max(norm, clip), as PyTorch and llm.c clip; norm summed in double
/// Errors     configuration: a pattern that names no parameter, or nothing to train
template <Optimizer O = AdamW>
constexpr void minimise(graph::Var loss, Pass pass, O const& optimizer, StepOptions const& options,
                        graph::Where where = graph::Where::current()) {
  graph::Builder& builder = graph::detail::home(loss, where);
  for (graph::Id const id : builder.graph().scalars)
    if (builder.graph().name(id) == reflect::joined(options.name, "learning_rate"))
      graph::refuse(where, "minimise", ErrorKind::invalid_argument,
                    "the graph has a step of this name already. Give each of them a StepOptions::name of its own");
  detail::StepGradients const found = detail::step_gradients(loss, pass, options, where);
  if (pass == Pass::first || pass == Pass::middle) return;
  builder.output(reflect::joined(options.name, "loss"), detail::averaged(found.loss, options.reduce, where), where);
  detail::update_parameters(builder, found, optimizer, options, where);
}

}  // namespace tutti::optim
