// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A forward graph as an ONNX model, which onnxruntime and compilers for other devices read.
///
/// Composites are written out in primitives (graph/decompose.hpp). Parameters and states are weights of the model,
/// inputs and scalars its inputs. A `repeat` is unrolled: each layer reads weights of its own, those of a stacked
/// parameter by layer. Results that nothing reads are left out. docs/adr/0032-models-as-onnx.md says why it is so.
/// Determinism  the model is a pure function of the graphs and the options. Numbers are those of the graph's
///              interpreter within the rounding of the target. Integers that a floating number does not fit, and
///              sums of integers that leave their type, are the target's to choose.

#include <tutti/graph/decompose.hpp>
#include <tutti/graph/onnx/arrays.hpp>
#include <tutti/graph/onnx/call.hpp>
#include <tutti/graph/onnx/model.hpp>
#include <tutti/graph/onnx/twin.hpp>
#include <tutti/graph/onnx/writer.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

namespace onnx {

/// Operations, leaves and structure aside, that are written by cases here; functions of elements have theirs in
/// graph/op/.
inline Value primitive(Call const& e) {
  Op const op = e.graph().op(e.id);
  switch (op) {
    case Op::constant: return e.out.number(e.dtype(), e.shape(), e.real());
    case Op::iota: return iota(e);
    case Op::stop_gradient:
    case Op::barrier: return e.in();
    case Op::broadcast_in_dim: return broadcast(e);
    case Op::reshape: return e.out.reshape(e.in(), e.shape());
    case Op::transpose: return transpose(e);
    case Op::slice: return slice(e);
    case Op::pad: return pad(e);
    case Op::concatenate: return concatenate(e);
    case Op::reduce_sum:
    case Op::reduce_max: return reduce(e);
    case Op::dot_general: return dot_general(e);
    case Op::gather: return gather(e);
    default: break;
  }
  if (is_function(op)) return function(e);
  refuse(e.graph(), e.id, ErrorKind::unavailable,
         op == Op::custom ? "an operation from outside the library has no ONNX form; write it with operations of the "
                            "library"
                          : "this operation has no ONNX form here. Export a forward function on one rank");
}

class Exporter {
 public:
  Exporter(OnnxOptions const& options, List<OnnxAxis> axes) : out(std::move(axes)), options_(options) {}

  Writer out;
  List<OnnxWeight> weights;

  /// Values of `roots` of a graph whose leaves are `leaves`; a leaf without a name is a stacked parameter, of which
  /// each layer is a weight of its own.
  Values write(Twin const& twin, List<Id> const& leaves, Values const& values, List<Id> const& roots) {
    Graph const& graph = twin.first;
    List<Values> known(graph.nodes.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) known[static_cast<std::size_t>(leaves[i])] = {values[i]};
    for (Id id : reachable_order(graph, roots)) {
      Values& results = known[static_cast<std::size_t>(id)];
      if (!results.empty()) continue;
      if (graph.op(id) == Op::result) {
        results = {known[static_cast<std::size_t>(graph.operand(id, 0))][static_cast<std::size_t>(graph.integer(id))]};
        continue;
      }
      Call call{out, twin, id, {}};
      for (Id operand : graph.operands(id)) call.operands.push_back(known[static_cast<std::size_t>(operand)][0]);
      if (graph.op(id) == Op::repeat) results = loop(call);
      else results = {primitive(call)};
      if (element_type(graph.dtype(id)) == 0)
        refuse(graph, id, ErrorKind::dtype,
               concat("ONNX has no elements of type ", tutti::name(graph.dtype(id)), "; convert it to uint8"));
    }
    Values found;
    for (Id root : roots) found.push_back(known[static_cast<std::size_t>(root)][0]);
    return found;
  }

  /// A parameter or state, or a layer of one, as the graph has it.
  Value weight(Graph const& graph, Id id, std::int64_t layer) {
    Shape const shape = layer < 0 ? graph.shape(id) : without_first(graph.shape(id));
    DType const dtype = graph.dtype(id);
    bool const narrow = dtype == DType::float32 && graph.op(id) == Op::parameter && shape.rank() > 1;
    std::string_view const parameter = graph.name(id);
    std::string name = options_.weight_name != nullptr ? options_.weight_name(parameter, layer)
                       : layer < 0                     ? std::string(parameter)
                                                       : concat(parameter, '.', layer);
    weights.push_back({name, std::string(parameter), layer, narrow ? options_.matrices : dtype, shape});
    Extents extents;
    for (std::int64_t extent : shape) extents.push_back({extent, extent});
    return out.cast({std::move(name), weights.back().dtype, extents, List<bool>(extents.size(), false), false}, dtype);
  }

