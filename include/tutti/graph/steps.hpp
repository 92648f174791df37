// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a graph is lowered to: a flat list of steps over buffers. Every buffer is one value, written by one step;
/// sharing of memory is said by two relations between buffers, so that passes can reason about values and the planner
/// about bytes.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/rotary.hpp>
#include <tutti/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tutti::graph {

namespace lowering {
constexpr std::size_t at(std::int64_t index) noexcept { return static_cast<std::size_t>(index); }
}  // namespace lowering

using BufferId = std::int32_t;
struct CustomOperation;

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
  BufferId over = -1;       ///< uses the memory of this one, at `offset`, at a time when that value is not alive
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
  elementwise,  ///< x... -> y...
  reduce,       ///< x -> y
  copy,         ///< x... -> a box of y for every x [, all of y, filled with `value` first]
  fill,         ///< -> y
  gemm,         ///< a (Z..., M, K), b (Z..., K, N), [bias], [residual], [gelu_gradient] -> c (Z..., M, N), [saved],
                ///< [sums of a over k (M)]
  column_sum,   ///< x (M, N) -> y
  layer_norm,   ///< x, gamma, beta -> y, [mean], [rstd]
  layer_norm_gradient,   ///< dy, x, gamma, mean, rstd, [dx_add] -> [dx], [dgamma], [dbeta]
  rms_norm,              ///< x, weight -> y, [rstd]
  rms_norm_gradient,     ///< dy, x, weight, rstd, [dx_add] -> [dx], [dweight]
  rotary,                ///< x (rows, C) of any row stride, cosine, sine -> y
  swiglu,                ///< gate, up (rows, C) of any row strides -> y
  swiglu_gradient,       ///< dy, gate, up (rows, C) of any row strides -> [dgate], [dup]
  cumsum,                ///< x -> y
  dropout,               ///< x, seed, step, stream, first -> y
  attention,             ///< qkv -> out, [lse]
  attention_gradient,    ///< dout, qkv, out, lse -> dqkv
  embedding,             ///< tokens, table, [positions] -> out
  embedding_gradient,    ///< tokens, dout, [onto] -> [dtable], [dpositions]
  linear_cross_entropy,  ///< x, weight, targets -> loss, [dx], [dweight], [losses], workspace
  cross_entropy,         ///< logits, targets -> loss, [dlogits], [losses]
  square_sum,            ///< [base], x... -> y
  adamw,        ///< learning rate, corrections, gradient scale, then p, g, m, v of every part -> p, m, v of every part
                ///< [, then [p in bfloat16] of every part]
  gather,       ///< table, indices -> y
  scatter_add,  ///< onto, indices, updates -> y
  dynamic_slice,         ///< x, starts... -> y
  dynamic_update_slice,  ///< x, update, starts... -> y
  custom,                ///< x... -> y
  iota,                  ///< -> y
  random_bits,           ///< seed, step, stream, [first] -> y
  rank,                  ///< -> y
  all_reduce,            ///< x -> y; none is left once buckets are made
  all_reduce_start,      ///< x... -> : all from the first to the end of the last, which lie in one bucket
  all_reduce_wait,       ///< -> x: the bucket
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  send_receive,         ///< x -> y, complete when the step ends, but for those with a slot
  all_gather_wait,      ///< x -> : what the all_gather with this slot writes
  reduce_scatter_wait,  ///< x, operand -> : what the reduce_scatter with this slot writes, and reads until then
  node_sum,             ///< x -> y: over the ranks of a Division; float64
  node_barrier,         ///< all of them have come here
};

/// One that the step begins and ends, but for those with a slot.
constexpr bool is_collective(StepKind kind) noexcept {
  return kind == StepKind::broadcast || kind == StepKind::all_gather || kind == StepKind::reduce_scatter ||
         kind == StepKind::all_to_all || kind == StepKind::send_receive;
}
/// The end of a collective that another step began.
constexpr bool is_wait(StepKind kind) noexcept {
  return kind == StepKind::all_reduce_wait || kind == StepKind::all_gather_wait ||
         kind == StepKind::reduce_scatter_wait;
}

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
    case StepKind::rms_norm: return "rms_norm";
    case StepKind::rms_norm_gradient: return "rms_norm_gradient";
    case StepKind::rotary: return "rotary";
    case StepKind::swiglu: return "swiglu";
    case StepKind::swiglu_gradient: return "swiglu_gradient";
    case StepKind::cumsum: return "cumsum";
    case StepKind::dropout: return "dropout";
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
    case StepKind::custom: return "custom";
    case StepKind::iota: return "iota";
    case StepKind::random_bits: return "random_bits";
    case StepKind::rank: return "rank";
    case StepKind::all_reduce: return "all_reduce";
    case StepKind::all_reduce_start: return "all_reduce_start";
    case StepKind::all_reduce_wait: return "all_reduce_wait";
    case StepKind::broadcast: return "broadcast";
    case StepKind::all_gather: return "all_gather";
    case StepKind::reduce_scatter: return "reduce_scatter";
    case StepKind::all_to_all: return "all_to_all";
    case StepKind::send_receive: return "send_receive";
    case StepKind::all_gather_wait: return "all_gather_wait";
    case StepKind::reduce_scatter_wait: return "reduce_scatter_wait";
    case StepKind::node_sum: return "node_sum";
    case StepKind::node_barrier: return "node_barrier";
  }
  return "unknown";
}

