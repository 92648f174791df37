// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Gradients against central differences in double, for any graph that declares a scalar output.

#include <tutti/core/list.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/interpreter.hpp>

#include <cmath>

namespace tutti::graph {

struct GradientCheckOptions {
  std::string_view loss = "loss";
  double step = 1e-5;            ///< of the difference
  int samples = 6;               ///< elements tried per parameter
  std::uint64_t seed = 1;
  double spread = 0.5;           ///< standard deviation of parameters and floating inputs that have no value
  std::int64_t integers = 2;     ///< integer inputs are drawn from [0, integers)
};

struct GradientCheck {
  double worst = 0;      ///< |gradient - difference| / max(0.001, |difference|); NaN if one of them is
  std::string where;     ///< parameter and element of the worst
  std::int64_t tried = 0;
};

/// Whether `error` takes the place of `worst`, the largest so far. A NaN does, and nothing takes the place of a NaN:
/// one among many finite errors is what a comparison is there to find.
inline bool exceeds(double error, double worst) { return !std::isnan(worst) && !(error <= worst); }

/// Draws every leaf of `interpreter` that a test did not set by name in `given`.
inline void randomise(Interpreter& interpreter, GradientCheckOptions const& options,
                      std::vector<std::pair<std::string, naive::Values>> const& given = {}) {
  Graph const& graph = interpreter.graph();
  for (Id id = 0; id < graph.size(); ++id) {
    if (graph[id].name == none) continue;
    CounterRandom const random{options.seed, static_cast<std::uint64_t>(id)};
    for (int rank = 0; rank < interpreter.ranks(); ++rank) {
      bool const own = graph.replication(id) == Replication::varying;
      naive::Values values(naive::at(graph.shape(id).size()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint64_t const at = i + (own ? static_cast<std::uint64_t>(rank) << 32 : 0);
        values[i] = is_floating(graph.dtype(id))
                        ? options.spread * static_cast<double>(random.normal(at))
                        : static_cast<double>(random.bits(at) % static_cast<std::uint64_t>(options.integers));
      }
      interpreter.set(graph.name(id), std::move(values), rank);
    }
  }
  for (auto const& [name, values] : given) interpreter.set(name, values);
}

/// Differentiates `graph` with respect to all parameters and compares. Over several ranks the loss is the average of
/// the ranks' losses, and ranks hold equal parameters.
inline GradientCheck check_gradients(Graph const& graph, GradientCheckOptions const& options = {},
                                     std::vector<std::pair<std::string, naive::Values>> const& given = {},
                                     int ranks = 1) {
  Interpreter forward(graph, ranks), backward(grad(graph, options.loss), ranks);
  randomise(forward, options, given);
  for (Id id = 0; id < graph.size(); ++id)
    if (graph[id].name != none)
      for (int rank = 0; rank < ranks; ++rank) backward.set(graph.name(id), forward.get(graph.name(id), rank), rank);
  backward.run();
  auto const loss = [&] {
    forward.run();
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += forward.output(options.loss, rank)[0];
    return sum / ranks;
  };
  GradientCheck result;
  for (Parameter const& parameter : graph.parameters) {
    std::string const name(graph.name(parameter.node));
    naive::Values const values = forward.get(name);
    naive::Values const& gradient = backward.output("gradient." + name);
    CounterRandom const random{options.seed, 1000};
    for (int sample = 0; sample < options.samples && !values.empty(); ++sample) {
      std::size_t const i = values.size() <= static_cast<std::size_t>(options.samples)
                                ? static_cast<std::size_t>(sample) % values.size()
                                : random.bits(static_cast<std::uint64_t>(sample)) % values.size();
      auto const with = [&](double offset) {
        naive::Values moved = values;
        moved[i] += offset;
        forward.set(name, moved);
        return loss();
      };
      double const difference = (with(options.step) - with(-options.step)) / (2 * options.step);
      forward.set(name, values);
      double const error = std::abs(gradient[i] - difference) / std::max(1e-3, std::abs(difference));
      ++result.tried;
      if (exceeds(error, result.worst)) {
        result.worst = error;
        result.where = name + "[" + std::to_string(i) + "]: gradient " + std::to_string(gradient[i]) + ", difference " +
                       std::to_string(difference);
      }
    }
  }
  return result;
}

}  // namespace tutti::graph
