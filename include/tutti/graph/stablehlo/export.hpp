// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph as a StableHLO module, which compilers for other machines read (IREE, XLA): text, without their libraries.
///
/// Composites are written out in primitives (graph/decompose.hpp). A `repeat` is a `while` over a counter, what it
/// carries, results that it stacks, its invariants and what it slices. Results that nothing reads are left out.
/// docs/adr/0021-graphs-as-stablehlo-text.md says why it is so.
/// Determinism  the text is a pure function of the graph and the options. Numbers are those of the graph's interpreter
///              within the rounding of the target, which may order sums otherwise, over ranks and of equal indices too.
///              bfloat16 and float16 values round after every operation, not only where they are stored. The sign of
///              the larger of two zeros is the target's to choose; exact_gelu of -infinity is NaN, as its decomposition
///              is. Indices outside of tables are not refused: graph/stablehlo/arrays.hpp
/// Source  https://openxla.org/stablehlo/spec, operations of version 1.0; `chlo.erf` for the error function, which
///         StableHLO has not

#include <tutti/graph/decompose.hpp>
#include <tutti/graph/stablehlo/call.hpp>
#include <tutti/graph/stablehlo/collectives.hpp>
#include <tutti/graph/stablehlo/module.hpp>
#include <tutti/graph/stablehlo/primitives.hpp>
#include <tutti/graph/stablehlo/writer.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

namespace stablehlo {

class Exporter {
 public:
  explicit Exporter(StablehloOptions const& options) : options_(options) {}

  Writer out;

  /// Values of `roots` of a graph whose leaves are `leaves`.
  Values write(Graph const& graph, List<Id> const& leaves, Values const& values, List<Id> const& roots) {
    List<Values> known(graph.nodes.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) known[static_cast<std::size_t>(leaves[i])] = {values[i]};
    List<Id> const order = reachable_order(graph, roots);
    List<List<bool>> wanted(graph.nodes.size());
    for (Id id : order)
      if (graph.op(id) == Op::repeat)
        wanted[static_cast<std::size_t>(id)].assign(static_cast<std::size_t>(graph.results(id)), false);
    for (Id id : order)
      if (graph.op(id) == Op::result)
        wanted[static_cast<std::size_t>(graph.operand(id, 0))][static_cast<std::size_t>(graph.integer(id))] = true;
    for (Id id : order) {
      Values& results = known[static_cast<std::size_t>(id)];
      if (!results.empty()) continue;
      Call call{out, graph, id, options_, {}};
      if (graph.op(id) == Op::result) {
        results = {known[static_cast<std::size_t>(graph.operand(id, 0))][static_cast<std::size_t>(graph.integer(id))]};
        continue;
      }
      for (Id operand : graph.operands(id)) call.operands.push_back(known[static_cast<std::size_t>(operand)][0]);
      if (options_.locations) out.locate(graph.file(id), graph[id].line);
      if (graph.op(id) == Op::repeat) results = loop(call, wanted[static_cast<std::size_t>(id)]);
      else results = {primitive(call)};
    }
    Values found;
    for (Id root : roots) found.push_back(known[static_cast<std::size_t>(root)][0]);
    return found;
  }

 private:
  void region(Values const& arguments) {
    std::string text = "^bb0(";
    for (std::size_t i = 0; i < arguments.size(); ++i)
      text += concat(i == 0 ? "" : ", ", arguments[i].name, ": ", type_text(arguments[i]));
    out.line(text + "):");
    out.indent(1);
  }
  void leave(Values const& results) {
    out.line(concat("\"stablehlo.return\"(", names_text(results), ") : (", type_text(results), ") -> ()"));
    out.indent(-1);
  }
  Values renamed(Values const& like) {
    Values result = like;
    for (Value& value : result) value.name = out.fresh();
    return result;
  }
  /// `index`, then zeros.
  static void append_first(Values& operands, Value const& index, Value const& zero, Shape const& shape) {
    for (int axis = 0; axis < shape.rank(); ++axis) operands.push_back(axis == 0 ? index : zero);
  }

