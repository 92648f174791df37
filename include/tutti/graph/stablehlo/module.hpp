// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a graph is as a StableHLO module: its text, and the list of its arguments and results for whoever calls it.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::graph {

struct StablehloOptions {
  std::string module = "tutti";   ///< a name of letters, digits and underscores
  std::string function = "main";  ///< likewise; JAX calls `main`
  /// Arguments that a result replaces may be overwritten by it: `jax.buffer_donor` for XLA, `iree.abi.consume` for
  /// IREE. Their buffers are gone after the call. (Not by `tf.aliasing_output`, nor by `iree.abi.output`: IREE writes
  /// the result there while the old value is still to be read.)
  bool donate = true;
  /// Every operation says from which line of the program it comes: for the messages of compilers.
  bool locations = false;
  /// Products whose operands are rounded to bfloat16 (graph/amp.hpp) are of bfloat16 operands, summed in float32, which
  /// devices have units for. False: of float32 operands that are rounded; XLA has nothing else on processors.
  bool narrow_products = true;
  /// Of a graph with collectives: the replicas that run the module. Its ranks are those of one group.
  std::int64_t ranks = 1;
  /// Groups of `ranks` replicas each, which train apart; empty: one, of replicas 0 to ranks - 1. The rank of a replica
  /// is its place in its group.
  List<List<std::int64_t>> groups{};
};

enum class StablehloRole : std::uint8_t {
  parameter,  ///< argument
  state,      ///< argument
  input,      ///< argument
  scalar,     ///< argument
  update,     ///< result: the new value of a parameter or state
  output,     ///< result
};
constexpr std::string_view name(StablehloRole role) noexcept {
  constexpr std::string_view names[] = {"parameter", "state", "input", "scalar", "update", "output"};
  return names[static_cast<std::size_t>(role)];
}

/// An argument or a result.
struct StablehloPort {
  std::string name;
  StablehloRole role = StablehloRole::input;
  DType dtype = DType::float32;
  Shape shape;
  int argument = -1;  ///< of an update: the argument that it replaces
};

/// Arguments are parameters, states, inputs, scalars, as the graph lists them; those that nothing uses too. Results are
/// updates, in the order of what they replace, then outputs.
struct StablehloModule {
  std::string text;
  std::string function;
  List<StablehloPort> arguments, results;
};

namespace stablehlo {

inline std::string json_of(List<StablehloPort> const& ports) {
  std::string text;
  for (StablehloPort const& port : ports) {
    text += concat(text.empty() ? "" : ",", "\n    {\"name\": \"", json_text(port.name), "\", \"role\": \"",
                   name(port.role), "\", \"dtype\": \"", tutti::name(port.dtype), "\", \"shape\": [");
    for (int axis = 0; axis < port.shape.rank(); ++axis) text += concat(axis == 0 ? "" : ", ", port.shape[axis]);
    text += ']';
    if (port.argument >= 0) text += concat(", \"argument\": ", port.argument);
    text += '}';
  }
  return text;
}

}  // namespace stablehlo

/// The lists as JSON: {"function", "arguments", "results"}, of each port name, role, dtype, shape and, of an update,
/// the number of the argument that it replaces.
inline std::string to_json(StablehloModule const& module) {
  return concat("{\n  \"function\": \"", json_text(module.function), "\",\n  \"arguments\": [",
                stablehlo::json_of(module.arguments), "\n  ],\n  \"results\": [", stablehlo::json_of(module.results),
                "\n  ]\n}\n");
}

}  // namespace tutti::graph