/// The arithmetic of an operation on these types: that of float64, of float32, or of integers modulo 2^64, unsigned
/// where an uint64 is among them. Steps keep it when they are merged: their reads and writes no longer tell.
inline DType registers_of(std::initializer_list<DType> result, std::span<DType const> operands) {
  bool wide = false, floating = false, number = false, beyond = false;
  for (std::span<DType const> const part : {std::span<DType const>(result.begin(), result.size()), operands})
    for (DType const dtype : part) {
      wide |= dtype == DType::float64;
      floating |= is_floating(dtype);
      number |= dtype != DType::boolean;
      beyond |= dtype == DType::uint64;
    }
  return wide ? DType::float64 : floating || !number ? DType::float32 : beyond ? DType::uint64 : DType::int64;
}

/// One unit of work. Which attributes mean something follows from `kind`; operators with attributes of their own say
/// them here.
struct Step {
  StepKind kind{};
  List<Ref> reads;
  List<Ref> writes;
  List<kernel::ElementwiseInstruction> instructions;  ///< elementwise: registers count `reads` first
  List<std::int16_t> sources;                         ///< elementwise: the register of each write
  DType registers = DType::float32;                   ///< elementwise: see registers_of

  bool maximum = false;          ///< reduce
  bool gelu = false;             ///< gemm
  std::int32_t axis = 0;         ///< gather, iota, cumsum
  std::uint32_t axes = 0;        ///< reduce
  DType product = DType::float32;  ///< gemm, linear_cross_entropy, attention: what float32 operands are rounded to
  kernel::RotaryPairing pairing{};  ///< rotary
  bool inverse = false;          ///< rotary, cumsum: reversed
  std::int64_t heads = 0, kv_heads = 0;  ///< attention
  std::int64_t vocabulary = 0;   ///< linear_cross_entropy: classes; embedding: rows of the table
  std::int32_t ignored = -1;     ///< cross entropies
  std::int32_t root = 0;         ///< broadcast; other collectives: the number of ranks
  std::int32_t by = 0;           ///< send_receive
  bool wraps = false;            ///< send_receive
  std::uint8_t operation = 0;    ///< collectives: comm::PortOp
  MeshAxis mesh_axis{};          ///< collectives, rank
  double value = 1;              ///< fill: the value; gemm: alpha; attention, cross entropies: scale; dropout: p
  double eps = 1e-5;             ///< normalisation, adamw
  double beta1 = 0, beta2 = 0, weight_decay = 0;  ///< adamw
  std::int32_t slot = -1;                         ///< collectives in flight: which one
  bool scatter = false;          ///< all_reduce_start: of the result, a rank needs only its section of the bucket

  CustomOperation const* custom = nullptr;  ///< custom
  List<double> reals;                       ///< custom

  std::int32_t layer = -1;       ///< iteration of the repeat that it was unrolled from
  std::int32_t node = -1;        ///< node of the graph, for messages
  std::string where;             ///< the user's line, "model.cpp:31"
  std::string scope;             ///< Graph::scope: the ranges around it, "decoder/*/attention"
};

/// Something outside the arena that a list of steps refers to by name.
struct Entry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  BufferId buffer = -1;
};

struct StepList {
  List<Buffer> buffers;
  List<Step> steps;
  List<Entry> fields;   ///< of the State
  List<Entry> copies;   ///< of fields, by their names, in bfloat16: kept from run to run, as fields are
  List<Entry> inputs;
  List<Entry> outputs;

