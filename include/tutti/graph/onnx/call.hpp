// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One node being written, and functions of elements, whose forms stand in graph/op/.

#include <tutti/core/error.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/onnx/twin.hpp>
#include <tutti/graph/onnx/writer.hpp>
#include <tutti/graph/op/table.hpp>

#include <concepts>
#include <string>
#include <string_view>

namespace tutti::graph::onnx {

/// "; model.cpp:31", where it is known.
inline std::string line_of(Graph const& graph, Id id) {
  return graph[id].line == 0 ? std::string() : concat("; ", graph.file(id), ":", graph[id].line);
}
[[noreturn]] inline void refuse(Graph const& graph, Id id, ErrorKind kind, std::string_view sentence) {
  throw Error(kind, std::string(graph.op_name(id)), concat(sentence, line_of(graph, id)));
}

/// What forms are written with: `onnx(e)` of a file in graph/op/ gets one.
struct Call {
  Writer& out;
  Twin const& twin;
  Id id;
  Values operands;

  Graph const& graph() const { return twin.first; }
  Value const& in(int i = 0) const { return operands[static_cast<std::size_t>(i)]; }
  DType dtype() const { return graph().dtype(id); }
  Extents shape() const { return twin.shape(id); }
  /// Errors: unavailable, where it is another one in the second graph.
  std::int64_t integer(int i = 0) const {
    Extent const both = twin.integer(id, i);
    if (!both.fixed())
      refuse(graph(), id, ErrorKind::unavailable,
             concat("a number of it is ", both.first, " or ", both.second, ", as the extents are that a caller is to "
                    "choose, and ONNX wants one. Export with fixed extents"));
    return both.first;
  }
  double real(int i = 0) const { return graph().real(id, i); }
  bool is_floating() const { return tutti::is_floating(in().dtype); }
  bool is_signed() const {
    DType const of = in().dtype;
    return is_floating() || of == DType::int8 || of == DType::int16 || of == DType::int32 || of == DType::int64;
  }

  /// Of the type of the first operand.
  template <std::same_as<Value>... V>
  Value map(std::string_view operation, V const&... operand) const {
    return out.map(operation, {operand...}, in().dtype);
  }
  template <std::same_as<Value>... V>
  Value test(std::string_view operation, V const&... operand) const {
    return out.map(operation, {operand...}, DType::boolean);
  }
  /// a where the predicate holds, else b.
  Value where(Value const& predicate, Value const& a, Value const& b) const {
    return out.map("Where", {predicate, a, b}, a.dtype);
  }
  Value cast(Value const& x, DType to) const { return out.cast(x, to); }
  /// In every element, of the type of the first operand.
  Value number(double value) const { return out.number(in().dtype, in().shape, value); }
};

template <class Of>
concept Named = requires {
  { Of::onnx } -> std::convertible_to<std::string_view>;
};
template <class Of>
concept Formed = requires(Call const& e) {
  { Of::onnx(e) } -> std::same_as<Value>;
};
template <class Of>
concept Decomposed = requires(graph::detail::Parts const& p) {
  Of::decomposition(p);
};

/// Of every function of elements: its file has a name in ONNX, a form or a decomposition.
template <Op O>
constexpr bool is_exported() {
  using Of = Operation<O>;
  static_assert(Named<Of> || Formed<Of> || Decomposed<Of>,
                "a function of elements needs its ONNX form: graph/op/elementwise.hpp says which there are");
  return Named<Of> || Formed<Of> || Decomposed<Of>;
}
struct MakeExported {
  template <Op O>
  static constexpr bool of() {
    return is_exported<O>();
  }
};
inline constexpr auto exported_functions =
    graph::detail::function_table<MakeExported, std::size_t{ElementwiseFunctions::count}>();

/// bfloat16 numbers are computed with in float32, as not all of ONNX has them.
/// Requires  is_function(e.graph().op(e.id)), of a graph without composites
/// Errors    dtype: arithmetic with truth values
inline Value function(Call const& e) {
  Op const op = e.graph().op(e.id);
  Call wide = e;
  bool truths = true;
  for (Value& operand : wide.operands) {
    truths = truths && operand.dtype == DType::boolean;
    if (operand.dtype == DType::bfloat16) operand = e.cast(operand, DType::float32);
  }
  Value result;
  with_operation(op, [&]<class Of>() {
    if (truths && !Of::truth && op != Op::convert && op != Op::select)
      refuse(e.graph(), e.id, ErrorKind::unavailable, "ONNX does not compute with truth values; convert them to int32");
    if constexpr (Named<Of>)
      result = e.out.map(Of::onnx, wide.operands, Of::truth ? DType::boolean : wide.in().dtype);
    else if constexpr (Formed<Of>) result = Of::onnx(wide);
  });
  return e.cast(result, e.dtype());
}

}  // namespace tutti::graph::onnx
