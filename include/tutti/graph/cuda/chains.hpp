// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The chains that have kernels of their own on a GPU: what is left of GPT-2's and LLaMA's graphs once epilogues are
/// fused, and what conversions and single calls are.

#include <tutti/graph/op/table.hpp>
#include <tutti/kernel/cuda/elementwise.hpp>

#include <cstdint>

namespace tutti::graph::cuda {

using kernel::ElementwiseInstruction;

/// One operation of one or two inputs.
template <Op O>
struct SingleChain {
  static constexpr int inputs = Operation<O>::arity;
  static constexpr ElementwiseInstruction steps[] = {{O, 0, static_cast<std::int16_t>(inputs > 1 ? 1 : -1), -1, 0}};
  static constexpr std::int16_t sources[] = {inputs};
};
/// x * constant, and constant * x: the shares of losses and gradients.
struct ScaleChain {
  static constexpr int inputs = 1;
  static constexpr ElementwiseInstruction steps[] = {{Op::constant}, {Op::multiply, 0, 1}};
  static constexpr std::int16_t sources[] = {2};
};
/// x + y kept, and its GELU: a bias or a residual before an activation whose input the gradient needs.
struct AddGeluChain {
  static constexpr int inputs = 2;
  static constexpr ElementwiseInstruction steps[] = {{Op::add, 0, 1}, {Op::gelu, 2}};
  static constexpr std::int16_t sources[] = {2, 3};
};
using UsualChains =
    kernel::cuda::ChainTable<SingleChain<Op::add>, SingleChain<Op::subtract>, SingleChain<Op::multiply>,
                             SingleChain<Op::gelu>, SingleChain<Op::gelu_gradient>, SingleChain<Op::silu>,
                             SingleChain<Op::silu_gradient>, SingleChain<Op::convert>, ScaleChain, AddGeluChain>;

/// See kernel::cuda::elementwise.
template <class Chains = UsualChains>
void elementwise(kernel::cuda::Context& context, kernel::Elementwise const& args, Chains chains = {}) {
  kernel::cuda::elementwise<ElementwiseFunctions>(context, args, chains);
}

}  // namespace tutti::graph::cuda
