// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Steps under construction, and the values of lower_values.hpp that they compute.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/lower_values.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/graph/steps.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tutti::graph::lowering {

using Strides = std::array<std::int64_t, Shape::max_rank>;

/// Steps under construction.
class Emitter {
 public:
  StepList list;
  std::int32_t layer = -1;
  Graph const* graph = nullptr;
  Id node = -1;

  Step& push(StepKind kind) {
    Step step;
    step.kind = kind;
    step.layer = layer;
    step.node = node;
    if (graph != nullptr && node >= 0 && (*graph)[node].line != 0) {
      std::string_view file = graph->file(node);
      if (auto const slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
      step.where = std::string(file) + ":" + std::to_string((*graph)[node].line);
      step.scope = std::string(graph->scope(node));
    }
    list.steps.push_back(std::move(step));
    return list.steps.back();
  }
  [[noreturn]] void fail(ErrorKind kind, std::string const& what) const {
    std::string where;
    if (graph != nullptr && node >= 0) {
      where = std::string(name(graph->op(node))) + " (node " + std::to_string(node);
      if ((*graph)[node].line != 0)
        where += ", " + std::string(graph->file(node)) + ":" + std::to_string((*graph)[node].line);
      where += "): ";
    }
    throw Error(kind, "graph::compile", where + what);
  }

  Ref fresh(DType dtype, Shape const& shape) {
    Buffer buffer;
    buffer.bytes = shape.size() * static_cast<std::int64_t>(size_of(dtype));
    return contiguous_ref(list.add(buffer), 0, dtype, shape);
  }
  /// A buffer that takes the memory of what `ref` refers to.
  Ref fresh_over(Ref const& ref) {
    Buffer buffer;
    buffer.pool = list[ref.buffer].pool;
    buffer.bytes = ref.bytes();
    buffer.over = ref.buffer;
    buffer.offset = ref.offset;
    return contiguous_ref(list.add(buffer), 0, ref.dtype, ref.shape);
  }

  Ref filled(DType dtype, Shape const& shape, double number) {
    Ref const result = fresh(dtype, shape);
    Step& step = push(StepKind::fill);
    step.value = number;
    step.writes = {result};
    return result;
  }

  /// As one strided ref. A stack is copied together; where possible a later pass makes the parts be written in place.
  Ref ref(Value const& value) {
    switch (value.kind) {
      case Value::Kind::view: return value.ref;
      case Value::Kind::constant: {
        Ref result = filled(value.dtype, Shape{}, value.number);
        result.shape = value.shape;
        result.strides = {};
        return result;
      }
      case Value::Kind::stack: break;
    }
    Ref const whole = fresh(value.dtype, value.shape);
    Step& step = push(StepKind::copy);
    for (std::size_t i = 0; i < value.parts.size(); ++i) {
      step.reads.push_back(value.parts[i]);
      step.writes.push_back(slice_ref(whole, static_cast<std::int64_t>(i)));
    }
    return whole;
  }
  Ref copied(Ref const& from) {
    Ref const result = fresh(from.dtype, from.shape);
    Step& step = push(StepKind::copy);
    step.reads = {from};
    step.writes = {result};
    return result;
  }
  Ref contiguous(Ref const& from) {
    return from.contiguous() ? contiguous_ref(from.buffer, from.offset, from.dtype, from.shape) : copied(from);
  }
  Ref contiguous(Value const& value) {
    return value.is_constant() ? filled(value.dtype, value.shape, value.number) : contiguous(ref(value));
  }
  /// Contiguous and of the element type that a kernel takes.
  Ref contiguous(Value const& value, DType dtype) {
    Ref const source = contiguous(value);
    return source.dtype == dtype ? source : converted(source, dtype);
  }
  Ref converted(Ref const& from, DType dtype) {
    Ref const result = fresh(dtype, from.shape);
    Step& step = push(StepKind::elementwise);
    step.reads = {from};
    step.writes = {result};
    step.registers = registers_of({dtype, from.dtype}, {});
    step.instructions = {{Op::convert, 0, -1, -1, 0}};
    step.sources = {1};
    return result;
  }
  List<Ref> floats(List<Value> const& values) {
    List<Ref> refs;
    for (Value const& value : values) refs.push_back(contiguous(value, DType::float32));
    return refs;
  }
  List<Ref> parts_of(Value const& value) {
    return value.is_stack() ? value.parts : List<Ref>{ref(value)};
  }
  /// What a kernel of a fixed type computed, as the type that the node promised.
  Value as(Ref const& ref, DType dtype) { return view_value(ref.dtype == dtype ? ref : converted(ref, dtype)); }

  Value slice(Value const& value, std::int64_t index) {
    switch (value.kind) {
      case Value::Kind::constant: return constant_value(value.dtype, without_first(value.shape), value.number);
      case Value::Kind::stack: return view_value(value.parts[at(index)]);
      case Value::Kind::view: break;
    }
    return view_value(slice_ref(value.ref, index));
  }
  Value stack(DType dtype, Shape const& shape, List<Value> const& values) {
    Value result;
    result.kind = Value::Kind::stack;
    result.dtype = dtype;
    result.shape = shape;
    for (Value const& value : values) result.parts.push_back(ref(value));
    return result;
  }

  Value reshaped(Value const& value, Shape const& shape) {
    if (value.is_constant()) return constant_value(value.dtype, shape, value.number);
    if (value.is_stack() && shape.rank() > 0 && shape[0] == value.shape[0]) {
      Value result = value;
      result.shape = shape;
      for (Ref& part : result.parts) {
        part = contiguous(part);
        part = contiguous_ref(part.buffer, part.offset, part.dtype, without_first(shape));
      }
      return result;
    }
    Ref const source = contiguous(value);
    return view_value(contiguous_ref(source.buffer, source.offset, source.dtype, shape));
  }
  Value transposed(Value const& value, std::span<std::int64_t const> permutation, Shape const& shape) {
    if (value.is_constant()) return constant_value(value.dtype, shape, value.number);
    Ref const source = ref(value);
    Ref result = source;
    result.shape = shape;
    for (std::size_t axis = 0; axis < permutation.size(); ++axis)
      result.strides[axis] = source.strides[at(permutation[axis])];
    return view_value(result);
  }
  Value broadcast(Value const& value, std::span<std::int64_t const> axes, Shape const& shape) {
    if (value.is_constant()) return constant_value(value.dtype, shape, value.number);
    Ref const source = ref(value);
    Ref result = source;
    result.shape = shape;
    result.strides = {};
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (source.shape[static_cast<int>(axis)] != 1) result.strides[at(axes[axis])] = source.strides[axis];
    return view_value(result);
  }
  /// {starts..., limits..., strides...}
  Value sliced(Value const& value, std::span<std::int64_t const> bounds, Shape const& shape) {
    if (value.is_constant()) return constant_value(value.dtype, shape, value.number);
    Ref result = ref(value);
    std::size_t const rank = at(shape.rank());
    for (std::size_t axis = 0; axis < rank; ++axis) {
      if (shape.size() > 0)  // of nothing: what it refers to may be nothing too
        result.offset += bounds[axis] * result.strides[axis] * static_cast<std::int64_t>(size_of(result.dtype));
      result.strides[axis] *= bounds[2 * rank + axis];
    }
    result.shape = shape;
    return view_value(result);
  }

  /// One instruction over operands of one shape. Constants become instructions; a stack is mapped slice by slice.
  Value elementwise(Op op, double attribute, List<Value> operands, DType dtype, Shape const& shape) {
    auto same = [&](std::size_t i) { return operands[i].dtype == dtype; };
    auto changes_nothing = [&](std::size_t i) {
      return operands[i].is_constant() && operands[i].number == function_facts(op).neutral && same(1 - i);
    };
    if (function_facts(op).commutes && changes_nothing(0)) return operands[1];
    if (operands.size() == 2 && changes_nothing(1)) return operands[0];
    if (op == Op::convert && same(0)) return operands[0];
    if (op == Op::convert && operands[0].is_constant() && is_floating(dtype) && is_floating(operands[0].dtype) &&
        size_of(dtype) >= 4)
      return constant_value(dtype, shape, operands[0].number);
    bool stacked = false;
    for (Value const& operand : operands) stacked |= operand.is_stack();
    if (stacked) {
      List<Value> results;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        List<Value> slices;
        for (Value const& operand : operands) slices.push_back(slice(operand, i));
        results.push_back(elementwise(op, attribute, std::move(slices), dtype, without_first(shape)));
      }
      return stack(dtype, shape, results);
    }
    Ref const result = fresh(dtype, shape);
    Step& step = push(StepKind::elementwise);
    std::int16_t inputs = 0, registers[3] = {-1, -1, -1};
    for (Value const& operand : operands) inputs = static_cast<std::int16_t>(inputs + !operand.is_constant());
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].is_constant()) {
        registers[i] = static_cast<std::int16_t>(inputs + static_cast<std::int16_t>(step.instructions.size()));
        step.instructions.push_back({Op::constant, -1, -1, -1, operands[i].number});
      } else {
        registers[i] = static_cast<std::int16_t>(step.reads.size());
        step.reads.push_back(operands[i].ref);
      }
    }
    step.sources = {static_cast<std::int16_t>(inputs + static_cast<std::int16_t>(step.instructions.size()))};
    step.instructions.push_back({op, registers[0], registers[1], registers[2], attribute});
    step.writes = {result};
    List<DType> dtypes;
    for (Value const& operand : operands) dtypes.push_back(operand.dtype);
    step.registers = registers_of({dtype}, dtypes);
    return view_value(result);
  }
};

}  // namespace tutti::graph::lowering