 private:
  Values loop(Call const& call) {
    Graph const& graph = call.graph();
    RepeatShape const shape = repeat_shape(graph, call.id);
    Twin const body = call.twin.body(call.id);
    auto const carried = static_cast<std::size_t>(shape.carried),
               fixed = carried + static_cast<std::size_t>(shape.invariants);
    List<Id> roots;
    for (Output const& output : body.first.outputs) roots.push_back(output.node);
    Values state(call.operands.begin(), call.operands.begin() + carried);
    List<Values> stacked(roots.size() - carried);
    for (Values& layers : stacked) layers.resize(static_cast<std::size_t>(shape.length));
    for (std::int64_t step = 0; step < shape.length; ++step) {
      std::int64_t const layer = shape.reversed ? shape.length - 1 - step : step;
      Values inputs = state;
      for (std::size_t i = carried; i < call.operands.size(); ++i)
        inputs.push_back(i < fixed ? call.operands[i]
                                   : element(graph, graph.operand(call.id, static_cast<int>(i)), call.operands[i],
                                             layer));
      Values const found = write(body, body.first.inputs, inputs, roots);
      for (std::size_t i = 0; i < found.size(); ++i)
        (i < carried ? state[i] : stacked[i - carried][static_cast<std::size_t>(layer)]) = found[i];
    }
    Values results = state;
    for (std::size_t i = 0; i < stacked.size(); ++i) {
      Extents const extents = call.twin.shape(call.id, static_cast<int>(carried + i));
      DType const dtype = graph.type(call.id, static_cast<int>(carried + i)).dtype;
      if (stacked[i].empty()) {
        results.push_back(out.number(dtype, extents, 0));
        continue;
      }
      List<std::string> layers;
      for (Value const& one : stacked[i])
        layers.push_back(out.add("Unsqueeze", {out.full(one).name, out.list({0})}));
      results.push_back({out.add("Concat", std::move(layers), {Writer::integer("axis", 0)}), dtype, extents,
                         List<bool>(extents.size(), false)});
    }
    return results;
  }
  Value element(Graph const& graph, Id stacked, Value const& whole, std::int64_t layer) {
    if (whole.name.empty()) return weight(graph, stacked, layer);
    Value const all = out.full(whole);
    Extents const rest(all.shape.begin() + 1, all.shape.end());
    return {out.add("Gather", {all.name, out.number(DType::int64, static_cast<double>(layer))},
                    {Writer::integer("axis", 0)}),
            all.dtype, rest, List<bool>(rest.size(), false)};
  }

  OnnxOptions const& options_;
};

/// Whether a parameter is read by layers of loops alone.
inline bool only_by_layers(Graph const& graph, Id parameter) {
  for (Output const& output : graph.outputs)
    if (output.node == parameter) return false;
  for (Id id = 0; id < graph.size(); ++id) {
    auto const operands = graph.operands(id);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] != parameter) continue;
      if (graph.op(id) != Op::repeat) return false;
      RepeatShape const shape = repeat_shape(graph, id);
      if (static_cast<int>(i) < shape.carried + shape.invariants) return false;
    }
  }
  return true;
}

inline OnnxPort port_of(Writer const& out, std::string_view name, Value const& value) {
  OnnxPort port{std::string(name), value.dtype, {}, {}};
  for (Extent const& extent : value.shape) {
    port.extents.push_back(extent.first);
    port.names.push_back(extent.fixed() ? std::string() : out.axis_name(extent));
  }
  return port;
}

}  // namespace onnx

/// Two traces of one forward function, with other extents along `axes`, as one model whose callers choose these.
/// Shapes       inputs are the graph's inputs, then its scalars; outputs its outputs; weights in the order in which
///              they are first read
/// Errors       unavailable, naming operation and line: an operation without an ONNX form, one that is another for
///              other extents, and a graph that updates parameters or states; dtype, for elements that ONNX has not;
///              invalid_argument, for an axis that no input has
inline OnnxModel to_onnx(Graph const& graph, Graph const& other, List<OnnxAxis> axes, OnnxOptions const& options = {}) {
  if (!graph.updates.empty())
    throw Error(ErrorKind::unavailable, "to_onnx",
                "the graph updates parameters or states, which ONNX cannot say. Export a forward function");
  if (!is_floating(options.matrices))
    throw Error(ErrorKind::invalid_argument, "to_onnx", "matrices are float32, float16 or bfloat16");
  Graph const first = decompose(graph), second = decompose(other);
  onnx::check_twins(first, second);
  onnx::Twin const twin{first, second};
  onnx::Exporter exporter(options, std::move(axes));
  OnnxModel model;
  model.name = options.name;
  List<Id> leaves;
  onnx::Values values;
  auto const input = [&](Id id) {
    onnx::Extents const shape = twin.shape(id);
    DType const dtype = first.dtype(id), declared = dtype == DType::int32 && options.wide_inputs ? DType::int64 : dtype;
    onnx::Value const value{std::string(first.name(id)), declared, shape, List<bool>(shape.size(), false), false};
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      exporter.out.found(shape[axis], value.name, static_cast<int>(axis));
    model.inputs.push_back(onnx::port_of(exporter.out, value.name, value));
    leaves.push_back(id);
    values.push_back(exporter.out.cast(value, dtype));
  };
  for (Id id : first.inputs) input(id);
  for (Id id : first.scalars) input(id);
  List<Id> roots;
  for (Output const& output : first.outputs) roots.push_back(output.node);
  List<Id> const used = reachable_order(first, roots);
  auto const weight = [&](Id id, bool stacked) {
    if (!detail::contains(used, id)) return;
    leaves.push_back(id);
    if (stacked && onnx::only_by_layers(first, id)) {
      values.push_back({"", first.dtype(id), twin.shape(id)});
      return;
    }
    values.push_back(exporter.weight(first, id, -1));
  };
  for (Parameter const& parameter : first.parameters) weight(parameter.node, parameter.stacked);
  for (Id id : first.states) weight(id, false);

  onnx::Values const results = exporter.write(twin, leaves, values, roots);
  for (std::size_t i = 0; i < results.size(); ++i) {
    onnx::Value value = exporter.out.full(results[i]);
    std::string const name(first.text_of(first.outputs[i].name));
    exporter.out.nodes.push_back({"Identity", {value.name}, name, {}});
    model.outputs.push_back(onnx::port_of(exporter.out, name, value));
  }
  model.nodes = std::move(exporter.out.nodes);
  model.weights = std::move(exporter.weights);
  return model;
}
/// One graph, all extents as they are.
inline OnnxModel to_onnx(Graph const& graph, OnnxOptions const& options = {}) {
  return to_onnx(graph, graph, {}, options);
}

}  // namespace tutti::graph
