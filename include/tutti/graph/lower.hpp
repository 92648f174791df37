// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Graph to steps, one node at a time and without cleverness: every repeat is unrolled, every result gets a buffer of
/// its own. Fusion, sharing of memory and the order of collectives are passes over the steps.

#include <tutti/core/list.hpp>
#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/lower_arrays.hpp>
#include <tutti/graph/lower_collectives.hpp>
#include <tutti/graph/lower_composites.hpp>
#include <tutti/graph/lower_custom.hpp>
#include <tutti/graph/lower_layers.hpp>
#include <tutti/graph/steps.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tutti::graph::lowering {

class Lowering {
 public:
  StepList run(Graph const& graph) {
    List<Value> leaves(graph.nodes.size());
    auto declare = [&](Id id, Pool pool, List<Entry>& entries) {
      Buffer buffer;
      buffer.pool = pool;
      buffer.bytes = graph.shape(id).size() * static_cast<std::int64_t>(size_of(graph.dtype(id)));
      buffer.entry = static_cast<std::int32_t>(entries.size());
      BufferId const root = emit_.list.add(buffer);
      entries.push_back({std::string(graph.name(id)), graph.dtype(id), graph.shape(id), root});
      leaves[at(id)] = view_value(contiguous_ref(root, 0, graph.dtype(id), graph.shape(id)));
    };
    for (Id id : graph.inputs) declare(id, Pool::input, emit_.list.inputs);
    for (Id id : graph.scalars) declare(id, Pool::input, emit_.list.inputs);
    for (Parameter const& parameter : graph.parameters) declare(parameter.node, Pool::state, emit_.list.fields);
    for (Id id : graph.states) declare(id, Pool::state, emit_.list.fields);
    List<Value> values = evaluate(graph, std::move(leaves));
    emit_.node = -1;
    for (Output const& output : graph.outputs) finish_output(emit_, graph, output, values[at(output.node)]);
    List<Value> updated;  // what was in a field before the run is kept from the updates
    for (Update const& update : graph.updates)
      updated.push_back(kept(values[at(update.value)], values[at(update.target)]));
    for (std::size_t i = 0; i < updated.size(); ++i)
      finish_update(emit_, graph, graph.updates[i], values[at(graph.updates[i].target)], updated[i]);
    return std::move(emit_.list);
  }

 private:
  /// `values` holds the leaves; the rest is filled in.
  List<Value> evaluate(Graph const& graph, List<Value> values) {
    List<List<Value>> results(graph.nodes.size());  // of nodes with several
    List<List<bool>> wanted(graph.nodes.size());
    for (Id id = 0; id < graph.size(); ++id)
      if (graph.op(id) == Op::result) {
        auto& of = wanted[at(graph.operand(id, 0))];
        of.resize(at(graph.results(graph.operand(id, 0))));
        of[at(graph.integer(id))] = true;
      }
    List<bool> const needed = needed_nodes(graph);
    for (Id id = 0; id < graph.size(); ++id) {
      if (!needed[at(id)]) continue;
      emit_.graph = &graph;
      emit_.node = id;
      List<Value> operands;
      for (Id operand : graph.operands(id)) operands.push_back(values[at(operand)]);
      if (graph.op(id) == Op::result) {
        values[at(id)] = results[at(graph.operand(id, 0))][at(graph.integer(id))];
      } else if (graph.op(id) == Op::repeat) {
        results[at(id)] = repeat(graph, id, operands, wanted[at(id)]);
        if (graph.results(id) == 1) values[at(id)] = results[at(id)][0];
      } else if (graph.results(id) > 1) {
        results[at(id)] = composite(emit_, graph, id, operands);
      } else if (std::optional<Value> value = single(graph, id, operands)) {
        values[at(id)] = std::move(*value);
      }
    }
    return values;
  }

  /// Nodes that an output or update depends on: a body's unwanted results are left out by its caller's `wanted`.
  static List<bool> needed_nodes(Graph const& graph) {
    List<bool> needed(graph.nodes.size());
    for (Output const& output : graph.outputs) needed[at(output.node)] = true;
    for (Update const& update : graph.updates) needed[at(update.value)] = needed[at(update.target)] = true;
    for (Id id = graph.size(); id-- > 0;)
      if (needed[at(id)])
        for (Id operand : graph.operands(id)) needed[at(operand)] = true;
    return needed;
  }

