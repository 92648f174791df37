// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a graph is as an ONNX model: nodes, ports and a list of weights, without the library that writes the file.
/// Source  https://onnx.ai/onnx/repo-docs/IR.html and Operators.html; operators of opset 17

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::graph {

/// An axis whose extent the caller of the model chooses: its name, and its extents in the two graphs of which the model
/// is made.
struct OnnxAxis {
  std::string name;
  std::int64_t first = 0, second = 0;
};

struct OnnxOptions {
  std::string name = "tutti";  ///< of the model's graph
  /// Type in the file of parameters that are matrices, float32, float16 or bfloat16: a Cast makes float32 of others.
  DType matrices = DType::float32;
  /// The name in the file of a parameter, or of its layer (-1: it is not stacked). Null: "name", or "name.3".
  std::string (*weight_name)(std::string_view parameter, std::int64_t layer) = nullptr;
  /// Inputs of int32 are declared int64, as callers of ONNX models give token ids.
  bool wide_inputs = true;
};

/// Numbers of an attribute. `bytes` are its elements, little-endian.
struct OnnxConstant {
  DType dtype = DType::int64;
  List<std::int64_t> dims;
  std::string bytes;

  friend bool operator==(OnnxConstant const& a, OnnxConstant const& b) {
    return a.dtype == b.dtype && a.bytes == b.bytes && std::string_view(a.key()) == b.key();
  }
  std::string key() const {
    std::string text;
    for (std::int64_t extent : dims) text += std::to_string(extent) + ",";
    return text;
  }
};

struct OnnxAttribute {
  enum class Kind : std::uint8_t { integer, integers, text, tensor };
  std::string name;
  Kind kind = Kind::integer;
  std::int64_t integer = 0;
  List<std::int64_t> integers;
  std::string text;
  OnnxConstant tensor;
};

struct OnnxNode {
  std::string operation;  ///< MatMul, Softmax: of ONNX's own domain
  List<std::string> inputs;
  std::string output;
  List<OnnxAttribute> attributes;
};

/// An input or output of the model. An extent is fixed where its name is empty.
struct OnnxPort {
  std::string name;
  DType dtype = DType::float32;
  List<std::int64_t> extents;
  List<std::string> names;
};

/// A tensor of the file whose numbers the caller gives: a parameter or state of the graph, or one layer of it.
struct OnnxWeight {
  std::string name;         ///< in the model
  std::string parameter;    ///< in the graph
  std::int64_t layer = -1;  ///< -1: all of it
  DType dtype = DType::float32;
  Shape shape;
};

/// Nodes stand behind those that they read.
struct OnnxModel {
  static constexpr int opset = 17;
  std::string name;
  List<OnnxNode> nodes;
  List<OnnxPort> inputs, outputs;
  List<OnnxWeight> weights;
};

}  // namespace tutti::graph