  Values loop(Call const& call, List<bool> const& wanted) {
    Graph const& graph = call.graph;
    RepeatShape const shape = repeat_shape(graph, call.id);
    Graph const& body = graph.body(call.id);
    auto const carried = static_cast<std::size_t>(shape.carried),
               fixed = carried + static_cast<std::size_t>(shape.invariants);
    auto const initial = [&](std::size_t i) {
      Type const& type = graph.type(call.id, static_cast<int>(i));
      return i < carried ? call.operands[i] : out.number(type.dtype, type.shape, 0);
    };
    // What results, by number of the repeat's; then what stays as it is.
    List<std::size_t> numbers;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (i < carried || wanted[i]) numbers.push_back(i);
    Values results(wanted.size());
    if (shape.length == 0) {
      for (std::size_t i : numbers) results[i] = initial(i);
      return results;
    }
    DType const counting = shape.length < (std::int64_t{1} << 31) ? DType::int32 : DType::int64;
    Values state{out.number(counting, {}, 0)};
    for (std::size_t i : numbers) state.push_back(initial(i));
    std::size_t const constants = state.size();
    for (std::size_t i = carried; i < call.operands.size(); ++i) state.push_back(call.operands[i]);

    std::string const name = out.fresh();
    out.line(concat(name, ':', state.size(), " = \"stablehlo.while\"(", names_text(state), ") ({"));
    Values inner = renamed(state);
    region(inner);
    leave({out.compare("LT", inner[0], out.number(counting, {}, static_cast<double>(shape.length)))});
    out.line("}, {");
    inner = renamed(state);
    region(inner);
    Value const zero = out.number(counting, {}, 0);
    Value const index =
        shape.reversed
            ? out.map("subtract", {out.number(counting, {}, static_cast<double>(shape.length - 1)), inner[0]})
            : inner[0];
    Values inputs;
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      Value const& whole = i < carried ? inner[1 + i] : inner[constants + i - carried];
      inputs.push_back(i < fixed ? whole : element(whole, index, zero));
    }
    List<Id> roots;
    for (std::size_t i : numbers) roots.push_back(body.outputs[i].node);
    Values const found = write(body, body.inputs, inputs, roots);
    Values next{out.map("add", {inner[0], out.number(counting, {}, 1)})};
    for (std::size_t i = 0; i < numbers.size(); ++i)
      next.push_back(numbers[i] < carried ? found[i] : with_element(inner[1 + i], found[i], index, zero));
    for (std::size_t i = constants; i < inner.size(); ++i) next.push_back(inner[i]);
    leave(next);
    if (options_.locations) out.locate(graph.file(call.id), graph[call.id].line);  // the body has lines of its own
    out.line(concat("}) : (", type_text(state), ") -> (", type_text(state), ")", out.location()));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      results[numbers[i]] = state[1 + i];
      results[numbers[i]].name = concat(name, '#', 1 + i);
    }
    return results;
  }
  Value element(Value const& whole, Value const& index, Value const& zero) {
    Shape const one = whole.shape.with(0, 1);
    Values operands{whole};
    append_first(operands, index, zero, one);
    return out.reshape(out.op("dynamic_slice", operands, whole.dtype, one,
                              concat("slice_sizes = ", array_text({one.begin(), one.end()}))),
                       without_first(whole.shape));
  }
  Value with_element(Value const& whole, Value const& part, Value const& index, Value const& zero) {
    Values operands{whole, out.reshape(part, whole.shape.with(0, 1))};
    append_first(operands, index, zero, whole.shape);
    return out.map("dynamic_update_slice", operands);
  }

  StablehloOptions const& options_;
};