  List<Value> repeat(Graph const& graph, Id id, List<Value> const& operands,
                            List<bool> const& wanted) {
    RepeatShape const shape = repeat_shape(graph, id);
    Graph const& body = graph.body(id);
    int const results = graph.results(id), stacked_results = results - shape.carried;
    List<Value> carried(operands.begin(), operands.begin() + shape.carried);
    List<List<Value>> columns(at(stacked_results));
    for (auto& column : columns) column.resize(at(shape.length));
    std::int32_t const outer = emit_.layer;
    for (std::int64_t i = 0; i < shape.length; ++i) {
      std::int64_t const index = shape.reversed ? shape.length - 1 - i : i;
      emit_.layer = outer < 0 ? static_cast<std::int32_t>(index) : outer;
      List<Value> leaves(body.nodes.size());
      for (std::size_t k = 0; k < body.inputs.size(); ++k) {
        Id const input = body.inputs[k];
        if (k < carried.size()) {
          leaves[at(input)] = carried[k];
        } else {
          bool const is_slice = k >= at(shape.carried + shape.invariants);
          if (is_slice) emit_.graph = &graph, emit_.node = id;
          leaves[at(input)] = is_slice ? emit_.slice(operands[k], index) : operands[k];
        }
      }
      List<Value> const values = evaluate(body, std::move(leaves));
      for (int k = 0; k < shape.carried; ++k) carried[at(k)] = values[at(body.outputs[at(k)].node)];
      for (int k = 0; k < stacked_results; ++k)
        columns[at(k)][at(index)] = values[at(body.outputs[at(shape.carried + k)].node)];
    }
    emit_.layer = outer;
    emit_.graph = &graph;
    emit_.node = id;
    List<Value> all = std::move(carried);
    for (int k = 0; k < stacked_results; ++k) {
      int const result = shape.carried + k;
      Type const& type = graph.type(id, result);
      bool const used = results == 1 || (at(result) < wanted.size() && wanted[at(result)]);
      all.push_back(used ? emit_.stack(type.dtype, type.shape, columns[at(k)]) : Value{});
    }
    return all;
  }

  // ---- Nodes with one result.

