// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Random elementwise chains, and an interpreter of those operations that IEEE arithmetic defines exactly.

#include <tutti/graph/op/table.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tutti::test {

using kernel::ElementwiseInput;
using kernel::ElementwiseInstruction;
using kernel::ElementwiseOutput;
using graph::ElementwiseFunctions;
using graph::Op;

inline double read(DType dtype, void const* data, std::int64_t index) {
  switch (dtype) {
    case DType::boolean: return static_cast<bool const*>(data)[index];
    case DType::int32: return static_cast<std::int32_t const*>(data)[index];
    case DType::uint8: return static_cast<std::uint8_t const*>(data)[index];
    case DType::int64: return static_cast<double>(static_cast<std::int64_t const*>(data)[index]);
    case DType::bfloat16: return static_cast<bfloat16 const*>(data)[index];
    case DType::float16: return static_cast<float16 const*>(data)[index];
    case DType::float64: return static_cast<double const*>(data)[index];
    default: return static_cast<float const*>(data)[index];
  }
}
template <class Integer>
Integer whole(double value) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(std::numeric_limits<Integer>::min())) return std::numeric_limits<Integer>::min();
  if (value >= static_cast<double>(std::numeric_limits<Integer>::max())) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(value);
}
inline void write(DType dtype, void* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::boolean: static_cast<bool*>(data)[index] = value != 0; break;
    case DType::int32: static_cast<std::int32_t*>(data)[index] = whole<std::int32_t>(value); break;
    case DType::uint8: static_cast<std::uint8_t*>(data)[index] = whole<std::uint8_t>(value); break;
    case DType::int64: static_cast<std::int64_t*>(data)[index] = whole<std::int64_t>(value); break;
    case DType::bfloat16: static_cast<bfloat16*>(data)[index] = bfloat16(static_cast<float>(value)); break;
    case DType::float16: static_cast<float16*>(data)[index] = float16(static_cast<float>(value)); break;
    case DType::float64: static_cast<double*>(data)[index] = value; break;
    default: static_cast<float*>(data)[index] = static_cast<float>(value); break;
  }
}

/// One instruction that IEEE arithmetic defines exactly, in the arithmetic of Real.
template <class Real>
Real exact(kernel::ElementwiseOp op, double value, Real a, Real b, Real c) {
  switch (static_cast<Op>(op.number)) {
    case Op::constant: return static_cast<Real>(value);
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return a * b;
    case Op::divide: return a / b;
    case Op::maximum: return std::isnan(a) || std::isnan(b) ? std::numeric_limits<Real>::quiet_NaN() : a > b ? a : b;
    case Op::negate: return -a;
    case Op::square_root: return std::sqrt(a);
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::equal: return a == b;
    case Op::not_equal: return a != b;
    case Op::select: return a != 0 ? b : c;
    case Op::convert: return a;
    default: break;
  }
  FAIL("not an exact instruction");
  return 0;
}

struct Program {
  Shape shape;
  std::vector<std::vector<std::uint64_t>> memory;  ///< of the inputs, then of the outputs
  std::vector<ElementwiseInput> inputs;
  std::vector<ElementwiseInstruction> instructions;
  std::vector<ElementwiseOutput> outputs;

  kernel::Elementwise args() const { return {shape, inputs, instructions, outputs}; }
  bool wide() const {
    for (auto const& input : inputs)
      if (input.dtype == DType::float64) return true;
    for (auto const& output : outputs)
      if (output.dtype == DType::float64) return true;
    return false;
  }
};

template <class Real>
void interpret(Program const& program, std::vector<std::vector<std::uint64_t>>& results) {
  std::int64_t index[Shape::max_rank] = {};
  int const rank = program.shape.rank();
  for (std::int64_t flat = 0; flat < program.shape.size(); ++flat) {
    std::vector<Real> registers;
    for (auto const& input : program.inputs) {
      std::int64_t offset = 0;
      for (int axis = 0; axis < rank; ++axis) offset += index[axis] * input.strides[length(axis)];
      registers.push_back(static_cast<Real>(read(input.dtype, input.data, offset)));
    }
    auto const at = [&](std::int16_t number) { return number < 0 ? Real{} : registers[length(number)]; };
    for (auto const& instruction : program.instructions)
      registers.push_back(
          exact<Real>(instruction.op, instruction.value, at(instruction.a), at(instruction.b), at(instruction.c)));
    for (std::size_t output = 0; output < program.outputs.size(); ++output)
      write(program.outputs[output].dtype, results[output].data(), flat,
            static_cast<double>(at(program.outputs[output].source)));
    for (int axis = rank - 1; axis >= 0 && ++index[axis] == program.shape[axis]; --axis) index[axis] = 0;
  }
}

