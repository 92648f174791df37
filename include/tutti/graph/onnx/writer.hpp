// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// ONNX nodes one after another, for values of which some axes have an extent that is known at the call alone.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/onnx/element.hpp>
#include <tutti/graph/onnx/model.hpp>
#include <tutti/graph/onnx/value.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::onnx {

/// Appends nodes. Every value has a name of its own.
class Writer {
 public:
  explicit Writer(List<OnnxAxis> axes) : axes_(std::move(axes)) {}

  List<OnnxNode> nodes;

  /// Where the extent of an axis can be read at the call. The first input that has it counts.
  void found(Extent const& extent, std::string_view input, int axis) {
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (extent == Extent{axes_[i].first, axes_[i].second} && source(i).input.empty())
        sources_[i] = {std::string(input), axis};
  }
  /// "batch", "batch*sequence" or "2*sequence"; empty: a fixed extent. Errors: unavailable, as `extent`.
  std::string axis_name(Extent const& extent) const {
    std::string name;
    Extent left = factors(extent, [&](std::size_t i) { name += concat(name.empty() ? "" : "*", axes_[i].name); });
    return left.first == 1 || extent.fixed() ? name : concat(left.first, '*', name);
  }

  /// The name of a node's only result.
  std::string add(std::string_view operation, List<std::string> inputs, List<OnnxAttribute> attributes = {}) {
    std::string const output = concat(operation, '_', next_++);
    nodes.push_back({std::string(operation), std::move(inputs), output, std::move(attributes)});
    return output;
  }
  static OnnxAttribute integer(std::string_view name, std::int64_t value) {
    OnnxAttribute attribute;
    attribute.name = std::string(name);
    attribute.integer = value;
    return attribute;
  }
  static OnnxAttribute integers(std::string_view name, List<std::int64_t> values) {
    OnnxAttribute attribute;
    attribute.name = std::string(name);
    attribute.kind = OnnxAttribute::Kind::integers;
    attribute.integers = std::move(values);
    return attribute;
  }
  static OnnxAttribute text(std::string_view name, std::string value) {
    OnnxAttribute attribute;
    attribute.name = std::string(name);
    attribute.kind = OnnxAttribute::Kind::text;
    attribute.text = std::move(value);
    return attribute;
  }

  /// Numbers; equal ones are one node.
  std::string constant(OnnxConstant wanted) {
    for (std::size_t i = 0; i < constants_.size(); ++i)
      if (constants_[i] == wanted) return constant_names_[i];
    OnnxAttribute attribute;
    attribute.name = "value";
    attribute.kind = OnnxAttribute::Kind::tensor;
    attribute.tensor = wanted;
    constants_.push_back(std::move(wanted));
    constant_names_.push_back(add("Constant", {}, {std::move(attribute)}));
    return constant_names_.back();
  }
  std::string list(List<std::int64_t> const& numbers) {
    OnnxConstant made;
    made.dims = {static_cast<std::int64_t>(numbers.size())};
    made.bytes.assign(reinterpret_cast<char const*>(numbers.data()), 8 * numbers.size());
    return constant(std::move(made));
  }
  /// Of no axes.
  std::string number(DType dtype, double value) { return constant({dtype, {}, number_bytes(dtype, value)}); }
  Value number(DType dtype, Extents shape, double value) {
    return {number(dtype, value), dtype, std::move(shape), {}, true};
  }

  /// (1), int64: an extent that is known at the call. Errors: unavailable, for one that is no product of axes.
  std::string extent(Extent const& wanted) {
    if (wanted.fixed()) return list({wanted.first});
    for (std::size_t i = 0; i < extents_.size(); ++i)
      if (extents_[i] == wanted) return extent_names_[i];
    std::string made;
    Extent const left = factors(wanted, [&](std::size_t i) {
      made = made.empty() ? axis_extent(i) : add("Mul", {made, axis_extent(i)});
    });
    if (left.first != 1) made = add("Mul", {made, list({left.first})});
    extents_.push_back(wanted);
    extent_names_.push_back(made);
    return made;
  }
  /// (rank), int64.
  std::string shape(Extents const& wanted) {
    List<std::int64_t> fixed;
    for (Extent const& one : wanted)
      if (one.fixed()) fixed.push_back(one.first);
    if (fixed.size() == wanted.size()) return list(fixed);
    List<std::string> parts;
    for (Extent const& one : wanted) parts.push_back(extent(one));
    if (parts.size() == 1) return parts[0];
    return add("Concat", std::move(parts), {integer("axis", 0)});
  }

