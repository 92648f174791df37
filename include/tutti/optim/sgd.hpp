// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Stochastic gradient descent with momentum.

#include <tutti/core/concat.hpp>
#include <tutti/optim/optimizer.hpp>

#include <cstdint>
#include <string>

namespace tutti::optim {

/// Sutskever et al. 2013 for momentum, in the form of PyTorch: velocity' = momentum * velocity + gradient. Weight decay
/// is AdamW's, apart from the gradient (Loshchilov, Hutter 2019, SGDW): learning_rate * weight_decay of the parameter.
/// States  "velocity.NAME", none without momentum
struct Sgd {
  double momentum = 0;
  bool nesterov = false;  ///< look ahead: move by gradient + momentum * velocity', not by velocity'
  double weight_decay = 0;

  constexpr void update(ParameterUpdate const& parameter) const;
  List<StepScalar> scalars(std::int64_t) const { return {}; }
  std::string describe() const {
    std::string text = "SGD";
    if (momentum != 0) text += concat(", ", nesterov ? "Nesterov " : "", "momentum ", momentum);
    return concat(text, ", weight decay ", weight_decay);
  }
};

struct SgdStep {
  graph::Var parameter, velocity;  ///< after the step
};

/// Shapes    parameter, gradient and velocity alike; learning_rate ()
/// Computes  parameter' = parameter - learning_rate * (nesterov ? gradient + momentum * velocity' : velocity'), without
///           weight decay
constexpr SgdStep sgd(graph::Var parameter, graph::Var gradient, graph::Var velocity, graph::Var learning_rate,
                      Sgd const& options, graph::Where where = graph::Where::current()) {
  using graph::Operand;
  auto const times = [&](graph::Var x, Operand factor) { return Operand(x, where) * factor; };
  graph::Var const next = Operand(times(velocity, {options.momentum, where}), where) + gradient;
  graph::Var const move =
      options.nesterov ? Operand(gradient, where) + times(next, {options.momentum, where}) : next;
  return {Operand(parameter, where) - times(move, {learning_rate, where}), next};
}

constexpr void Sgd::update(ParameterUpdate const& p) const {
  using graph::Operand, graph::Var;
  Var const gradient = Operand(p.gradient, p.where) * p.gradient_scale;
  Var const kept = p.decayed();
  if (momentum == 0)
    return p.builder.update(p.parameter, Operand(kept, p.where) - Operand(gradient, p.where) * p.learning_rate,
                            p.where);
  Var const velocity = p.state("velocity");
  SgdStep const next = sgd(kept, gradient, velocity, p.learning_rate, *this, p.where);
  p.builder.update(p.parameter, next.parameter, p.where);
  p.builder.update(velocity, next.velocity, p.where);
}

}  // namespace tutti::optim