inline constexpr DType program_types[] = {DType::float32,  DType::float32, DType::float32, DType::float32,
                           DType::bfloat16, DType::float16, DType::int32,   DType::boolean,
                           DType::uint8,    DType::int64,   DType::float64};
inline constexpr Op exact_ops[] = {Op::add,       Op::subtract,    Op::multiply, Op::divide,     Op::maximum,
                            Op::negate,    Op::square_root, Op::less,     Op::less_equal, Op::equal,
                            Op::not_equal, Op::select,      Op::constant, Op::convert};

inline Program random_program(Random& random, int round) {
  Program program;
  int const rank = static_cast<int>(random.below(5));
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < rank; ++axis) {
    std::int64_t const largest = rank == 1 ? 6000 : rank == 2 ? 150 : 12;
    extents.push_back(random.below(40) == 0 ? 0 : random.below(6) == 0 ? 1 : 1 + random.below(largest));
  }
  program.shape = Shape(std::span<std::int64_t const>(extents));
  std::int64_t const count = program.shape.size();
  bool const doubles = round % 5 == 0;
  auto const type = [&] { return program_types[random.below(doubles ? 11 : 10)]; };
  int const inputs = static_cast<int>(random.below(round % 9 == 0 ? 17 : 4));
  for (int input = 0; input < inputs; ++input) {
    ElementwiseInput from;
    from.dtype = type();
    from.strides = program.shape.row_major_strides();
    for (int axis = 0; axis < rank; ++axis)
      if (random.below(4) == 0) from.strides[length(axis)] = 0;
    if (rank >= 2 && random.below(4) == 0) {  // a transposed view
      from.strides[length(rank - 1)] = program.shape[rank - 2];
      from.strides[length(rank - 2)] = 1;
    }
    if (random.below(6) == 0) from.strides = {};
    auto& memory = program.memory.emplace_back(length(count + 1));
    for (std::int64_t index = 0; index <= count; ++index) {
      double value = static_cast<double>(random.below(9)) - 4;
      if (is_floating(from.dtype) && random.below(2) == 0) value = 8 * double{random.uniform()};
      if (is_floating(from.dtype) && random.below(50) == 0) value = std::numeric_limits<double>::quiet_NaN();
      write(from.dtype, memory.data(), index, value);
    }
    from.data = memory.data();
    program.inputs.push_back(from);
  }
  int const instructions = static_cast<int>(random.below(round % 9 == 0 ? 65 : 9));
  for (int index = 0; index < instructions; ++index) {
    int const before = inputs + index;
    ElementwiseInstruction instruction;
    instruction.op = before == 0 ? Op::constant : exact_ops[random.below(14)];
    auto const pick = [&] { return static_cast<std::int16_t>(random.below(before)); };
    int const arity = kernel::arity<ElementwiseFunctions>(instruction.op);
    if (arity > 0) instruction.a = pick();
    if (arity > 1) instruction.b = pick();
    if (arity > 2) instruction.c = pick();
    instruction.value = random.uniform();
    program.instructions.push_back(instruction);
  }
  if (inputs + instructions > 0)
    for (std::int64_t output = 1 + random.below(8); output > 0; --output)
      program.outputs.push_back({static_cast<std::int16_t>(random.below(inputs + instructions)), nullptr, type()});
  return program;
}

/// NaN bits are not compared: which payload survives is nobody's promise.
inline bool same_values(DType dtype, std::vector<std::uint64_t> const& a, std::vector<std::uint64_t> const& b,
                 std::int64_t count) {
  for (std::int64_t index = 0; index < count; ++index) {
    double const x = read(dtype, a.data(), index), y = read(dtype, b.data(), index);
    if (!(std::isnan(x) && std::isnan(y)) && (x != y || std::signbit(x) != std::signbit(y))) return false;
  }
  return true;
}

}  // namespace tutti::test