  Buffer& operator[](BufferId id) { return buffers[static_cast<std::size_t>(id)]; }
  Buffer const& operator[](BufferId id) const { return buffers[static_cast<std::size_t>(id)]; }
  BufferId add(Buffer const& buffer) {
    buffers.push_back(buffer);
    return static_cast<BufferId>(buffers.size() - 1);
  }
  struct Home {
    BufferId root;
    std::int64_t offset;
  };
  /// The buffer that brings the memory of `id`, and where in it.
  Home home(BufferId id) const {
    std::int64_t offset = 0;
    for (;;) {
      Buffer const& buffer = (*this)[id];
      BufferId const next = buffer.part_of >= 0 ? buffer.part_of : buffer.over;
      if (next < 0) return {id, offset};
      offset += buffer.offset;
      id = next;
    }
  }
};

/// Elements that an all_reduce_start sends: its operands and the padding between them.
inline std::int64_t sent_elements(Step const& start) {
  Ref const &first = start.reads.front(), &last = start.reads.back();
  return (last.offset + last.bytes() - first.offset) / static_cast<std::int64_t>(size_of(first.dtype));
}

/// The beginning of a collective that goes on beside the steps behind it, until one waits for it.
inline bool is_start(Step const& step) noexcept {
  return step.kind == StepKind::all_reduce_start || (is_collective(step.kind) && step.slot >= 0);
}

/// What is there once the step is over: nothing yet of a collective that goes on, all of it where it is waited for.
inline std::span<Ref const> results_of(Step const& step) noexcept {
  if (is_start(step)) return {};
  bool const is_end = is_wait(step.kind) && step.kind != StepKind::all_reduce_wait;  // which has its bucket in `writes`
  return is_end ? std::span<Ref const>(step.reads.begin(), 1)
                : std::span<Ref const>(step.writes.begin(), step.writes.size());
}

/// Numbers the slots in the order in which their collectives begin. A slot may belong to one collective alone.
inline void number_slots(StepList& list) {
  List<std::int32_t> numbers;
  std::int32_t begun = 0;
  for (Step& step : list.steps) {
    if (step.slot < 0) continue;
    while (static_cast<std::int32_t>(numbers.size()) <= step.slot) numbers.push_back(-1);
    std::int32_t& number = numbers[static_cast<std::size_t>(step.slot)];
    if (number < 0) number = begun++;
    step.slot = number;
  }
}
/// One more than the largest slot.
inline std::int32_t slots_of(StepList const& list) {
  std::int32_t slots = 0;
  for (Step const& step : list.steps) slots = std::max(slots, step.slot + 1);
  return slots;
}
/// The end of a collective, which began in a step of its own.
inline Step wait_for(Step const& begun, StepKind kind) {
  Step wait;
  wait.kind = kind;
  wait.reads = {begun.writes[0]};
  wait.mesh_axis = begun.mesh_axis;
  wait.slot = begun.slot;
  wait.layer = begun.layer, wait.node = begun.node;
  wait.where = begun.where, wait.scope = begun.scope;
  return wait;
}

/// Bytes that a run gives to collectives along this axis, a tensor once whatever becomes of it.
inline std::int64_t sent_bytes(StepList const& list, MeshAxis axis) {
  std::int64_t bytes = 0;
  for (Step const& step : list.steps) {
    if (step.mesh_axis != axis) continue;
    if (step.kind == StepKind::all_reduce_start)
      bytes += sent_elements(step) * static_cast<std::int64_t>(size_of(step.reads.front().dtype));
    if (is_collective(step.kind)) bytes += step.reads.front().bytes();
  }
  return bytes;
}
/// Bytes that one of `ranks` sends along this axis in a run whose collectives go around in rings: of sums over ranks
/// 2 (ranks - 1) / ranks of the tensor, of scattered ones half of that, of what is gathered ranks - 1 copies.
inline std::int64_t ring_bytes(StepList const& list, MeshAxis axis, int ranks) {
  std::int64_t shares = 0, whole = 0;  // of 1 / ranks
  for (Step const& step : list.steps) {
    if (step.mesh_axis != axis) continue;
    if (step.kind == StepKind::all_reduce_start)
      shares += (step.scatter ? 1 : 2) * sent_elements(step) *
                static_cast<std::int64_t>(size_of(step.reads.front().dtype));
    if (step.kind == StepKind::send_receive) whole += step.reads.front().bytes();
    else if (is_collective(step.kind) && step.kind != StepKind::all_gather) shares += step.reads.front().bytes();
    if (step.kind == StepKind::all_gather) shares += ranks * step.reads.front().bytes();
  }
  return shares / ranks * (ranks - 1) + whole;
}

inline Ref contiguous_ref(BufferId buffer, std::int64_t offset, DType dtype, Shape const& shape) {
  return {buffer, offset, dtype, shape, shape.row_major_strides()};
}

}  // namespace tutti::graph
