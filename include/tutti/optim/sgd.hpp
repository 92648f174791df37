// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Stochastic gradient descent with momentum, as operations of a graph.

#include <tutti/graph/ops.hpp>

namespace tutti::optim {

/// Sutskever et al. 2013 for momentum, in the form of PyTorch: velocity' = momentum * velocity + gradient.
struct Sgd {
  double momentum = 0;
  bool nesterov = false;  ///< look ahead: move by gradient + momentum * velocity', not by velocity'
};

struct SgdStep {
  graph::Var parameter, velocity;  ///< after the step
};

/// Shapes    parameter, gradient and velocity alike; learning_rate ()
/// Computes  parameter' = parameter - learning_rate * (nesterov ? gradient + momentum * velocity' : velocity')
constexpr SgdStep sgd(graph::Var parameter, graph::Var gradient, graph::Var velocity, graph::Var learning_rate,
                      Sgd const& options, graph::Where where = graph::Where::current()) {
  using graph::Operand;
  auto const times = [&](graph::Var x, Operand factor) { return Operand(x, where) * factor; };
  graph::Var const next = Operand(times(velocity, {options.momentum, where}), where) + gradient;
  graph::Var const move =
      options.nesterov ? Operand(gradient, where) + times(next, {options.momentum, where}) : next;
  return {Operand(parameter, where) - times(move, {learning_rate, where}), next};
}

}  // namespace tutti::optim