  /// With all its elements.
  Value full(Value const& x) {
    if (x.whole()) return x;
    return {add("Expand", {x.name, shape(x.shape)}), x.dtype, x.shape, List<bool>(x.shape.size(), false)};
  }
  Value reshape(Value const& x, Extents const& to) {
    if (equal(x.shape, to)) return x;
    if (x.lone) return {x.name, x.dtype, to, {}, true};
    Value const from = full(x);
    List<OnnxAttribute> attributes;
    for (Extent const& one : to)
      if (one.is(0) && attributes.empty()) attributes.push_back(integer("allowzero", 1));
    std::string const numbers = attributes.empty() ? target(from.shape, to) : shape(to);
    return {add("Reshape", {from.name, numbers}, std::move(attributes)), x.dtype, to, List<bool>(to.size(), false)};
  }
  /// Element by element, of operands of one shape.
  Value map(std::string_view operation, Values const& operands, DType dtype) {
    List<std::string> inputs;
    for (Value const& operand : operands) inputs.push_back(operand.name);
    Value result{add(operation, std::move(inputs)), dtype, operands[0].shape, {}, true};
    for (Value const& operand : operands) {
      if (operand.lone) continue;
      if (result.lone) result.spread = operand.spread;
      else
        for (std::size_t i = 0; i < result.spread.size(); ++i) result.spread[i] = result.spread[i] && operand.spread[i];
      result.lone = false;
    }
    return result;
  }
  Value cast(Value x, DType dtype) {
    if (x.dtype == dtype) return x;
    x.name = add("Cast", {x.name}, {integer("to", element_type(dtype))});
    x.dtype = dtype;
    return x;
  }

 private:
  struct Source {
    std::string input;
    int axis = 0;
  };
  Source& source(std::size_t i) {
    if (sources_.size() < axes_.size()) sources_.resize(axes_.size());
    return sources_[i];
  }
  /// Calls f with the number of every axis of which an extent is a product; what is left is fixed.
  template <class F>
  Extent factors(Extent left, F&& f) const {
    Extent const wanted = left;
    for (std::size_t i = 0; i < axes_.size(); ++i)
      while (!left.fixed() && left.first % axes_[i].first == 0 && left.second % axes_[i].second == 0) {
        f(i);
        left = {left.first / axes_[i].first, left.second / axes_[i].second};
      }
    if (!left.fixed())
      throw Error(ErrorKind::unavailable, "to_onnx",
                  concat("an extent is ", wanted.first, " in one graph and ", wanted.second,
                         " in the other, which is no product of the axes that a caller chooses. Export with fixed "
                         "extents"));
    return left;
  }
  std::string axis_extent(std::size_t i) {
    if (axis_names_.size() < axes_.size()) axis_names_.resize(axes_.size());
    if (!axis_names_[i].empty()) return axis_names_[i];
    Source const from = source(i);
    if (from.input.empty())
      throw Error(ErrorKind::invalid_argument, "to_onnx",
                  concat("axis '", axes_[i].name, "' is of no input. Name an axis that an input has"));
    return axis_names_[i] = add("Shape", {from.input}, {integer("start", from.axis), integer("end", from.axis + 1)});
  }
  /// What Reshape takes: 0 is the extent that the operand has there, -1 what is left, once.
  std::string target(Extents const& from, Extents const& to) {
    List<std::int64_t> numbers;
    int left = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
      bool const kept = !to[i].fixed() && i < from.size() && from[i] == to[i];
      if (!kept && !to[i].fixed()) ++left;
      numbers.push_back(to[i].fixed() ? to[i].first : kept ? 0 : -1);
    }
    return left <= 1 ? list(numbers) : shape(to);
  }

  List<OnnxAxis> axes_;
  List<Source> sources_;
  List<std::string> axis_names_;
  Extents extents_;
  List<std::string> extent_names_;
  List<OnnxConstant> constants_;
  List<std::string> constant_names_;
  int next_ = 0;
};

}  // namespace tutti::graph::onnx