  /// Nothing for leaves, which are there already.
  std::optional<Value> single(Graph const& graph, Id id, List<Value> const& x) {
    Type const& type = graph.type(id);
    auto const integers = graph.integers(id);
    if (is_function(graph.op(id))) {
      auto const reals = graph.reals(id);
      return emit_.elementwise(graph.op(id), reals.empty() ? 0 : reals[0], x, type.dtype, type.shape);
    }
    switch (graph.op(id)) {
      case Op::input: case Op::parameter: case Op::state: case Op::scalar: return std::nullopt;
      case Op::constant: return constant_value(type.dtype, type.shape, graph.real(id));
      case Op::stop_gradient: case Op::vary: case Op::partial: return x[0];
      case Op::barrier: return fenced(x[0]);
      case Op::iota: {
        Ref const y = emit_.fresh(type.dtype, type.shape);
        Step& step = emit_.push(StepKind::iota);
        step.axis = static_cast<std::int32_t>(integers[0]);
        step.writes = {y};
        return view_value(y);
      }
      case Op::rank: return lower_rank(emit_, graph, id);
      case Op::broadcast_in_dim: return emit_.broadcast(x[0], integers, type.shape);
      case Op::reshape: return emit_.reshaped(x[0], type.shape);
      case Op::transpose: return emit_.transposed(x[0], integers, type.shape);
      case Op::slice: return emit_.sliced(x[0], integers, type.shape);
      case Op::pad: return lower_pad(emit_, graph, id, x[0]);
      case Op::concatenate: return lower_concatenate(emit_, static_cast<int>(integers[0]), x, type);
      case Op::dynamic_slice: case Op::dynamic_update_slice: {
        List<Ref> reads;
        for (Value const& operand : x) reads.push_back(emit_.contiguous(operand));
        return simple(graph.op(id) == Op::dynamic_slice ? StepKind::dynamic_slice : StepKind::dynamic_update_slice,
                      reads, type);
      }
      case Op::reduce_sum: case Op::reduce_max: return lower_reduce(emit_, graph, id, x[0]);
      case Op::dot_general: return lower_dot(emit_, graph, id, x[0], x[1]);
      case Op::custom: return lower_custom(emit_, graph, id, x);
      case Op::gather: return simple(StepKind::gather, {emit_.contiguous(x[0]), emit_.contiguous(x[1])}, type);
      case Op::scatter_add:
        return simple(StepKind::scatter_add, {emit_.contiguous(x[0]), emit_.contiguous(x[1]), emit_.contiguous(x[2])},
                      type);
      case Op::rng_bits: {
        List<Ref> reads;
        for (Value const& operand : x) reads.push_back(emit_.contiguous(operand, DType::int64));
        return simple(StepKind::random_bits, reads, type);
      }
      case Op::cumsum: {
        Value const value = simple(StepKind::cumsum, {emit_.contiguous(x[0])}, type);
        Step& step = emit_.list.steps.back();
        step.axis = static_cast<std::int32_t>(integers[0]);
        step.inverse = integers[1] != 0;
        return value;
      }
      case Op::dropout: return lower_dropout(emit_, graph, id, x);
      case Op::linear: return lower_linear(emit_, graph, id, x);
      case Op::rotary: case Op::swiglu: return lower_rows(emit_, graph, id, x);
      case Op::attention_gradient: return lower_attention_gradient(emit_, graph, id, x);
      case Op::embedding: return lower_embedding(emit_, graph, id, x);
      case Op::square_sum: return lower_square_sum(emit_, graph, id, x);
      case Op::all_reduce: return lower_all_reduce(emit_, graph, id, x[0]);
      case Op::broadcast:
      case Op::all_gather:
      case Op::reduce_scatter:
      case Op::all_to_all:
      case Op::send_receive: return lower_collective(emit_, graph, id, x[0]);
      default: break;
    }
    emit_.fail(ErrorKind::unavailable, "the executor has no step for this operation");
  }

  /// The same value in a buffer of its own: fusion sees a copy between who makes it and who reads it here. Copy elision
  /// removes that copy again. There is one for every buffer, for a second one could not be removed. Only who reads all
  /// of a buffer that a step wrote could be fused with that step.
  Value fenced(Value const& x) {
    if (x.kind != Value::Kind::view) return x;
    Buffer const& buffer = emit_.list[x.ref.buffer];
    if (buffer.pool != Pool::arena || x.ref.offset != 0 || !x.ref.contiguous() || x.ref.bytes() != buffer.bytes)
      return x;
    while (fences_.size() < emit_.list.buffers.size()) fences_.push_back(-1);
    BufferId fence = fences_[at(x.ref.buffer)];
    if (fence < 0) fences_[at(x.ref.buffer)] = fence = emit_.copied(x.ref).buffer;
    return view_value(contiguous_ref(fence, 0, x.dtype, x.shape));
  }
  /// With copies of what stands in a field, other than where it is to be: that may be written before it is read.
  Value kept(Value value, Value const& target) {
    auto const keep = [&](Ref& ref, Ref const& to) {
      Buffer const& from = emit_.list[ref.buffer];
      bool const stays = ref.buffer == to.buffer && ref.offset == to.offset && ref.contiguous();
      if (from.pool == Pool::state && from.over < 0 && !stays) ref = emit_.copied(ref);
    };
    if (value.is_stack())
      for (std::size_t i = 0; i < value.parts.size(); ++i)
        keep(value.parts[i], slice_ref(target.ref, static_cast<std::int64_t>(i)));
    else if (!value.is_constant()) keep(value.ref, target.ref);
    return value;
  }
  Value simple(StepKind kind, List<Ref> const& reads, Type const& type) {
    Ref const y = emit_.fresh(type.dtype, type.shape);
    Step& step = emit_.push(kind);
    step.reads = reads;
    step.writes = {y};
    return view_value(y);
  }

  Emitter emit_;
  List<BufferId> fences_;  // by the buffer that they copy; -1: none
};

}  // namespace tutti::graph::lowering
