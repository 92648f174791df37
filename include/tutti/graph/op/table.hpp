// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// All operations, and the tables that passes ask. An operation of the list without a file here does not compile.

#include <tutti/graph/op/abs.hpp>
#include <tutti/graph/op/add.hpp>
#include <tutti/graph/op/ceil.hpp>
#include <tutti/graph/op/convert.hpp>
#include <tutti/graph/op/cosine.hpp>
#include <tutti/graph/op/divide.hpp>
#include <tutti/graph/op/elementwise.hpp>
#include <tutti/graph/op/equal.hpp>
#include <tutti/graph/op/erf.hpp>
#include <tutti/graph/op/exact_gelu.hpp>
#include <tutti/graph/op/exponential.hpp>
#include <tutti/graph/op/floor.hpp>
#include <tutti/graph/op/gelu.hpp>
#include <tutti/graph/op/gelu_gradient.hpp>
#include <tutti/graph/op/less.hpp>
#include <tutti/graph/op/less_equal.hpp>
#include <tutti/graph/op/logarithm.hpp>
#include <tutti/graph/op/logical_and.hpp>
#include <tutti/graph/op/logical_not.hpp>
#include <tutti/graph/op/logical_or.hpp>
#include <tutti/graph/op/logistic.hpp>
#include <tutti/graph/op/maximum.hpp>
#include <tutti/graph/op/multiply.hpp>
#include <tutti/graph/op/negate.hpp>
#include <tutti/graph/op/not_equal.hpp>
#include <tutti/graph/op/power.hpp>
#include <tutti/graph/op/raise.hpp>
#include <tutti/graph/op/reciprocal_square_root.hpp>
#include <tutti/graph/op/relu.hpp>
#include <tutti/graph/op/rows.hpp>
#include <tutti/graph/op/select.hpp>
#include <tutti/graph/op/sign.hpp>
#include <tutti/graph/op/silu.hpp>
#include <tutti/graph/op/silu_gradient.hpp>
#include <tutti/graph/op/sine.hpp>
#include <tutti/graph/op/square_root.hpp>
#include <tutti/graph/op/subtract.hpp>
#include <tutti/graph/op/tanh.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tutti::graph {

namespace detail {

template <Op O, bool = is_function(O)>
struct FunctionOf {
  using type = void;
};
template <Op O>
struct FunctionOf<O, true> {
  using type = Operation<O>;
};
template <>
struct FunctionOf<Op::constant, false> {
  struct type {
    static constexpr int arity = 0;
  };
};

}  // namespace detail

/// The functions of elements, numbered as in the list: the table of chains (kernel/elementwise_functions.hpp).
struct ElementwiseFunctions {
  static constexpr int count = static_cast<int>(Op::stop_gradient);
  template <int Number>
  using body = typename detail::FunctionOf<static_cast<Op>(Number)>::type;
};
template <class F>
constexpr void with_operation(Op op, F&& f) {
  kernel::with_function<ElementwiseFunctions>(op, [&]<class Of>() {
    if constexpr (requires { Of::name; }) f.template operator()<Of>();
  });
}

namespace detail {

/// Of every function of elements, at the place of its number, Make::of<op>(); of others, what is made of nothing.
template <class Make, std::size_t Count, class = void>
constexpr auto function_table() {
  std::array<decltype(Make::template of<Op::add>()), Count> table{};
  constexpr int first = static_cast<int>(Op::add);
  [&table]<int... I>(std::integer_sequence<int, I...>) {
    ((table[first + I] = Make::template of<static_cast<Op>(first + I)>()), ...);
  }(std::make_integer_sequence<int, ElementwiseFunctions::count - first>{});
  return table;
}

struct MakeInfo {
  template <Op O>
  static constexpr OpInfo of() {
    using Of = Operation<O>;
    return {O, Of::name, OpClass::elementwise, Of::differentiability, 1, Of::linearity};
  }
};
struct MakeFacts {
  template <Op O>
  static constexpr FunctionFacts of() {
    using Of = Operation<O>;
    return {Of::truth, Of::wraps, Of::commutes, Of::neutral};
  }
};
template <class T>
constexpr auto make_op_table() {
  auto table = function_table<MakeInfo, std::size_t{op_count}, T>();
  for (OpInfo const& row : op_rows) table[static_cast<std::size_t>(row.op)] = row;
  return table;
}
// Variable templates, whose values depend on T so that they wait: this header can stand before the end of an
// operation's.
template <class T = void>
inline constexpr auto op_table = make_op_table<T>();
template <class T = void>
inline constexpr auto facts_table = function_table<MakeFacts, std::size_t{ElementwiseFunctions::count}, T>();

}  // namespace detail

template <class T>
constexpr OpInfo const& info(Op op) noexcept {
  return detail::op_table<T>[static_cast<std::size_t>(op)];
}
template <class T>
constexpr FunctionFacts const& function_facts(Op op) noexcept {
  return detail::facts_table<T>[static_cast<std::size_t>(op)];
}

}  // namespace tutti::graph
