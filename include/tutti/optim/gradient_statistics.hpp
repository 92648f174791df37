// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How large the gradients of a step are, parameter by parameter: a program that trains nothing.

#include <tutti/graph/composites.hpp>
#include <tutti/optim/minimise.hpp>

#include <string_view>

namespace tutti::optim {

/// In front of a parameter's name: outputs of the programs of `measure_gradients`.
inline constexpr std::string_view squares_output = "gradient.squares.", zeros_output = "gradient.zeros.";

/// Adds to the graph of `loss` the gradient of every parameter that `minimise` would train, averaged over micro-steps
/// and ranks and not clipped, and nothing that updates but what the passes of a step hand on.
/// States    as `minimise`, but for the optimizer's
/// Outputs   loss, and for every such parameter its squares_output, the sum of the gradient's squares, and
///           zeros_output, how many of its elements are 0: float64 (); of `whole` and `last`. Of a parameter of which
///           ranks have parts these are of this rank's part
/// Errors    as `minimise`
constexpr void measure_gradients(graph::Var loss, Pass pass, StepOptions const& options,
                                 graph::Where where = graph::Where::current()) {
  using graph::Var;
  graph::Builder& builder = graph::detail::home(loss, where);
  detail::StepGradients const found = detail::step_gradients(loss, pass, options, where);
  if (pass == Pass::first || pass == Pass::middle) return;
  builder.output("loss", detail::averaged(found.loss, options.reduce, where), where);
  for (std::size_t i = 0; i < found.gradients.size(); ++i) {
    if (detail::in_parts(builder.graph(), found.parameters[i].parameter))
      graph::refuse(where, "measure_gradients", ErrorKind::unavailable,
                    "gradients of which ranks have parts have no statistics. Keep parameters whole");
    Var const gradient = detail::averaged(found.gradients[i], options.reduce, where);
    reflect::Path const name(builder.graph().name(found.parameters[i].parameter.node));
    Var const zero = convert(equal(gradient, 0.0), DType::float32, where);
    builder.output(reflect::Path(squares_output).append(name), square_sum(gradient, where), where);
    builder.output(reflect::Path(zeros_output).append(name), square_sum(zero, where), where);  // of ones, in float64
  }
}

}  // namespace tutti::optim
