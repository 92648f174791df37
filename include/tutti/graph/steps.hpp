// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a graph is lowered to: a flat list of steps over buffers. Every buffer is one value, written by one step; sharing of
/// memory is said by two relations between buffers, so that passes can reason about values and the planner about bytes.

#include <tutti/core/dtype.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::graph {

using BufferId = std::int32_t;

/// Where a buffer's memory comes from.
enum class Pool : std::uint8_t {
  arena,         ///< private, reused by liveness
  communicator,  ///< from the communicator's heap when one is connected; reused by liveness
  state,         ///< a field of the State
  input,         ///< set by the caller before a run, kept between runs
  output,        ///< read by the caller after a run, kept between runs
};

/// One value. `part_of` and `over` say whose memory it uses; at most one of them is set.
struct Buffer {
  Pool pool = Pool::arena;
  std::int64_t bytes = 0;
  BufferId part_of = -1;    ///< lies inside this one, at `offset`; reading the whole reads every part
  BufferId over = -1;       ///< replaces (part of) this one in place, at `offset`; the older value is dead from then on
  std::int64_t offset = 0;  ///< bytes
  std::int32_t entry = -1;  ///< index of the field, input or output, for those pools
};

/// A strided box inside a buffer. A default-made one stands for an absent operand.
struct Ref {
  BufferId buffer = -1;
  std::int64_t offset = 0;  ///< bytes
  DType dtype = DType::float32;
  Shape shape;
  std::array<std::int64_t, Shape::max_rank> strides{};  ///< elements

  explicit operator bool() const noexcept { return buffer >= 0; }
  std::int64_t bytes() const noexcept { return shape.size() * static_cast<std::int64_t>(size_of(dtype)); }
  bool contiguous() const noexcept {
    std::int64_t expected = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (shape[axis] == 0) return true;
      if (shape[axis] != 1 && strides[static_cast<std::size_t>(axis)] != expected) return false;
      expected *= shape[axis];
    }
    return true;
  }
  /// Bytes from the first element to the end of the last one.
  std::int64_t span_bytes() const noexcept {
    std::int64_t last = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 0) return 0;
      last += (shape[axis] - 1) * strides[static_cast<std::size_t>(axis)];
    }
    return (last + 1) * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// What a step runs. Operands stand in `reads` and `writes` in the order given here; those in brackets may be absent.
enum class StepKind : std::uint8_t {
  elementwise,               ///< x... -> y...
  reduce,                    ///< x -> y
  copy,                      ///< x -> y, both strided
  fill,                      ///< -> y
  gemm,                      ///< a, b, [bias], [residual], [gelu_gradient] -> c, [saved]
  column_sum,                ///< x, [onto] -> y
  layer_norm,                ///< x, gamma, beta -> y, [mean], [rstd]
  layer_norm_gradient,       ///< dy, x, gamma, mean, rstd, [dx_add] -> [dx], [dgamma], [dbeta]
  attention,                 ///< qkv -> out, [lse]
  attention_gradient,        ///< dout, qkv, out, lse -> dqkv
  embedding,                 ///< tokens, table, [positions] -> out
  embedding_gradient,        ///< tokens, dout, [onto] -> [dtable], [dpositions]
  linear_cross_entropy,      ///< x, weight, targets, [scale] -> loss, [dx], [dweight], workspace
  cross_entropy,             ///< logits, targets, [scale] -> loss, [dlogits]
  square_sum,                ///< x... -> y
  adamw,                     ///< learning_rate, step, [scale], then p, g, m, v of every part -> p, m, v of every part
  gather,                    ///< table, indices -> y
  scatter_add,               ///< onto, indices, updates -> y
  dynamic_slice,             ///< x, starts... -> y
  dynamic_update_slice,      ///< x, update, starts... -> y
  iota,                      ///< -> y
  random_bits,               ///< key, counter -> y
  all_reduce_start,          ///< x ->
  all_reduce_wait,           ///< -> x
  broadcast, all_gather, reduce_scatter,  ///< x -> y, complete when the step ends
};

constexpr std::string_view name(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::elementwise: return "elementwise";
    case StepKind::reduce: return "reduce";
    case StepKind::copy: return "copy";
    case StepKind::fill: return "fill";
    case StepKind::gemm: return "gemm";
    case StepKind::column_sum: return "column_sum";
    case StepKind::layer_norm: return "layer_norm";
    case StepKind::layer_norm_gradient: return "layer_norm_gradient";
    case StepKind::attention: return "attention";
    case StepKind::attention_gradient: return "attention_gradient";
    case StepKind::embedding: return "embedding";
    case StepKind::embedding_gradient: return "embedding_gradient";
    case StepKind::linear_cross_entropy: return "linear_cross_entropy";
    case StepKind::cross_entropy: return "cross_entropy";
    case StepKind::square_sum: return "square_sum";
    case StepKind::adamw: return "adamw";
    case StepKind::gather: return "gather";
    case StepKind::scatter_add: return "scatter_add";
    case StepKind::dynamic_slice: return "dynamic_slice";
    case StepKind::dynamic_update_slice: return "dynamic_update_slice";
    case StepKind::iota: return "iota";
    case StepKind::random_bits: return "random_bits";
    case StepKind::all_reduce_start: return "all_reduce_start";
    case StepKind::all_reduce_wait: return "all_reduce_wait";
    case StepKind::broadcast: return "broadcast";
    case StepKind::all_gather: return "all_gather";
    case StepKind::reduce_scatter: return "reduce_scatter";
  }
  return "unknown";
}

inline Ref contiguous_ref(BufferId buffer, std::int64_t offset, DType dtype, Shape const& shape) {
  return {buffer, offset, dtype, shape, shape.row_major_strides()};
}

}  // namespace tutti::graph
