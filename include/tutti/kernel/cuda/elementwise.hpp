// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Elementwise chains on a GPU: kernels compiled for the chains that are known, an interpreter for all others.
///
/// A chain is known by its structure: instructions with their registers, and the registers of its outputs; never by
/// sizes, element types, strides or the values of constants, which stay run-time arguments.

#include <tutti/kernel/box.hpp>
#include <tutti/kernel/cuda/chain.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace tutti::kernel::cuda {

/// Types that each describe a chain: `inputs`, `steps`, and `sources`, the registers of its outputs (examples:
/// graph/cuda/chains.hpp). A program adds those of its own graphs.
template <class... Chains>
struct ChainTable {};

namespace detail {

template <class Known>
bool is_chain(Elementwise const& args) {
  constexpr std::size_t steps = std::size(Known::steps), outputs = std::size(Known::sources);
  if (args.inputs.size() != static_cast<std::size_t>(Known::inputs) || args.instructions.size() != steps ||
      args.outputs.size() != outputs)
    return false;
  for (std::size_t i = 0; i < steps; ++i) {
    ElementwiseInstruction const &a = args.instructions[i], &b = Known::steps[i];
    if (a.op != b.op || a.a != b.a || a.b != b.b || a.c != b.c) return false;
  }
  for (std::size_t i = 0; i < outputs; ++i)
    if (args.outputs[i].source != Known::sources[i]) return false;
  return true;
}

/// Registers of the program are registers of the thread.
template <class Functions, class Known>
__global__ void __launch_bounds__(256) run_known_chain(__grid_constant__ Chain const chain) {
  begin_kernel();
  constexpr int inputs = Known::inputs, steps = static_cast<int>(std::size(Known::steps));
  std::int64_t const position = (std::int64_t{blockIdx.x} * 256 + threadIdx.x) * chain_width;
  if (position >= chain.count) return;
  int const n = chain.count - position < chain_width ? static_cast<int>(chain.count - position) : chain_width;
  float registers[inputs + steps][chain_width];
#pragma unroll
  for (int input = 0; input < inputs; ++input)
    read_input<std::uint32_t>(chain, chain.input[input], position, n, registers[input]);
  auto const step = [&]<int I>(std::integral_constant<int, I>) {
    constexpr ElementwiseInstruction now = Known::steps[I];
    constexpr int a = now.a < 0 ? 0 : now.a, b = now.b < 0 ? a : now.b, c = now.c < 0 ? a : now.c;
    using Body = typename Functions::template body<now.op.number>;
    double const value = chain.instruction[I].value;
#pragma unroll
    for (int j = 0; j < chain_width; ++j)
      registers[inputs + I][j] = compute<Body>(value, registers[a][j], registers[b][j], registers[c][j]);
  };
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (step(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, steps>{});
  [&]<int... O>(std::integer_sequence<int, O...>) {
    (write_output(chain.output[O], position, n,
                  registers[std::integral_constant<int, Known::sources[O]>::value]), ...);
  }(std::make_integer_sequence<int, static_cast<int>(std::size(Known::sources))>{});
}

/// Registers of the program are slots of shared memory, 16 bytes a thread that nobody else touches: no barriers, no
/// bank conflicts. A decoded instruction serves the four elements of all threads of a warp.
template <class Functions, class Real, class Index>
__global__ void __launch_bounds__(128) interpret_chain(__grid_constant__ Chain const chain) {
  begin_kernel();
  std::int64_t const position = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * chain_width;
  if (position >= chain.count) return;
  int const n = chain.count - position < chain_width ? static_cast<int>(chain.count - position) : chain_width;
  struct alignas(16) Four {
    Real of[chain_width];
  };
  Four* const slots = tutti::cuda::dynamic_shared<Four>() + threadIdx.x;
  auto const slot = [&](int index) -> Four& { return slots[index * static_cast<int>(blockDim.x)]; };
  for (int input = 0; input < chain.inputs; ++input) {
    Four values;
    read_input<Index>(chain, chain.input[input], position, n, values.of);
    slot(chain.input[input].slot) = values;
  }
  for (int index = 0; index < chain.instructions; ++index) {
    ChainInstruction const& now = chain.instruction[index];
    with_body<Functions>(now.op, [&]<class Body>() {
      Four a{}, b{}, c{}, result;
      if constexpr (Body::arity > 0) a = slot(now.a);
      if constexpr (Body::arity > 1) b = slot(now.b);
      if constexpr (Body::arity > 2) c = slot(now.c);
#pragma unroll
      for (int j = 0; j < chain_width; ++j) result.of[j] = compute<Body>(now.value, a.of[j], b.of[j], c.of[j]);
      slot(now.to) = result;
    });
  }
  for (int output = 0; output < chain.outputs; ++output)
    write_output(chain.output[output], position, n, slot(chain.output[output].slot).of);
}

/// The arguments of the kernels, without slots.
inline Chain prepare_chain(Elementwise const& args) {
  Box<ElementwiseLimits::inputs> box(args.shape, static_cast<int>(args.inputs.size()));
  for (std::size_t input = 0; input < args.inputs.size(); ++input) box.strides[input] = args.inputs[input].strides;
  box.merge();
  Chain chain{};
  chain.count = args.shape.size();
  chain.rank = box.rank;
  chain.inputs = static_cast<int>(args.inputs.size());
  chain.instructions = static_cast<int>(args.instructions.size());
  chain.outputs = static_cast<int>(args.outputs.size());
  for (int axis = 0; axis < box.rank; ++axis) chain.extents[axis] = box.extent(axis);
  auto const one_access = [](DType dtype, void const* data) {
    auto const address = reinterpret_cast<std::uintptr_t>(data);
    return (dtype == DType::float32 && address % 16 == 0) || (dtype == DType::bfloat16 && address % 8 == 0);
  };
  for (int input = 0; input < chain.inputs; ++input) {
    ElementwiseInput const& from = args.inputs[static_cast<std::size_t>(input)];
    ChainInput& to = chain.input[input];
    to.data = from.data;
    to.dtype = from.dtype;
    bool contiguous = true, repeated = true;
    std::int64_t step = 1;
    for (int axis = box.rank - 1; axis >= 0; step *= box.extent(axis), --axis) {
      to.strides[axis] = box.stride(input, axis);
      contiguous = contiguous && to.strides[axis] == step;
      repeated = repeated && to.strides[axis] == 0;
    }
    to.access = repeated ? Access::repeated : contiguous ? Access::contiguous : Access::strided;
    to.vectors = to.access == Access::contiguous && one_access(from.dtype, from.data);
  }
  for (int index = 0; index < chain.instructions; ++index) {
    ElementwiseInstruction const& from = args.instructions[static_cast<std::size_t>(index)];
    chain.instruction[index].op = from.op;
    chain.instruction[index].value = from.value;
  }
  for (int output = 0; output < chain.outputs; ++output) {
    ElementwiseOutput const& from = args.outputs[static_cast<std::size_t>(output)];
    chain.output[output] = {from.data, from.dtype, one_access(from.dtype, from.data), 0};
  }
  return chain;
}

/// Registers share slots where their lives do not meet. Returns how many slots there are.
template <class Functions>
int choose_slots(Elementwise const& args, Chain& chain) {
  constexpr int most = ElementwiseLimits::inputs + ElementwiseLimits::instructions;
  int last_use[most], slot_of[most] = {}, slots = 0;
  bool taken[most] = {};
  std::fill_n(last_use, most, -1);
  auto const operands = [&](int index) {
    ElementwiseInstruction const& at = args.instructions[static_cast<std::size_t>(index)];
    int const count = arity<Functions>(at.op);
    return std::array<int, 3>{count > 0 ? at.a : -1, count > 1 ? at.b : -1, count > 2 ? at.c : -1};
  };
  for (int index = 0; index < chain.instructions; ++index)
    for (int const operand : operands(index))
      if (operand >= 0) last_use[operand] = index;
  for (ElementwiseOutput const& output : args.outputs) last_use[output.source] = chain.instructions;
  auto const claim = [&](int of) {
    int slot = 0;
    while (taken[slot]) ++slot;
    taken[slot] = true;
    slots = std::max(slots, slot + 1);
    slot_of[of] = slot;
    return static_cast<std::uint8_t>(slot);
  };
  for (int input = 0; input < chain.inputs; ++input) chain.input[input].slot = claim(input);
  for (int index = 0; index < chain.instructions; ++index) {
    ChainInstruction& to = chain.instruction[index];
    auto const [a, b, c] = operands(index);
    to.a = static_cast<std::uint8_t>(a < 0 ? 0 : slot_of[a]);
    to.b = static_cast<std::uint8_t>(b < 0 ? 0 : slot_of[b]);
    to.c = static_cast<std::uint8_t>(c < 0 ? 0 : slot_of[c]);
    for (int const operand : {a, b, c})  // operands are read before the result is written
      if (operand >= 0 && last_use[operand] == index) taken[slot_of[operand]] = false;
    to.to = claim(chain.inputs + index);
    if (last_use[chain.inputs + index] < 0) taken[slot_of[chain.inputs + index]] = false;
  }
  for (int output = 0; output < chain.outputs; ++output)
    chain.output[output].slot =
        static_cast<std::uint8_t>(slot_of[args.outputs[static_cast<std::size_t>(output)].source]);
  return slots;
}

/// Kernels of known chains count elements in 32 bits; the rare longer chain is interpreted.
template <class Functions, class Known>
bool run_if_known(Context& context, Elementwise const& args, Chain const& chain) {
  if (chain.count >= std::int64_t{1} << 31 || !is_chain<Known>(args)) return false;
  launch_blocks(context, (chain.count + 256 * chain_width - 1) / (256 * chain_width), 256,
                run_known_chain<Functions, Known>, chain);
  return true;
}

template <class Functions, class Real>
void interpret(Context& context, Elementwise const& args, Chain& chain) {
  auto const slots = static_cast<std::size_t>(std::max(1, choose_slots<Functions>(args, chain)));
  int threads = 128;
  while (threads > 32 && slots * sizeof(Real) * chain_width * static_cast<std::size_t>(threads) >
                             context.properties().shared_bytes / 2)
    threads /= 2;
  std::int64_t const of_block = threads * chain_width;
  tutti::cuda::LaunchShape const shape{
      .grid = dim3(static_cast<unsigned>((chain.count + of_block - 1) / of_block)),
      .block = dim3(static_cast<unsigned>(threads)),
      .shared_bytes = slots * sizeof(Real) * chain_width * static_cast<std::size_t>(threads)};
  if (chain.count < std::int64_t{1} << 31)
    launch_own(context.stream(), shape, interpret_chain<Functions, Real, std::uint32_t>, chain);
  else launch_own(context.stream(), shape, interpret_chain<Functions, Real, std::int64_t>, chain);
}

}  // namespace detail

/// See kernel::Elementwise; the instructions' functions are those of `Functions`. Chains of the table run in kernels of
/// their own, others in the interpreter. Integers are stored toward zero and saturate, NaN as 0; `maximum` returns NaN
/// where either is.
/// Errors    internal (a limit of the chain, a register that does not exist).
/// Cost      one read of every input, one write of every output; the interpreter moves 48 bytes of shared memory for
///           each instruction and four elements beside it, which from about six instructions on is what counts.
template <class Functions, class... Known>
void elementwise(Context& context, Elementwise const& args, ChainTable<Known...>) {
  check_elementwise<Functions>(args);
  if (args.shape.size() == 0) return;
  detail::Chain chain = detail::prepare_chain(args);
  if (runs_in_double(args)) return detail::interpret<Functions, double>(context, args, chain);
  if ((detail::run_if_known<Functions, Known>(context, args, chain) || ...)) return;
  detail::interpret<Functions, float>(context, args, chain);
}

}  // namespace tutti::kernel::cuda
