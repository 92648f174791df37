// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The outer step of DiLoCo: the parameters that all agree on, and how they move by averaged outer gradients.

#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/compile.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/optim/sgd.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Defaults: Douillard et al. 2023 (arXiv 2311.08105); with several fragments 0.4 is the rate (arXiv 2501.18512).
struct OuterOptions {
  double learning_rate = 0.7;
  double momentum = 0.9;  ///< Nesterov's; 0: none
};

/// Per fragment a flat vector of parameters and one of momentum, both zero at first. The step is a program of a graph,
/// optim::sgd, on the context's threads.
/// Determinism  every element for itself: the same on any number of threads.
class OuterOptimizer {
 public:
  /// Errors: configuration; out_of_memory. Borrows the context.
  OuterOptimizer(exec::Context& context, std::vector<std::int64_t> const& fragment_sizes, OuterOptions const& options)
      : options_(options) {
    if (!(options.learning_rate > 0) || !(options.momentum >= 0 && options.momentum < 1))
      throw Error(ErrorKind::configuration, "OuterOptimizer",
                  "the outer learning rate must be above 0, and the outer momentum at least 0 and below 1");
    for (std::size_t f = 0; f < fragment_sizes.size(); ++f) {
      Part part;
      graph::Graph const graph = traced(fragment_sizes[f], std::to_string(f));
      state_.add(graph);
      part.program = std::make_unique<graph::Program>(graph::compile(graph));
      part.executor = std::make_unique<graph::Executor>(context, *part.program, state_);
      parts_.push_back(std::move(part));
    }
  }

  int fragments() const noexcept { return static_cast<int>(parts_.size()); }
  OuterOptions const& options() const noexcept { return options_; }
  /// What all agree on. Valid as long as this object; writable between steps.
  std::span<float> parameters(int fragment) { return field("parameters.", fragment); }
  std::span<float> momentum(int fragment) { return field("momentum.", fragment); }

  /// Moves the fragment's parameters by the average of what ranks or workers found: their parameters before, minus
  /// those after.
  /// Errors: shape.
  void step(int fragment, std::span<float const> outer_gradient,
            std::source_location where = std::source_location::current()) {
    graph::Executor& run = *parts_.at(static_cast<std::size_t>(fragment)).executor;
    run.set("outer_gradient",
            TensorView<float const>(outer_gradient.data(), {static_cast<std::int64_t>(outer_gradient.size())}), where);
    run.set("learning_rate", options_.learning_rate, where);
    run.run(where);
  }

 private:
  struct Part {
    std::unique_ptr<graph::Program> program;  // the executor refers to it
    std::unique_ptr<graph::Executor> executor;
  };

  graph::Graph traced(std::int64_t size, std::string const& suffix) const {
    graph::Builder builder;
    graph::Var const parameters = builder.state("parameters." + suffix, {size});
    graph::Var const momentum = builder.state("momentum." + suffix, {size});
    graph::Var const gradient = builder.input("outer_gradient", DType::float32, {size});
    graph::Var const rate = builder.scalar("learning_rate");
    optim::SgdStep const next =
        optim::sgd(parameters, gradient, momentum, rate, {.momentum = options_.momentum, .nesterov = true});
    builder.update(parameters, next.parameter);
    builder.update(momentum, next.velocity);
    return builder.graph();
  }
  std::span<float> field(char const* prefix, int fragment) {
    return state_.at(prefix + std::to_string(fragment)).view<float>().elements();
  }

  OuterOptions options_;
  graph::State state_;
  std::vector<Part> parts_;
};

}  // namespace tutti::parallel
