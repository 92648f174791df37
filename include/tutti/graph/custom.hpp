// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operations from outside the library: a type says everything of one, as the files of graph/op/ do of the library's.
///
/// A function of elements derives from graph::FunctionOf<arity> and has what graph/op/elementwise.hpp lists: `name`,
/// `scalar`, [`vector`, `precise`, `gradient`]. Any other operation has
///   static constexpr std::string_view name
///   static constexpr Type type(OperandTypes const& in)       refuses what it does not take
///   static std::vector<double> reference(naive::Call const&) one naive loop, what everything is checked against
///   static void run(exec::Context&, CustomArguments const&)  on processors
///   static constexpr void gradient(auto const& n)            optional: graph/vjp.hpp says what n offers
///   static constexpr std::uint32_t updates                   optional, bit i: `run` changes operand i in place. It is
///                                                            a state that nothing else in the graph uses
/// It runs on processors, by steps of its own: it is not fused with others.

#include <tutti/graph/custom_arguments.hpp>
#include <tutti/graph/interpreter_kernels.hpp>
#include <tutti/graph/vjp.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>

#include <utility>
#include <vector>

namespace tutti::graph {

using OperandTypes = detail::Operands;
/// Base of functions of elements.
template <int Arity>
using FunctionOf = detail::Elementwise<Arity>;

namespace detail {

template <class Of>
concept Function = requires { Of::arity; };
/// A table of one function.
template <class Of>
struct OnlyFunction {
  static constexpr int count = 1;
  template <int>
  using body = Of;
};

/// The operation as pointers, of whichever kind it is.
template <class Of>
struct Custom {
  static constexpr Type type(Operands const& in) {
    if constexpr (Function<Of>) return function_type<Of>(in);
    else return Of::type(in);
  }
  static constexpr bool has_gradient = requires(Back const& n) { Of::gradient(n); };
  static constexpr void gradient(Back const& n) {
    if constexpr (has_gradient) Of::gradient(n);
  }
  static std::vector<double> reference(naive::Call const& call) {
    if constexpr (Function<Of>) {
      naive::Values out(naive::at(call.out().size()));
      naive::function<Of>(call, out);
      return out;
    } else {
      return Of::reference(call);
    }
  }
  static void run(exec::Context& context, CustomArguments const& args) {
    if constexpr (Function<Of>) {
      kernel::ElementwiseInput inputs[3];
      for (std::size_t i = 0; i < args.operands.size(); ++i)
        inputs[i] = {args.operands[i].data, args.operands[i].dtype, args.operands[i].shape.row_major_strides()};
      auto const operand = [](int i) { return static_cast<std::int16_t>(i < Of::arity ? i : -1); };
      kernel::ElementwiseInstruction const instruction{{}, operand(0), operand(1), operand(2),
                                                       args.reals.empty() ? 0 : args.reals[0]};
      kernel::ElementwiseOutput const output{Of::arity, args.result.data, args.result.dtype};
      kernel::cpu::elementwise<OnlyFunction<Of>>(
          context, {args.result.shape, {inputs, args.operands.size()}, {&instruction, 1}, {&output, 1}});
    } else {
      Of::run(context, args);
    }
  }
};
template <class Of>
constexpr std::uint32_t updates_of() {
  if constexpr (requires { Of::updates; }) return Of::updates;
  else return 0;
}
template <class Of>
inline constexpr CustomOperation custom_operation{
    Of::name,        Custom<Of>::type, Custom<Of>::has_gradient, Custom<Of>::gradient, Custom<Of>::reference,
    Custom<Of>::run, updates_of<Of>()};

}  // namespace detail

/// The result of the operation `Of`. `reals` are the node's: call.real(i) and args.reals.
/// Errors    what `Of::type` refuses; an operand to change in place that is no state, or (when the graph is compiled)
///           that is used elsewhere; of functions of elements, operands of several types or shapes
template <class Of>
constexpr Var custom(List<Var> const& operands, List<double> reals = {}, Where where = Where::current()) {
  Builder* builder = nullptr;
  for (Var v : operands) builder = &detail::home(v, Var{builder, none}, {}, where);
  if (builder == nullptr) refuse(where, Op::custom, ErrorKind::invalid_argument, "an operation needs an operand");
  if constexpr (detail::Function<Of>)
    if (operands.size() != std::size_t{Of::arity})
      refuse(where, Op::custom, ErrorKind::invalid_argument, "the function has another number of operands");
  Draft wanted = draft(Op::custom, {}, {}, std::move(reals));
  wanted.custom = &detail::custom_operation<Of>;
  for (Var v : operands) wanted.operands.push_back(builder->adopt(v, where));
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (i < 32 && (wanted.custom->updates >> i & 1) != 0 && builder->graph().op(wanted.operands[i]) != Op::state)
      refuse(where, Op::custom, ErrorKind::invalid_argument, "the operand that it changes in place must be a state");
  return detail::emit(*builder, std::move(wanted), where);
}

}  // namespace tutti::graph
