// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/elementwise.hpp> <tutti/kernel/cpu/elementwise.hpp>
// Covers: <tutti/kernel/cpu/box.hpp> <tutti/kernel/cpu/tile.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>

#include "kernel/support.hpp"

#include <limits>
#include <utility>

using namespace tutti;
using namespace tutti::test;
using kernel::ElementwiseInput;
using kernel::ElementwiseInstruction;
using kernel::ElementwiseOutput;
using Op = kernel::ElementwiseOp;

namespace {

double read(DType dtype, void const* data, std::int64_t index) {
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
void write(DType dtype, void* data, std::int64_t index, double value) {
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
Real exact(Op op, double value, Real a, Real b, Real c) {
  switch (op) {
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
    case Op::identity: return a;
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

constexpr DType types[] = {DType::float32,  DType::float32, DType::float32, DType::float32,
                           DType::bfloat16, DType::float16, DType::int32,   DType::boolean,
                           DType::uint8,    DType::int64,   DType::float64};
constexpr Op exact_ops[] = {Op::add,       Op::subtract,    Op::multiply, Op::divide,     Op::maximum,
                            Op::negate,    Op::square_root, Op::less,     Op::less_equal, Op::equal,
                            Op::not_equal, Op::select,      Op::constant, Op::identity};

Program random_program(Random& random, int round) {
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
  auto const type = [&] { return types[random.below(doubles ? 11 : 10)]; };
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
    int const arity = kernel::cpu::detail::arity(instruction.op);
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
bool same_values(DType dtype, std::vector<std::uint64_t> const& a, std::vector<std::uint64_t> const& b,
                 std::int64_t count) {
  for (std::int64_t index = 0; index < count; ++index) {
    double const x = read(dtype, a.data(), index), y = read(dtype, b.data(), index);
    if (!(std::isnan(x) && std::isnan(y)) && (x != y || std::signbit(x) != std::signbit(y))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("Random chains over random shapes, strides and element types are exact") {
  for (int round = 0; round < 400; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    Program program = random_program(random, round);
    CAPTURE(round, to_string(program.shape), program.inputs.size(), program.instructions.size());
    std::int64_t const count = program.shape.size();
    std::vector<std::vector<std::uint64_t>> expected(program.outputs.size(), std::vector<std::uint64_t>(length(count)));
    if (program.wide()) interpret<double>(program, expected);
    else interpret<float>(program, expected);
    for (exec::Isa isa : exec::all_isas) {
      if (!exec::available(isa)) continue;
      for (int threads : {1, 3}) {
        auto results = expected;
        for (std::size_t output = 0; output < results.size(); ++output) {
          std::fill(results[output].begin(), results[output].end(), 0x0101010101010101u);
          program.outputs[output].data = results[output].data();
        }
        kernel::cpu::elementwise(context_of(isa, threads), program.args());
        for (std::size_t output = 0; output < results.size(); ++output) {
          CAPTURE(std::string(exec::name(isa)), threads, output, std::string(name(program.outputs[output].dtype)));
          REQUIRE(same_values(program.outputs[output].dtype, results[output], expected[output], count));
        }
      }
    }
  }
}

TEST_CASE("Functions are within their tolerance of double precision") {
  double (*const gelu)(double) = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  struct Function {
    Op op;
    double value;
    double (*f)(double);
    double low, high;
  };
  std::vector<Function> const functions{
      {Op::exponential, 0, [](double x) { return std::exp(x); }, -20, 20},
      {Op::logarithm, 0, [](double x) { return std::log(x); }, 1e-3, 100},
      {Op::tanh, 0, [](double x) { return std::tanh(x); }, -10, 10},
      {Op::logistic, 0, [](double x) { return 1 / (1 + std::exp(-x)); }, -20, 20},
      {Op::sine, 0, [](double x) { return std::sin(x); }, -30, 30},
      {Op::cosine, 0, [](double x) { return std::cos(x); }, -30, 30},
      {Op::square_root, 0, [](double x) { return std::sqrt(x); }, 0, 100},
      {Op::reciprocal_square_root, 0, [](double x) { return 1 / std::sqrt(x); }, 1e-3, 100},
      {Op::gelu, 0, gelu, -8, 8},
      {Op::silu, 0, [](double x) { return x / (1 + std::exp(-x)); }, -20, 20},
      {Op::power, 2, [](double x) { return x * x; }, -10, 10},
      {Op::power, 3, [](double x) { return x * x * x; }, -10, 10},
      {Op::power, 1, [](double x) { return x; }, -10, 10},
      {Op::power, -1, [](double x) { return 1 / x; }, 0.1, 10},
      {Op::power, 0.5, [](double x) { return std::sqrt(x); }, 0, 10},
      {Op::power, -0.5, [](double x) { return 1 / std::sqrt(x); }, 0.1, 10},
      {Op::power, 2.7, [](double x) { return std::pow(x, 2.7); }, 0, 10},
  };
  for (Function const& function : functions)
    for (std::int64_t n : {1, 17, 1003, 5000}) {
      CAPTURE(static_cast<int>(function.op), function.value, n);
      Random random(static_cast<std::uint64_t>(n));
      double const middle = (function.low + function.high) / 2;
      auto const x = random.floats(n, static_cast<float>(function.high - middle), static_cast<float>(middle));
      std::vector<double> expected;
      for (float value : x) expected.push_back(function.f(double{value}));
      ElementwiseInput const input{x.data(), DType::float32, {1}};
      ElementwiseInstruction const instruction{function.op, 0, -1, -1, function.value};
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(n));
            ElementwiseOutput const output{1, out.data(), DType::float32};
            kernel::cpu::elementwise(context, {{n}, {&input, 1}, {&instruction, 1}, {&output, 1}});
            return out;
          },
          [&](std::vector<float> const& out) {
            for (std::size_t i = 0; i < out.size(); ++i) {
              CAPTURE(x[i], out[i], expected[i]);
              if (std::abs(out[i] - expected[i]) > 1e-7) REQUIRE(ulps(out[i], static_cast<float>(expected[i])) <= 5);
            }
          });
      std::vector<double> wide(length(n));
      ElementwiseOutput const output{1, wide.data(), DType::float64};
      kernel::cpu::elementwise(context_of(exec::best_isa(), 2), {{n}, {&input, 1}, {&instruction, 1}, {&output, 1}});
      for (std::size_t i = 0; i < wide.size(); ++i)
        REQUIRE(close(wide[i], expected[i], 1e-13, std::max(1e-3, std::abs(expected[i]))));
    }
}

TEST_CASE("The gradients of GELU and SiLU are the slopes of GELU and SiLU") {
  Random random(8);
  auto const x = random.floats(999, 6), g = random.floats(999, 2);
  double (*const gelu)(double) = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  double (*const silu)(double) = [](double v) { return v / (1 + std::exp(-v)); };
  for (auto const& [op, f] : {std::pair{Op::gelu_gradient, gelu}, std::pair{Op::silu_gradient, silu}}) {
    CAPTURE(static_cast<int>(op));
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(g[i] * (f(x[i] + 1e-5) - f(x[i] - 1e-5)) / 2e-5);
    ElementwiseInput const inputs[] = {{g.data(), DType::float32, {1}}, {x.data(), DType::float32, {1}}};
    ElementwiseInstruction const instruction{op, 0, 1};
    on_every_context(
        [&](exec::Context& context) {
          std::vector<float> out(x.size());
          ElementwiseOutput const output{2, out.data(), DType::float32};
          kernel::cpu::elementwise(context, {{999}, inputs, {&instruction, 1}, {&output, 1}});
          return out;
        },
        [&](std::vector<float> const& out) { require_close(out.data(), expected, 1e-6, 2, "slope"); });
    std::vector<double> wide(x.size());
    ElementwiseOutput const output{2, wide.data(), DType::float64};
    kernel::cpu::elementwise(context_of(exec::best_isa(), 1), {{999}, inputs, {&instruction, 1}, {&output, 1}});
    for (std::size_t i = 0; i < wide.size(); ++i) REQUIRE(close(wide[i], expected[i], 1e-8, 2));
  }
}

TEST_CASE("Outputs may stand where contiguous inputs stood, even exchanged") {
  std::int64_t const n = 5003;
  Random random(4);
  auto const a = random.floats(n), b = random.floats(n);
  on_every_context(
      [&](exec::Context& context) {
        std::vector<float> x = a;
        x.insert(x.end(), b.begin(), b.end());
        ElementwiseInput const inputs[] = {{x.data(), DType::float32, {1}}, {x.data() + n, DType::float32, {1}}};
        ElementwiseInstruction const instructions[] = {{Op::add, 0, 1}, {Op::subtract, 0, 1}, {Op::multiply, 2, 0}};
        ElementwiseOutput const outputs[] = {{4, x.data(), DType::float32}, {3, x.data() + n, DType::float32}};
        kernel::cpu::elementwise(context, {{n}, inputs, instructions, outputs});
        ElementwiseOutput const exchanged[] = {{1, x.data(), DType::float32}, {0, x.data() + n, DType::float32}};
        kernel::cpu::elementwise(context, {{n}, inputs, {}, exchanged});
        return x;
      },
      [&](std::vector<float> const& x) {
        for (std::size_t i = 0; i < a.size(); ++i) {
          REQUIRE(x[i] == a[i] - b[i]);
          REQUIRE(x[i + a.size()] == (a[i] + b[i]) * a[i]);
        }
      });
}

TEST_CASE("Integers are stored toward zero, saturate, and take 0 for NaN") {
  std::vector<float> const x{1.9f, -1.9f, 3e9f, -3e9f, std::nanf(""), 300, -7, 0};
  std::vector<std::int32_t> wide(8);
  std::vector<std::uint8_t> narrow(8);
  ElementwiseInput const input{x.data(), DType::float32, {1}};
  ElementwiseOutput const outputs[] = {{0, wide.data(), DType::int32}, {0, narrow.data(), DType::uint8}};
  kernel::cpu::elementwise(context_of(exec::best_isa(), 1), {{8}, {&input, 1}, {}, outputs});
  REQUIRE(wide == std::vector<std::int32_t>{1, -1, INT32_MAX, INT32_MIN, 0, 300, -7, 0});
  REQUIRE(narrow == std::vector<std::uint8_t>{1, 0, 255, 0, 0, 255, 0, 0});
}

TEST_CASE("Chains beyond the limits or with wrong registers are refused with a sentence") {
  auto& context = context_of(exec::best_isa(), 1);
  float value = 0;
  std::vector<ElementwiseInput> const inputs(17, {&value, DType::float32, {}});
  std::vector<ElementwiseInstruction> const instructions(65, {Op::constant});
  std::vector<ElementwiseOutput> const outputs(9, {0, &value, DType::float32});
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, inputs, {}, {}}), ErrorKind::internal,
                "17 inputs, 0 instructions, 0 outputs: a chain has at most 16, 64 and 8. Split it");
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, {}, instructions, {}}), ErrorKind::internal, "65 instructions");
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, {inputs.data(), 1}, {}, outputs}), ErrorKind::internal,
                "9 outputs");
  ElementwiseInstruction const late{Op::add, 0, 1}, missing{Op::add, 0};
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, {inputs.data(), 1}, {&late, 1}, {}}), ErrorKind::internal,
                "instruction 0 reads register 1, but there are 1 before it");
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, {inputs.data(), 1}, {&missing, 1}, {}}), ErrorKind::internal,
                "reads register -1");
  ElementwiseOutput const nowhere{1, &value, DType::float32};
  REQUIRE_ERROR(kernel::cpu::elementwise(context, {{1}, {inputs.data(), 1}, {}, {&nowhere, 1}}), ErrorKind::internal,
                "an output reads register 1, which does not exist");
}
