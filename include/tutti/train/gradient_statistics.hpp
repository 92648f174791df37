// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a step's gradients are like: norm and zeros of every parameter, and where a NaN comes from.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/not_finite.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/optim/gradient_statistics.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/split.hpp>
#include <tutti/train/inputs.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

/// Of the gradient of one parameter, averaged over micro-steps and ranks and not clipped. Layers of a Stack are one
/// parameter.
struct ParameterGradient {
  std::string name;
  double norm = 0;   ///< root of the sum of squares
  double zeros = 0;  ///< share of its elements that are 0
};
/// Of one batch, before any update.
struct GradientStatistics {
  double loss = 0, norm = 0;  ///< as a step's result
  std::vector<ParameterGradient> parameters;
  std::string not_finite;  ///< a sentence: what is not finite, and the operation that it comes of; empty: all is
};

/// What the last program of a step with optim::measure_gradients has given.
/// Ranks: those of the tensor axis, where `splits` are of several, and then blocking.
template <class Run>
GradientStatistics statistics_of(Run const& run, graph::StepList const& list, graph::State const& state,
                                 parallel::Splits const& splits, comm::Port* tensor) {
  GradientStatistics found;
  found.loss = run.value("loss");
  std::vector<double> values;  // squares and zeros by turns
  std::vector<std::size_t> divided;
  for (graph::Entry const& output : list.outputs) {
    if (!output.name.starts_with(optim::squares_output)) continue;
    std::string const name = output.name.substr(optim::squares_output.size());
    graph::Field const* const field = state.find(name);
    bool const part = field != nullptr && splits.ranks() > 1 && splits.of(field->name, field->shape).divided();
    if (part) divided.push_back(values.size());
    values.push_back(run.value(output.name));
    values.push_back(run.value(concat(optim::zeros_output, name)));
    std::int64_t const size = field == nullptr ? 0 : field->shape.size() * (part ? splits.ranks() : 1);
    found.parameters.push_back({name, 0, size > 0 ? 1.0 / static_cast<double>(size) : 0});
  }
  if (tensor != nullptr && !divided.empty()) {
    std::vector<double> parts;
    for (std::size_t const i : divided) parts.insert(parts.end(), {values[i], values[i + 1]});
    parallel::all_reduce(*tensor, parts, comm::PortOp::sum);
    for (std::size_t i = 0; i < divided.size(); ++i)
      for (std::size_t k : {0u, 1u}) values[divided[i] + k] = parts[2 * i + k];
  }
  for (std::size_t i = 0; i < found.parameters.size(); ++i) {
    found.norm += values[2 * i];
    found.parameters[i].norm = std::sqrt(values[2 * i]);
    found.parameters[i].zeros *= values[2 * i + 1];
  }
  found.norm = std::sqrt(found.norm);
  return found;
}

/// "the gradients of 'wte' and 3 others are not finite"; empty where all are, and the loss.
inline std::string describe_not_finite(GradientStatistics const& found) {
  std::string first;
  std::size_t count = 0;
  for (ParameterGradient const& one : found.parameters) {
    if (std::isfinite(one.norm)) continue;
    if (count++ == 0) first = one.name;
  }
  std::string text;
  if (count == 1) text = concat("the gradient of '", first, "' is not finite");
  if (count > 1)
    text = concat("the gradients of '", first, "' and ", count - 1, count == 2 ? " other" : " others",
                  " are not finite");
  if (std::isfinite(found.loss)) return text;
  return concat("the loss is ", std::isnan(found.loss) ? "nan" : "infinite", text.empty() ? "" : ", and ", text);
}

/// Describes what is not finite, where something is; whether anything is on any rank. Ranks: all, once connected.
inline bool any_not_finite(GradientStatistics& found, parallel::DataParallel const& ranks) {
  found.not_finite = describe_not_finite(found);
  double any = found.not_finite.empty() ? 0 : 1;
  if (any > 0) found.not_finite += ": ";
  if (ranks.port) any = parallel::largest(*ranks.everyone(), any);
  return any > 0;
}

namespace detail {

/// The first input, or field that the program reads, that is not finite before anything has run, in words.
inline std::string spoilt_source(graph::StepList const& list, InputBatch const& batch, graph::State const& state) {
  auto const finite = [](DType dtype, Shape const& shape, void const* data) {
    return graph::finite(graph::contiguous_ref(0, 0, dtype, shape), data) == graph::Finite::yes;
  };
  for (InputValues const& values : batch)
    if (!finite(values.dtype, values.shape, values.elements))
      return concat("input '", values.name, "' is not finite");
  for (graph::Field const& field : state.fields())
    if (graph::Program::find(list.fields, field.name) >= 0 && !finite(field.dtype, field.shape, field.data()))
      return concat(field.parameter ? "parameter" : "state", " '", field.name, "' is not finite before the step");
  return {};
}

}  // namespace detail

/// Where what is not finite comes from, by running `graph` (a whole loss with its gradient, without reductions over the
/// data axis) once for every micro-step, on processors, operation by operation. `give(run, micro)` sets its inputs. The
/// sentence of the lowest rank that finds it, the same on every rank.
/// Ranks  all of `ranks`, where these are connected. Blocking
template <class Execution, class F>
std::string find_origin(Execution& execution, graph::Graph const& graph, graph::State& state, InputBatch const& batch,
                        std::int64_t micro_steps, parallel::DataParallel const& ranks, F&& give) {
  std::optional<exec::Context> own;
  exec::Context* context = nullptr;
  if constexpr (requires { execution.host(); }) context = &execution.host();
  else context = &own.emplace();
  graph::CompileOptions options;
  options.fuse = false;  // operations by the names and lines that the loss says
  graph::Program const program = graph::compile(graph, options);
  graph::NotFinite found;
  graph::Executor run(*context, program, state,
                      {.port = ranks.port.get(), .tensor = ranks.tensor.get(), .not_finite = &found});
  std::string text = detail::spoilt_source(program.list, batch, state);
  for (std::int64_t micro = 0; micro < micro_steps; ++micro) {  // to the end: other ranks may wait for this one
    give(run, micro);
    found = {};
    run.run();
    if (text.empty() && found.found())
      text = concat(found.text(program.list),
                    micro_steps > 1 ? concat(", in micro-step ", micro + 1, " of ", micro_steps) : "");
  }
  comm::Port* const port = ranks.everyone().get();
  std::string const elsewhere = "it comes of a sum over micro-steps or ranks";
  if (port == nullptr || port->size() == 1) return text.empty() ? elsewhere : text;
  if (!text.empty()) text += concat(", on rank ", port->rank());
  double first = text.empty() ? port->size() : port->rank();
  parallel::all_reduce(*port, {&first, 1}, comm::PortOp::min);
  if (first == port->size()) return elsewhere;
  double const length = parallel::largest(*port, first == port->rank() ? static_cast<double>(text.size()) : 0);
  text.resize(static_cast<std::size_t>(length));
  port->wait(port->start_broadcast(text.data(), static_cast<std::int64_t>(text.size()), DType::byte,
                                   static_cast<int>(first), std::source_location::current()));
  return text;
}

}  // namespace tutti::train
