// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which parameters of a graph are trained, and what groups say of each.

#include <tutti/core/list.hpp>
#include <tutti/graph/builder.hpp>
#include <tutti/optim/parameter_groups.hpp>

#include <string>
#include <string_view>

namespace tutti::optim {

/// A parameter that is trained, and how.
struct Trained {
  graph::Parameter parameter;
  ParameterGroup group;  ///< of all that name it: a later one wins where two say something
  bool hidden_matrix = false;
  bool counted = true;  ///< in the norm by this rank: of what several stages of a pipeline have, by one of them
};

namespace detail {

/// Without the axis of layers.
constexpr int matrix_rank(graph::Graph const& graph, graph::Parameter const& parameter) {
  return graph.shape(parameter.node).rank() - (parameter.stacked ? 1 : 0);
}
constexpr bool is_matrix(graph::Graph const& graph, graph::Parameter const& parameter) {
  return matrix_rank(graph, parameter) >= 2;
}
/// Errors: configuration, for a pattern that names none, with the names that there are.
constexpr void require_named(graph::Graph const& graph, std::string_view pattern, std::string_view purpose,
                             graph::Where where) {
  for (graph::Parameter const& parameter : graph.parameters)
    if (matches(pattern, graph.name(parameter.node))) return;
  std::string text = "no parameter is named '" + std::string(pattern) + "'" + std::string(purpose) +
                     "; give its whole name, with dots, or a pattern such as wte*. There are: ";
  bool first = true;
  for (graph::Parameter const& parameter : graph.parameters) {
    text += (first ? "" : ", ") + std::string(graph.name(parameter.node));
    first = false;
  }
  graph::refuse(where, "minimise", ErrorKind::configuration, text);
}

}  // namespace detail

/// The graph's parameters without those that are frozen, and what groups say of each.
/// Errors: configuration, for a pattern that names none, and for a decay or rate below 0.
constexpr List<Trained> trained_parameters(graph::Graph const& graph, List<ParameterGroup> const& groups,
                                           List<std::string_view> const& frozen, graph::Where where) {
  for (std::string_view pattern : frozen) detail::require_named(graph, pattern, ", which should stay frozen", where);
  for (ParameterGroup const& group : groups) {
    detail::require_named(graph, group.pattern, ", of which a parameter group speaks", where);
    if (!(group.rate >= 0) || (group.decay && !(*group.decay >= 0)))
      graph::refuse(where, "minimise", ErrorKind::configuration,
                    "parameter group '" + group.pattern + "': decay and rate must be at least 0");
  }
  List<Trained> result;
  for (graph::Parameter const& parameter : graph.parameters) {
    std::string_view const name = graph.name(parameter.node);
    Trained trained{parameter, {}};
    for (std::string_view pattern : frozen) trained.group.frozen |= matches(pattern, name);
    for (ParameterGroup const& group : groups) {
      if (!matches(group.pattern, name)) continue;
      if (group.decay) trained.group.decay = group.decay;
      if (group.rate != 1) trained.group.rate = group.rate;
      trained.group.frozen |= group.frozen;
      trained.group.vector |= group.vector;
    }
    if (!trained.group.frozen) result.push_back(trained);
  }
  return result;
}

}  // namespace tutti::optim
