// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many layers each part of a model should have, so that the stages of a pipeline take equally long: the last one
/// has the head as well.

#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::parallel {

/// `head`: work of what stands behind the layers, where one layer's is 1. One layer at least for each part; each
/// further one to the stage with the least work, there to the part with the fewest layers.
/// Requires  layers not fewer than parts
inline List<std::int64_t> balanced_layers(PipelineLayout const& layout, std::int64_t layers, double head) {
  List<std::int64_t> of(static_cast<std::size_t>(layout.parts()), 1);
  auto const work = [&](std::size_t stage) {
    double sum = stage + 1 == static_cast<std::size_t>(layout.stages) ? head : 0;
    for (std::size_t part = stage; part < of.size(); part += static_cast<std::size_t>(layout.stages))
      sum += static_cast<double>(of[part]);
    return sum;
  };
  for (std::int64_t left = layers - layout.parts(); left > 0; --left) {
    std::size_t least = 0;
    for (std::size_t stage = 1; stage < static_cast<std::size_t>(layout.stages); ++stage)
      if (work(stage) < work(least)) least = stage;
    std::size_t fewest = least;
    for (std::size_t part = least; part < of.size(); part += static_cast<std::size_t>(layout.stages))
      if (of[part] < of[fewest]) fewest = part;
    ++of[fewest];
  }
  return of;
}

/// The layout with the layers that balance it, where it asks for that; by operations of the matrix products of
/// `model`'s "loss".
inline PipelineLayout balanced(PipelineLayout layout, graph::Graph const& model) {
  if (!layout.balanced) return layout;
  graph::Program const program = graph::compile(model);
  double inside = 0, outside = 0;
  std::int32_t last = -1;
  for (graph::Step const& step : program.list.steps) {
    (step.layer >= 0 ? inside : outside) += graph::cost_of(step).flops;
    last = std::max(last, step.layer);
  }
  std::int64_t const layers = std::int64_t{last} + 1;
  layout.balanced = false;
  if (layers >= layout.parts() && inside > 0)
    layout.layers = balanced_layers(layout, layers, outside / (inside / static_cast<double>(layers)));
  return layout;
}

}  // namespace tutti::parallel
