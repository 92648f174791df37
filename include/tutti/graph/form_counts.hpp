// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many operands, integers and reals the nodes of an operation have.

#include <tutti/graph/op.hpp>

#include <cstddef>

namespace tutti::graph::detail {

/// From `least` to `most`; most -1: any number.
struct Count {
  int least = 0, most = 0;
  constexpr Count() = default;
  constexpr Count(int exact) : least(exact), most(exact) {}
  constexpr Count(int from, int to) : least(from), most(to) {}
  constexpr bool holds(std::size_t count) const noexcept {
    return count >= static_cast<std::size_t>(least) && (most < 0 || count <= static_cast<std::size_t>(most));
  }
};
struct Form {
  Count operands, integers, reals;
};
inline constexpr Count any_count{0, -1};

constexpr Form form_of(Op op) {
  switch (op) {
    case Op::input: case Op::parameter: case Op::scalar: return {0, 0, 0};
    case Op::rank: case Op::state: return {0, {0, 1}, 0};
    case Op::constant: return {0, 0, 1};
    case Op::iota: return {0, 1, 0};
    case Op::stop_gradient: case Op::reshape: return {1, 0, 0};
    case Op::partial: return {1, {0, 1}, 0};
    case Op::barrier: case Op::result: return {1, 1, 0};
    case Op::vary: case Op::all_reduce: case Op::broadcast: return {1, {1, 2}, 0};
    case Op::all_gather: return {1, {1, 3}, 0};
    case Op::broadcast_in_dim: case Op::transpose: case Op::slice: case Op::reduce_sum: case Op::reduce_max:
      return {1, any_count, 0};
    case Op::pad: return {1, any_count, 1};
    case Op::concatenate: return {{1, -1}, 1, 0};
    case Op::dynamic_slice: return {{1, -1}, 0, 0};
    case Op::dynamic_update_slice: return {{2, -1}, 0, 0};
    case Op::dot_general: return {2, {2, -1}, 0};
    case Op::gather: case Op::swiglu: return {2, 0, 0};
    case Op::scatter_add: case Op::swiglu_gradient: return {3, 0, 0};
    case Op::rng_bits: return {{3, 4}, 0, 0};
    case Op::dropout: return {5, 0, 1};
    case Op::cumsum: return {1, 2, 0};
    case Op::linear: return {{2, 3}, {0, 1}, 0};
    case Op::layer_norm: return {3, 0, 1};
    case Op::layer_norm_gradient: return {5, 0, 0};
    case Op::rms_norm: return {2, 0, 1};
    case Op::rms_norm_gradient: return {4, 0, 0};
    case Op::rotary: return {3, 2, 0};
    case Op::attention: return {1, {2, 3}, 1};
    case Op::attention_gradient: return {4, {2, 3}, 1};
    case Op::embedding: return {{2, 3}, 0, 0};
    case Op::embedding_gradient: return {{2, 3}, 2, 0};
    case Op::cross_entropy: return {2, 1, 1};
    case Op::linear_cross_entropy: return {3, {2, 3}, 1};
    case Op::square_sum: return {{1, 2}, 0, 0};
    case Op::adamw: return {8, 0, 4};
    case Op::reduce_scatter: return {1, {2, 3}, 0};
    case Op::all_to_all: return {1, {1, 2}, 0};
    case Op::send_receive: return {1, {3, 4}, 0};
    case Op::repeat: return {{1, -1}, 6, 0};
    default: return {};  // functions of elements say for themselves; custom operations do not travel
  }
}

}  // namespace tutti::graph::detail
