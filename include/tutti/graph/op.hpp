// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The list of operations that a graph may hold. What a function of elements is stands in its file, graph/op/NAME.hpp;
/// shapes and attributes of other operations stand next to their names here, and graph/infer.hpp checks exactly that.

#include <cstdint>
#include <string_view>

namespace tutti::graph {

/// Notation: operands (in order), then {integers} and <reals> of the node. Every operation has one result unless
/// "->" names several. Elementwise operations take operands of one shape and one dtype: broadcasts are explicit nodes.
/// The groups are ranges; within a group the order has no meaning.
enum class Op : std::uint8_t {
  // Leaves. `name` is set; a parameter, state, input or scalar is listed in the graph too.
  input,      ///< a tensor given at every run
  parameter,  ///< trained, held in the State, updated in place
  state,      ///< optimizer moments, accumulators: held in the State, not trained
  scalar,     ///< a rank-0 value given at every run: learning rate, step, seed
  constant,   ///< <value>: every element is value
  iota,       ///< {axis}: element i along axis is i
  rank,       ///< int32 (): the number of this rank along the data axis, or along {MeshAxis}; 0 without a Port

  // Functions of elements: graph/op/NAME.hpp holds everything of one. Their numbers are those of instructions of
  // chains.
  add,
  subtract,
  multiply,
  divide,
  maximum,
  negate,
  exponential,
  logarithm,
  tanh,
  logistic,
  sine,
  cosine,
  square_root,
  reciprocal_square_root,
  power,
  less,
  less_equal,
  equal,
  not_equal,
  select,
  convert,
  gelu,
  gelu_gradient,
  silu,
  silu_gradient,
  abs,
  sign,
  floor,
  ceil,
  relu,
  erf,
  exact_gelu,
  logical_and,
  logical_or,
  logical_not,
  raise,

  // Identities, elementwise too, that are no work.
  stop_gradient,  ///< no gradient
  barrier,        ///< {serial}: never merged with another, nor fused over

  // Shape. All but pad, concatenate and the dynamic two only re-read their operand.
  broadcast_in_dim,      ///< {axis of the result for every axis of x}; extents are equal or 1
  reshape,               ///< the node's shape, same size
  transpose,             ///< {permutation}: axis i of the result is axis permutation[i] of x
  slice,                 ///< {starts..., limits..., strides...}
  pad,                   ///< {low..., high..., interior...} <value>; low and high are not negative
  concatenate,           ///< any number; {axis}
  dynamic_slice,         ///< x, one integer () per axis; starts are clamped so that the node's shape fits
  dynamic_update_slice,  ///< x, update, one integer () per axis; clamped likewise

  // Reductions and products.
  reduce_sum,   ///< {axes, ascending}: dropped
  reduce_max,   ///< {axes, ascending}: dropped
  dot_general,  ///< a, b; {batch count, contracted count, a's batch axes, b's batch axes, a's contracted, b's
                ///< contracted[, type to which float32 operands are rounded]};
                ///< result: batch, a's free axes, b's free axes
  gather,       ///< table (R, ...), indices (...): rows
  scatter_add,  ///< base (R, ...), indices (...), rows: base plus every row at its index
  rng_bits,     ///< seed, step, stream [, first]: int64 () each; uint32 of the node's shape. Of element k, with i =
                ///< first + k: word i % 4 of Philox4x32-10 with counter (i/4 low, i/4 high, step, stream) and key
                ///< (seed low, seed high)

  // Composites of kernel/: each is one kernel call, results that nobody uses are not computed.
  linear,               ///< x (..., I), weight (O, I) [, bias (O)]; {[as dot_general]}: x weight^T + bias, (..., O)
  layer_norm,           ///< x (..., C), gamma (C), beta (C); <eps> -> y (..., C), mean (...), rstd (...)
  layer_norm_gradient,  ///< dy, x, gamma, mean, rstd -> dx, dgamma, dbeta
  rms_norm,             ///< x (..., C), weight (C); <eps> -> y (..., C), rstd (...)
  rms_norm_gradient,    ///< dy, x, weight, rstd -> dx, dweight
  rotary,               ///< x (..., T, C), cosine, sine (T, head size / 2); {RotaryPairing, inverse}: (..., T, C)
  swiglu,               ///< gate (..., C), up (..., C): silu(gate) * up
  swiglu_gradient,      ///< dy, gate, up -> dgate, dup
  dropout,    ///< x, seed, step, stream, first: int64 () each but x; <p>: x / (1 - p) where the bits of rng_bits are
              ///< p * 2^32 or more, else 0
  cumsum,     ///< x; {axis, reversed}: along the axis, the sum of every element and all before it, or behind it
  attention,  ///< qkv (B, T, (heads + 2 kv heads) size); {heads, kv heads[, as dot_general]} <scale>: causal ->
              ///< out (B, T, heads size), lse (B, heads, T)
  attention_gradient,  ///< dout, qkv, out, lse; {as attention} <scale>: dqkv
  embedding,           ///< tokens (B, T), table (V, C) [, positions (P >= T, C)]: (B, T, C)
  embedding_gradient,  ///< tokens, dout [, base (V, C)]; {table rows, position rows} -> dtable (+ base), dpositions
  cross_entropy,  ///< logits (..., V), targets (...); {ignored} <scale> -> mean loss (), scale * dlogits, losses (...)
  linear_cross_entropy,  ///< x (..., C), weight (padded V, C), targets (...); {ignored, vocabulary[, as dot_general]}
                         ///< <scale>
                         ///< -> mean loss (), scale * dx, scale * dweight, losses (...)
  square_sum,            ///< x [, base float64 ()]: float64 (), base plus sum of x^2
  adamw,  ///< parameter, gradient, m, v, learning rate, correction 1, correction 2, gradient scale (float32 ());
          ///< <beta1, beta2, eps, weight decay> -> parameter, m, v

