// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Two traces of one function, of other extents, and the check that they differ in nothing else.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/onnx/element.hpp>
#include <tutti/graph/onnx/value.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstddef>
#include <string_view>

namespace tutti::graph::onnx {

/// Two graphs of one structure, of other extents: what a model is made of.
struct Twin {
  Graph const& first;
  Graph const& second;

  Extents shape(Id id, int result = 0) const {
    Shape const &a = first.type(id, result).shape, &b = second.type(id, result).shape;
    Extents extents;
    for (int axis = 0; axis < a.rank(); ++axis) extents.push_back({a[axis], b[axis]});
    return extents;
  }
  Extent integer(Id id, int i) const { return {first.integer(id, i), second.integer(id, i)}; }
  Twin body(Id id) const { return {first.body(id), second.body(id)}; }
};

/// Of both graphs alike but for extents.
inline void check_twins(Graph const& a, Graph const& b) {
  auto const differ = [](std::string_view what) {
    throw Error(ErrorKind::unavailable, "to_onnx",
                concat("the function is another one for other extents: ", what, ". Export with fixed extents"));
  };
  if (a.size() != b.size()) differ("it has more operations");
  for (Id id = 0; id < a.size(); ++id) {
    auto const x = a.operands(id), y = b.operands(id);
    bool same = a.op(id) == b.op(id) && x.size() == y.size() && a.integers(id).size() == b.integers(id).size() &&
                a.reals(id).size() == b.reals(id).size() && a.results(id) == b.results(id);
    for (std::size_t i = 0; same && i < x.size(); ++i) same = x[i] == y[i];
    for (int i = 0; same && i < a.results(id); ++i)
      same = a.type(id, i).dtype == b.type(id, i).dtype && a.type(id, i).shape.rank() == b.type(id, i).shape.rank();
    if (!same) differ(concat("operation ", id, ", ", a.op_name(id)));
    for (std::size_t i = 0; i < a.reals(id).size(); ++i)
      if (number_bytes(DType::float64, a.reals(id)[i]) != number_bytes(DType::float64, b.reals(id)[i]))
        differ(concat("it computes with ", a.reals(id)[i], " or ", b.reals(id)[i]));
  }
  if (a.bodies.size() != b.bodies.size()) differ("it has more loops");
  for (std::size_t i = 0; i < a.bodies.size(); ++i) check_twins(a.bodies[i], b.bodies[i]);
}

}  // namespace tutti::graph::onnx
