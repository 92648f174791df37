// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Kind, gradient, results and linearity of the operations that are no functions of elements: one row each.

#include <tutti/graph/op.hpp>

namespace tutti::graph::detail {

inline constexpr auto with_rule = Differentiability::rule;
inline constexpr auto no_gradient = Differentiability::none;
inline constexpr auto gradient_itself = Differentiability::first_order;
/// Of operations without a file of their own.
inline constexpr OpInfo op_rows[] = {
    {Op::input, "input", OpClass::leaf, no_gradient, 1},
    {Op::parameter, "parameter", OpClass::leaf, no_gradient, 1},
    {Op::state, "state", OpClass::leaf, no_gradient, 1},
    {Op::scalar, "scalar", OpClass::leaf, no_gradient, 1},
    {Op::constant, "constant", OpClass::leaf, no_gradient, 1},
    {Op::iota, "iota", OpClass::leaf, no_gradient, 1},
    {Op::rank, "rank", OpClass::leaf, no_gradient, 1},
    {Op::stop_gradient, "stop_gradient", OpClass::elementwise, no_gradient, 1},
    {Op::barrier, "barrier", OpClass::elementwise, with_rule, 1, Linearity::any},
    {Op::broadcast_in_dim, "broadcast_in_dim", OpClass::shape, with_rule, 1, Linearity::any},
    {Op::reshape, "reshape", OpClass::shape, with_rule, 1, Linearity::any},
    {Op::transpose, "transpose", OpClass::shape, with_rule, 1, Linearity::any},
    {Op::slice, "slice", OpClass::shape, with_rule, 1, Linearity::any},
    {Op::pad, "pad", OpClass::shape, with_rule, 1},
    {Op::concatenate, "concatenate", OpClass::shape, with_rule, 1, Linearity::every},
    {Op::dynamic_slice, "dynamic_slice", OpClass::shape, with_rule, 1},
    {Op::dynamic_update_slice, "dynamic_update_slice", OpClass::shape, with_rule, 1},
    {Op::reduce_sum, "reduce_sum", OpClass::reduction, with_rule, 1, Linearity::any},
    {Op::reduce_max, "reduce_max", OpClass::reduction, with_rule, 1},
    {Op::dot_general, "dot_general", OpClass::reduction, with_rule, 1, Linearity::one},
    {Op::gather, "gather", OpClass::reduction, with_rule, 1},
    {Op::scatter_add, "scatter_add", OpClass::reduction, with_rule, 1},
    {Op::rng_bits, "rng_bits", OpClass::leaf, no_gradient, 1},
    {Op::linear, "linear", OpClass::composite, with_rule, 1},
    {Op::layer_norm, "layer_norm", OpClass::composite, with_rule, 3},
    {Op::layer_norm_gradient, "layer_norm_gradient", OpClass::composite, gradient_itself, 3},
    {Op::rms_norm, "rms_norm", OpClass::composite, with_rule, 2},
    {Op::rms_norm_gradient, "rms_norm_gradient", OpClass::composite, gradient_itself, 2},
    {Op::rotary, "rotary", OpClass::composite, with_rule, 1},
    {Op::swiglu, "swiglu", OpClass::composite, with_rule, 1},
    {Op::swiglu_gradient, "swiglu_gradient", OpClass::composite, gradient_itself, 2},
    {Op::dropout, "dropout", OpClass::composite, with_rule, 1, Linearity::first},
    {Op::cumsum, "cumsum", OpClass::composite, with_rule, 1, Linearity::any},
    {Op::attention, "attention", OpClass::composite, with_rule, 2},
    {Op::attention_gradient, "attention_gradient", OpClass::composite, gradient_itself, 1},
    {Op::embedding, "embedding", OpClass::composite, with_rule, 1},
    {Op::embedding_gradient, "embedding_gradient", OpClass::composite, gradient_itself, 2},
    {Op::cross_entropy, "cross_entropy", OpClass::composite, with_rule, 3},
    {Op::linear_cross_entropy, "linear_cross_entropy", OpClass::composite, with_rule, 4},
    {Op::square_sum, "square_sum", OpClass::composite, with_rule, 1},
    {Op::adamw, "adamw", OpClass::composite, gradient_itself, 3},
    {Op::custom, "custom", OpClass::composite, with_rule, 1},
    {Op::vary, "vary", OpClass::collective, with_rule, 1},
    {Op::partial, "partial", OpClass::collective, with_rule, 1},
    {Op::all_reduce, "all_reduce", OpClass::collective, with_rule, 1},
    {Op::broadcast, "broadcast", OpClass::collective, with_rule, 1},
    {Op::all_gather, "all_gather", OpClass::collective, with_rule, 1},
    {Op::reduce_scatter, "reduce_scatter", OpClass::collective, with_rule, 1},
    {Op::all_to_all, "all_to_all", OpClass::collective, with_rule, 1},
    {Op::send_receive, "send_receive", OpClass::collective, with_rule, 1},
    {Op::repeat, "repeat", OpClass::structure, with_rule, 0},
    {Op::result, "result", OpClass::structure, no_gradient, 1},
};

}  // namespace tutti::graph::detail