  custom,  ///< any operands; <any reals> -> one result: Node::custom is the operation, graph/custom.hpp makes it

  // Ranks, of one axis of the mesh: that of data, unless {..., MeshAxis} names it behind the others. The state of every
  // value along every axis is `Type::replication`.
  vary,            ///< {PortOp}: a replicated value used by each rank on its own; no traffic, VJP all_reduce
  partial,         ///< this rank's value is an addend of a pending sum; no traffic
  all_reduce,      ///< {PortOp}: varying or partial -> replicated; VJP `vary`
  broadcast,       ///< {root}: varying -> replicated
  all_gather,      ///< {ranks[, MeshAxis[, Gathering's bits]]}: (N, ...) varying -> (ranks * N, ...) replicated
  reduce_scatter,  ///< {ranks, PortOp}: (ranks * N, ...) -> (N, ...) varying
  all_to_all,      ///< {ranks}: (ranks * N, ...) -> (ranks * N, ...) varying: rows r N to (r + 1) N go to rank r
  send_receive,    ///< {ranks, by, wraps}: varying: rank r has what rank r - by gave; zeros, where there is none

  // Structure.
  repeat,  ///< carried initial values, invariants, stacked (L, ...); {L, carried, invariants, stacked, reversed,
           ///< Recompute};
           ///< see Graph::bodies -> final carried values, then stacked results (L, ...)
  result,  ///< a node of several results; {index}. The only user that such a node has.
};
inline constexpr int op_count = static_cast<int>(Op::result) + 1;

/// Whether `op` is a function of elements.
constexpr bool is_function(Op op) noexcept { return op >= Op::add && op < Op::stop_gradient; }

/// Everything about one operation that passes ask for; a specialisation stands in graph/op/NAME.hpp.
template <Op>
struct Operation;

/// Which values of a body the backward loop of a `repeat` computes again, instead of having the forward loop keep them.
/// The same operations on the same operands: it costs time, saves memory and changes no result. What crosses ranks is
/// not sent twice, but by an all_gather that says so.
/// Source  Chen et al. 2016 (arXiv 1604.06174); Korthikanti et al. 2022 (arXiv 2205.05198) for choosing what is cheap
enum class Recompute : std::uint8_t {
  none,       ///< only what is no work: everything else that the gradient reads is kept
  pointwise,  ///< also elementwise operations, normalisations, sums, rotations and gates whose operands are kept anyway
  block,      ///< everything: of an iteration only what enters it is kept
};
constexpr std::string_view name(Recompute policy) noexcept {
  return policy == Recompute::none ? "none" : policy == Recompute::pointwise ? "pointwise" : "block";
}

enum class OpClass : std::uint8_t { leaf, elementwise, shape, reduction, composite, collective, structure };

enum class Differentiability : std::uint8_t {
  rule,        ///< has a VJP in graph/vjp.hpp
  none,        ///< its gradient is zero by definition: integers, comparisons, leaves, stop_gradient
  first_order, ///< a gradient itself: differentiated again by way of its primitives
};

/// Of which operands a result is a linear function, so that addends of a sum over ranks pass through.
enum class Linearity : std::uint8_t {
  none,
  any,    ///< of the only operand
  every,  ///< of all operands together
  one,    ///< of any one of them
  first,  ///< of the first one
};

struct OpInfo {
  Op op;
  std::string_view name;
  OpClass kind;
  Differentiability differentiability;
  int results;  ///< 0: depends on the node
  Linearity linearity = Linearity::none;
};

/// What lowering and fusion ask of a function of elements.
struct FunctionFacts {
  bool truth = false, wraps = false, commutes = false;
  double neutral = 0;
};

// Templates, so that what asks can stand before the operations; graph/op/table.hpp defines them.

template <class T = void>
constexpr OpInfo const& info(Op op) noexcept;
template <class T = void>
constexpr std::string_view name(Op op) noexcept {
  return info(op).name;
}
/// Requires  is_function(op)
template <class T = void>
constexpr FunctionFacts const& function_facts(Op op) noexcept;
/// f.operator()<Operation<op>>().
/// Requires  is_function(op)
template <class F>
constexpr void with_operation(Op op, F&& f);

}  // namespace tutti::graph
