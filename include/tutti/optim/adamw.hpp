// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// AdamW as part of a program: gradient, reduction over ranks, clipping and update join the graph of the loss, so that
/// one plan and one run cover the whole step.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/grad.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::optim {

/// Loshchilov, Hutter 2019 (arXiv 1711.05101). Weight decay applies to matrices and embeddings: parameters of rank two
/// or more, the axis of layers not counted.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
};

/// Which part of a step a program does. A step of n micro-steps is `whole` for n = 1, else `first`, n - 2 times
/// `middle`, `last`.
enum class Pass : unsigned char { whole, first, middle, last };

/// Whether a state holds one rank's sums between micro-steps: it differs between ranks and is no part of a checkpoint.
constexpr bool is_accumulator(std::string_view state) noexcept { return state.starts_with("accumulated."); }

struct StepOptions {
  double clip = 0;                ///< largest global norm; 0 does not clip
  std::int64_t micro_steps = 1;   ///< gradients are averaged over them
  bool reduce = false;            ///< and over ranks
  double weight = 1;              ///< of this rank in that average; 1 on every rank where shares are even
  graph::Recompute recompute = graph::Recompute::none;  ///< by the backward loops of repeats
  List<std::string_view> frozen{};  ///< names of parameters that stay as they are; '*' stands for any text
};

/// Whether `name` is what `pattern` says, in which '*' stands for any text.
constexpr bool matches(std::string_view pattern, std::string_view name) noexcept {
  std::size_t const star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t at = star; at <= name.size(); ++at)
    if (matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

namespace detail {
constexpr bool decays(graph::Graph const& graph, graph::Parameter const& parameter) {
  return graph.shape(parameter.node).rank() - (parameter.stacked ? 1 : 0) >= 2;
}
constexpr graph::Var averaged(graph::Var value, bool reduce, graph::Where where) {
  return reduce ? graph::all_reduce(graph::vary(value, comm::PortOp::avg, where), comm::PortOp::avg, where) : value;
}
/// Parameters without those that `frozen` names. Errors: configuration, for a pattern that names none.
constexpr List<graph::Parameter> trained(graph::Graph const& graph, List<std::string_view> const& frozen,
                                         graph::Where where) {
  List<graph::Parameter> result = graph.parameters;
  for (std::string_view pattern : frozen) {
    bool found = false;
    for (graph::Parameter const& parameter : graph.parameters)
      found = found || matches(pattern, graph.name(parameter.node));
    if (!found)
      graph::refuse(where, "minimise", ErrorKind::configuration,
                    "no parameter is named '" + std::string(pattern) +
                        "', which should stay frozen; give its whole name, with dots, or a pattern such as wte*");
    result.erase_if([&](graph::Parameter const& p) { return matches(pattern, graph.name(p.node)); });
  }
  return result;
}
}  // namespace detail

/// Adds to the graph of `loss` what one program of a training step does with every parameter declared in it. Those that
/// are frozen, and those on which the loss does not depend (behind stop_gradient, not used), stay as they are: they
/// have no moments and do not decay.
/// Scalars    learning_rate; correction1 and correction2: 1 - beta^step, step counted from 1 (of `whole` and `last`)
/// States     "m.NAME", "v.NAME"; "accumulated.NAME" and "accumulated.loss" when there are micro-steps
/// Outputs    loss, averaged over micro-steps and (by their weights) ranks, and grad_norm, before clipping (of `whole`
///            and `last`)
/// Computes   scale = clip / max(norm, clip), as PyTorch and llm.c clip; norm summed in double
constexpr void minimise(graph::Var loss, Pass pass, AdamW const& adamw, StepOptions const& options,
                        graph::Where where = graph::Where::current()) {
  using graph::Var;
  graph::Builder& builder = graph::detail::home(loss, where);
  List<graph::Parameter> parameters = detail::trained(builder.graph(), options.frozen, where);
  bool const reads = pass == Pass::middle || pass == Pass::last, writes = pass == Pass::first || pass == Pass::middle;
  auto const name_of = [&](std::size_t i) { return builder.graph().name(parameters[i].node); };
  // The accumulated value plus this micro-step's, kept for the next one where there is one.
  auto const accumulated = [&](Var value, std::string_view name) {
    if (pass == Pass::whole) return value;
    bool const own = value.type(where).replication == graph::Replication::varying;
    Var const sum = builder.state(reflect::Path("accumulated.").append(name), value.shape(), graph::zeros(),
                                  value.dtype(), own ? graph::StateUpdate::per_rank : graph::StateUpdate::replicated,
                                  where);
    if (reads) value = sum + value;
    if (writes) builder.update(sum, value, where);
    return value;
  };

  List<Var> wrt;
  for (graph::Parameter const& parameter : parameters) wrt.push_back({&builder, parameter.node});
  double const share = options.weight / static_cast<double>(options.micro_steps);
  List<Var> gradients = graph::gradients(loss, wrt, share, options.recompute, where);
  for (std::size_t i = gradients.size(); i-- > 0;)
    if (is_absent(builder.graph(), gradients[i].id)) {
      gradients.erase(i);
      parameters.erase(i);
      wrt.erase(i);
    }
  if (gradients.empty())
    graph::refuse(where, "minimise", ErrorKind::configuration,
                  "no parameter has a gradient: all are frozen, behind stop_gradient or not used by the loss");
  Var const mean = accumulated(share == 1 ? loss : loss * share, "loss");
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = accumulated(gradients[i], name_of(i));
  if (writes) return;

  builder.output("loss", detail::averaged(mean, options.reduce, where), where);
  Var squares{};
  for (Var& gradient : gradients) {
    gradient = detail::averaged(gradient, options.reduce, where);
    squares = squares.builder == nullptr ? square_sum(gradient, where) : square_sum(gradient, squares, where);
  }
  Var const norm = convert(sqrt(squares, where), DType::float32, where);
  builder.output("grad_norm", norm, where);
  Var const scale = options.clip > 0 ? options.clip / maximum(norm, options.clip)
                                     : graph::constant(builder, 1, {}, DType::float32, where);
  Var const learning_rate = builder.scalar("learning_rate", DType::float32, where);
  Var const correction1 = builder.scalar("correction1", DType::float32, where);
  Var const correction2 = builder.scalar("correction2", DType::float32, where);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    Var const m =
        builder.state(reflect::Path("m.").append(name_of(i)), wrt[i].shape(), graph::zeros(), DType::float32,
                      graph::StateUpdate::replicated, where);
    Var const v =
        builder.state(reflect::Path("v.").append(name_of(i)), wrt[i].shape(), graph::zeros(), DType::float32,
                      graph::StateUpdate::replicated, where);
    double const decay = detail::decays(builder.graph(), parameters[i]) ? adamw.weight_decay : 0.0;
    auto const next = graph::adamw(wrt[i], gradients[i], m, v, learning_rate, correction1, correction2, scale,
                                   {adamw.beta1, adamw.beta2, adamw.epsilon, decay}, where);
    builder.update(wrt[i], next.parameter, where);
    builder.update(m, next.m, where);
    builder.update(v, next.v, where);
  }
}

}  // namespace tutti::optim