/// Arguments in the order of StablehloModule, and the leaves that they are.
inline List<Id> list_arguments(Graph const& graph, List<StablehloPort>& ports) {
  List<Id> leaves;
  auto const add = [&](Id id, StablehloRole role) {
    ports.push_back({std::string(graph.name(id)), role, graph.dtype(id), graph.shape(id)});
    leaves.push_back(id);
  };
  for (Parameter const& parameter : graph.parameters) add(parameter.node, StablehloRole::parameter);
  for (Id id : graph.states) add(id, StablehloRole::state);
  for (Id id : graph.inputs) add(id, StablehloRole::input);
  for (Id id : graph.scalars) add(id, StablehloRole::scalar);
  return leaves;
}
/// Results likewise, and the nodes that they are.
inline List<Id> list_results(Graph const& graph, List<Id> const& leaves, List<StablehloPort>& ports) {
  List<Id> roots;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    for (Update const& update : graph.updates)
      if (update.target == leaves[i]) {
        ports.push_back({std::string(graph.name(leaves[i])), StablehloRole::update, graph.dtype(leaves[i]),
                         graph.shape(leaves[i]), static_cast<int>(i)});
        roots.push_back(update.value);
      }
  for (Output const& output : graph.outputs) {
    ports.push_back({std::string(graph.text_of(output.name)), StablehloRole::output, graph.dtype(output.node),
                     graph.shape(output.node)});
    roots.push_back(output.node);
  }
  return roots;
}

inline void check_name(std::string_view name) {
  bool good = !name.empty() && !(name[0] >= '0' && name[0] <= '9');
  for (char c : name)
    good = good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
  if (!good)
    throw Error(ErrorKind::invalid_argument, "to_stablehlo",
                concat("'", name, "' is no name for a module or function; use letters, digits and underscores"));
}

}  // namespace stablehlo

/// The graph as a module of one function, which does what a run does: outputs, and new values of what it updates.
/// Shapes       arguments and results are those of `arguments` and `results`; all are fixed
/// Errors       unavailable for an operation from outside the library and dtype for elements that StableHLO has not,
///              naming operation and line; configuration for ranks or groups that do not fit the graph;
///              invalid_argument for names
inline StablehloModule to_stablehlo(Graph const& graph, StablehloOptions const& options = {}) {
  stablehlo::check_name(options.module);
  stablehlo::check_name(options.function);
  stablehlo::check_groups(options);
  stablehlo::check_exportable(graph);
  Graph const primitive = decompose(graph);
  StablehloModule module;
  module.function = options.function;
  List<Id> const leaves = stablehlo::list_arguments(primitive, module.arguments);
  List<Id> const roots = stablehlo::list_results(primitive, leaves, module.results);

  stablehlo::Values arguments;
  std::string signature;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    StablehloPort const& port = module.arguments[i];
    arguments.push_back({concat("%arg", i), port.dtype, port.shape});
    bool replaced = false;
    for (StablehloPort const& result : module.results) replaced = replaced || result.argument == static_cast<int>(i);
    signature += concat(i == 0 ? "" : ", ", arguments[i].name, ": ", stablehlo::type_text(arguments[i]),
                        options.donate && replaced ? " {iree.abi.consume, jax.buffer_donor = true}" : "");
  }
  stablehlo::Exporter exporter(options);
  stablehlo::Values const results = exporter.write(primitive, leaves, arguments, roots);
  std::int64_t const replicas = options.ranks * static_cast<std::int64_t>(stablehlo::groups_of(options).size());
  module.text =
      concat("module @", options.module, " attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = ", replicas,
             " : i32} {\n  func.func public @", options.function, "(", signature, ") -> (",
             stablehlo::type_text(results), ") {\n", exporter.out.text(), "    func.return", results.empty() ? "" : " ",
             stablehlo::names_text(results), results.empty() ? "" : " : ", stablehlo::type_text(results), "\n  }\n}\n");
  return module;
}

}  // namespace tutti::graph
