// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What interpreters of elementwise chains share: limits and checks, and how values become elements.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace tutti::kernel {

struct ElementwiseLimits {
  static constexpr int inputs = 16, instructions = 64, outputs = 8;
};

/// Operands that an instruction reads.
constexpr int arity(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::constant: return 0;
    case ElementwiseOp::add: case ElementwiseOp::subtract: case ElementwiseOp::multiply: case ElementwiseOp::divide:
    case ElementwiseOp::maximum: case ElementwiseOp::less: case ElementwiseOp::less_equal: case ElementwiseOp::equal:
    case ElementwiseOp::not_equal: case ElementwiseOp::gelu_gradient:
    case ElementwiseOp::silu_gradient: return 2;
    case ElementwiseOp::select: return 3;
    default: return 1;
  }
}

/// Errors: internal (a limit of the chain, a register that does not exist).
inline void check_elementwise(Elementwise const& args) {
  auto const refuse = [](std::string const& why) { throw Error(ErrorKind::internal, "elementwise", why); };
  using Limits = ElementwiseLimits;
  if (args.inputs.size() > Limits::inputs || args.instructions.size() > Limits::instructions ||
      args.outputs.size() > Limits::outputs)
    refuse(concat(args.inputs.size(), " inputs, ", args.instructions.size(), " instructions, ", args.outputs.size(),
                  " outputs: a chain has at most ", Limits::inputs, ", ", Limits::instructions, " and ",
                  Limits::outputs, ". Split it"));
  int const inputs = static_cast<int>(args.inputs.size());
  for (int index = 0; index < static_cast<int>(args.instructions.size()); ++index) {
    ElementwiseInstruction const& instruction = args.instructions[static_cast<std::size_t>(index)];
    std::int16_t const operands[3] = {instruction.a, instruction.b, instruction.c};
    for (int k = 0; k < 3; ++k)
      if (operands[k] >= inputs + index || (k < arity(instruction.op) && operands[k] < 0))
        refuse(concat("instruction ", index, " reads register ", operands[k], ", but there are ", inputs + index,
                      " before it"));
  }
  for (ElementwiseOutput const& output : args.outputs)
    if (output.source < 0 || output.source >= inputs + static_cast<int>(args.instructions.size()))
      refuse(concat("an output reads register ", output.source, ", which does not exist"));
}

/// Whether the chain runs in double.
inline bool runs_in_double(Elementwise const& args) {
  bool wide = args.double_precision;
  for (ElementwiseInput const& input : args.inputs) wide = wide || input.dtype == DType::float64;
  for (ElementwiseOutput const& output : args.outputs) wide = wide || output.dtype == DType::float64;
  return wide;
}

/// Toward zero into integers, which saturate; NaN becomes 0. Nonzero is true.
template <class T, class Real>
constexpr T element_of(Real value) {
  if constexpr (std::same_as<T, bool>) return value != 0;
  else if constexpr (std::same_as<T, std::byte>) return static_cast<std::byte>(element_of<std::uint8_t>(value));
  else if constexpr (std::integral<T>) {
    constexpr Real low = static_cast<Real>(std::numeric_limits<T>::min());
    constexpr Real above = static_cast<Real>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    if (value != value) return 0;
    if (value < low) return std::numeric_limits<T>::min();
    return value >= above ? std::numeric_limits<T>::max() : static_cast<T>(value);
  } else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) return T(static_cast<float>(value));
  else return static_cast<T>(value);
}

}  // namespace tutti::kernel
