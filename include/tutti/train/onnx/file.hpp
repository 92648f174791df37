// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph's ONNX model as the messages of its file.

#include <tutti/core/concat.hpp>
#include <tutti/graph/onnx/model.hpp>
#include <tutti/io/onnx/writer.hpp>
#include <tutti/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::train::detail {

inline void set_metadata(io::onnx_file::ModelProto& model, std::string key, std::string value) {
  auto* const entry = model.add_metadata_props();
  entry->set_key(std::move(key));
  entry->set_value(std::move(value));
}
inline void set_port(io::onnx_file::ValueInfoProto& to, graph::OnnxPort const& port) {
  to.set_name(port.name);
  auto* const type = to.mutable_type()->mutable_tensor_type();
  type->set_elem_type(io::detail::onnx_type(port.dtype));
  for (std::size_t axis = 0; axis < port.extents.size(); ++axis) {
    auto* const dim = type->mutable_shape()->add_dim();
    if (port.names[axis].empty()) dim->set_dim_value(port.extents[axis]);
    else dim->set_dim_param(port.names[axis]);
  }
}
/// All but the weights.
inline io::onnx_file::ModelProto onnx_file(graph::OnnxModel const& model) {
  io::onnx_file::ModelProto file;
  file.set_ir_version(8);
  file.set_producer_name("tutti");
  file.set_producer_version(concat(version_major, '.', version_minor, '.', version_patch));
  file.add_opset_import()->set_version(graph::OnnxModel::opset);
  io::onnx_file::GraphProto& graph = *file.mutable_graph();
  graph.set_name(model.name);
  for (graph::OnnxPort const& port : model.inputs) set_port(*graph.add_input(), port);
  for (graph::OnnxPort const& port : model.outputs) set_port(*graph.add_output(), port);
  for (graph::OnnxNode const& node : model.nodes) {
    auto& to = *graph.add_node();
    to.set_name(node.output);
    to.set_op_type(node.operation);
    for (std::string const& input : node.inputs) to.add_input(input);
    to.add_output(node.output);
    for (graph::OnnxAttribute const& attribute : node.attributes) {
      auto& one = *to.add_attribute();
      one.set_name(attribute.name);
      switch (attribute.kind) {
        case graph::OnnxAttribute::Kind::integer: one.set_type(2), one.set_i(attribute.integer); break;
        case graph::OnnxAttribute::Kind::text: one.set_type(3), one.set_s(attribute.text); break;
        case graph::OnnxAttribute::Kind::integers:
          one.set_type(7);
          for (std::int64_t const number : attribute.integers) one.add_ints(number);
          break;
        case graph::OnnxAttribute::Kind::tensor:
          one.set_type(4);
          for (std::int64_t const extent : attribute.tensor.dims) one.mutable_t()->add_dims(extent);
          one.mutable_t()->set_data_type(io::detail::onnx_type(attribute.tensor.dtype));
          one.mutable_t()->set_raw_data(attribute.tensor.bytes);
          break;
      }
    }
  }
  return file;
}

}  // namespace tutti::train::detail
