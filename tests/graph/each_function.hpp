// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Every function of elements that the list of operations holds, on operands that it takes: a new one is tested without
/// a word here.

#include <tutti/graph/elements.hpp>
#include <tutti/graph/ops.hpp>

#include <cmath>
#include <optional>
#include <string>

namespace tutti::test {

/// f(op, name) of every function of elements.
template <class F>
void for_each_function(F f) {
  for (int number = static_cast<int>(graph::Op::add); number < graph::ElementwiseFunctions::count; ++number) {
    auto const op = static_cast<graph::Op>(number);
    f(op, std::string(graph::name(op)));
  }
}

/// The node of `op` on the first of `operands` that it takes; none where it takes no such operands.
inline std::optional<graph::Var> applied(graph::Op op, std::initializer_list<graph::Var> operands) {
  using namespace graph;
  std::optional<Var> result;
  with_operation(op, [&]<class Of>() {
    Draft wanted = draft(op, {}, {}, Of::attributed ? List<double>{1.7} : List<double>{});
    wanted.type.dtype = DType::float64;  // of conversions
    for (int i = 0; i < Of::arity; ++i) wanted.operands.push_back(operands.begin()[i].id);
    Builder& builder = *operands.begin()->builder;
    try {
      result = Var{&builder, builder.emit(wanted)};
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::dtype) throw;
    }
  });
  return result;
}
/// The same with numbers in all operands, else with a truth value in the first, else in all. `x` and `y` have one type.
inline graph::Var applied_to_any(graph::Op op, graph::Var x, graph::Var y) {
  graph::Var const truth = less(x, y);
  auto result = applied(op, {x, y, x});
  if (!result) result = applied(op, {truth, x, y});
  if (!result) result = applied(op, {truth, less(y, x), truth});
  if (!result) throw Error(ErrorKind::internal, "applied_to_any", std::string(name(op)) + " takes none of these");
  return *result;
}

/// Whether its value is a number at negative operands.
inline bool is_total(graph::Op op) {
  double value = 0;
  graph::with_operation(op, [&]<class Of>() { value = kernel::compute_precisely<Of>(1.7, -0.6, -0.3, 0.2); });
  return !std::isnan(value);
}

}  // namespace tutti::test
