// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One node being written, and functions of elements, whose forms stand in graph/op/.

#include <tutti/core/error.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/graph/stablehlo/module.hpp>
#include <tutti/graph/stablehlo/writer.hpp>

#include <cmath>
#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti::graph::stablehlo {

/// What forms are written with: `stablehlo(e)` of a file in graph/op/ gets one.
struct Call {
  Writer& out;
  Graph const& graph;
  Id id;
  StablehloOptions const& options;
  Values operands;

  Value const& in(int i = 0) const { return operands[static_cast<std::size_t>(i)]; }
  int count() const { return static_cast<int>(operands.size()); }
  Type const& type() const { return graph.type(id); }
  DType dtype() const { return type().dtype; }
  Shape const& shape() const { return type().shape; }
  std::int64_t integer(int i = 0) const { return graph.integer(id, i); }
  double real(int i = 0) const { return graph.real(id, i); }
  /// Of the operands.
  bool is_signed() const { return has_sign(in().dtype); }
  bool is_truth() const { return in().dtype == DType::boolean; }

  template <std::same_as<Value>... V>
  Value map(std::string_view name, V const&... operand) const {
    return out.map(name, {operand...});
  }
  Value compare(std::string_view direction, Value const& a, Value const& b) const {
    return out.compare(direction, a, b);
  }
  Value select(Value const& predicate, Value const& a, Value const& b) const { return out.select(predicate, a, b); }
  Value convert(Value const& x, DType to) const { return out.convert(x, to); }
  /// Floating numbers as integers: toward zero, the nearest that there is, NaN as 0. `above` is the first number too
  /// large, a power of two, which every floating type of 32 bits or more holds, as its largest integer is not.
  Value saturated(Value const& x, DType to) const {
    double const half = std::ldexp(1.0, 8 * static_cast<int>(size_of(to)) - 1), lowest = has_sign(to) ? -half : 0;
    Value const low = out.number(x, lowest), above = out.number(x, has_sign(to) ? half : 2 * half);
    Value const is_low = compare("LT", x, low), is_high = compare("GE", x, above);
    Value const not_low = compare("GE", x, low), not_high = compare("LT", x, above);  // of NaN neither holds
    Value const fits = map("and", not_low, not_high), zero = out.number(x, 0);
    Value const whole = convert(select(fits, x, zero), to);
    std::string const largest = with_dtype(to, [](auto of) {
      if constexpr (std::is_integral_v<decltype(of)>) return std::to_string(std::numeric_limits<decltype(of)>::max());
      else return std::string();
    });
    Value const bottom = out.number(to, x.shape, lowest), top = out.constant(to, x.shape, largest);
    return select(is_high, top, select(is_low, bottom, whole));
  }
  /// In every element, of the type of the first operand.
  Value number(double value) const { return out.number(in(), value); }
};

template <class Of>
concept Named = requires {
  { Of::stablehlo } -> std::convertible_to<std::string_view>;
};
template <class Of>
concept Formed = requires(Call const& e) {
  { Of::stablehlo(e) } -> std::same_as<Value>;
};
template <class Of>
concept Decomposed = requires(graph::detail::Parts const& p) {
  Of::decomposition(p);
};

/// Of every function of elements: its file has a name in StableHLO, a form or a decomposition.
template <Op O>
constexpr bool is_exported() {
  using Of = Operation<O>;
  static_assert(Named<Of> || Formed<Of> || Decomposed<Of>,
                "a function of elements needs its StableHLO form: graph/op/elementwise.hpp says which there are");
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

/// Requires  is_function(e.graph.op(e.id)), of a graph without composites
inline Value function(Call const& e) {
  Value result;
  with_operation(e.graph.op(e.id), [&]<class Of>() {
    if constexpr (Named<Of>) result = e.out.map(Of::stablehlo, e.operands);
    else if constexpr (Formed<Of>) result = Of::stablehlo(e);
  });
  return result;
}

/// "; model.cpp:31", where it is known.
inline std::string line_of(Graph const& graph, Id id) {
  return graph[id].line == 0 ? std::string() : concat("; ", graph.file(id), ":", graph[id].line);
}
[[noreturn]] inline void refuse(Graph const& graph, Id id, ErrorKind kind, std::string_view sentence) {
  throw Error(kind, std::string(graph.op_name(id)), concat(sentence, line_of(graph, id)));
}

}  // namespace tutti::graph::stablehlo
