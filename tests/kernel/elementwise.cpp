// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/elementwise.hpp> <tutti/kernel/elementwise_functions.hpp> <tutti/kernel/cpu/elementwise.hpp>
// Covers: <tutti/kernel/box.hpp> <tutti/kernel/cpu/tile.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>

#include "kernel/elementwise_programs.hpp"
#include "kernel/support.hpp"

#include <limits>
#include <utility>

using namespace tutti;
using namespace tutti::test;

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
        kernel::cpu::elementwise<ElementwiseFunctions>(context_of(isa, threads), program.args());
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
      {Op::abs, 0, [](double x) { return std::abs(x); }, -8, 8},
      {Op::floor, 0, [](double x) { return std::floor(x); }, -8, 8},
      {Op::ceil, 0, [](double x) { return std::ceil(x); }, -8, 8},
      {Op::relu, 0, [](double x) { return x > 0 ? x : 0; }, -8, 8},
      {Op::erf, 0, [](double x) { return std::erf(x); }, -5, 5},
      {Op::exact_gelu, 0, [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }, -12, 12},
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
            kernel::cpu::elementwise<ElementwiseFunctions>(context,
                                                           {{n}, {&input, 1}, {&instruction, 1}, {&output, 1}});
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
      kernel::cpu::elementwise<ElementwiseFunctions>(context_of(exec::best_isa(), 2),
                                                     {{n}, {&input, 1}, {&instruction, 1}, {&output, 1}});
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
          kernel::cpu::elementwise<ElementwiseFunctions>(context, {{999}, inputs, {&instruction, 1}, {&output, 1}});
          return out;
        },
        [&](std::vector<float> const& out) { require_close(out.data(), expected, 1e-6, 2, "slope"); });
    std::vector<double> wide(x.size());
    ElementwiseOutput const output{2, wide.data(), DType::float64};
    kernel::cpu::elementwise<ElementwiseFunctions>(context_of(exec::best_isa(), 1),
                                                   {{999}, inputs, {&instruction, 1}, {&output, 1}});
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
        kernel::cpu::elementwise<ElementwiseFunctions>(context, {{n}, inputs, instructions, outputs});
        ElementwiseOutput const exchanged[] = {{1, x.data(), DType::float32}, {0, x.data() + n, DType::float32}};
        kernel::cpu::elementwise<ElementwiseFunctions>(context, {{n}, inputs, {}, exchanged});
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
  kernel::cpu::elementwise<ElementwiseFunctions>(context_of(exec::best_isa(), 1), {{8}, {&input, 1}, {}, outputs});
  REQUIRE(wide == std::vector<std::int32_t>{1, -1, INT32_MAX, INT32_MIN, 0, 300, -7, 0});
  REQUIRE(narrow == std::vector<std::uint8_t>{1, 0, 255, 0, 0, 255, 0, 0});
}

TEST_CASE("Chains beyond the limits or with wrong registers are refused with a sentence") {
  auto& context = context_of(exec::best_isa(), 1);
  float value = 0;
  std::vector<ElementwiseInput> const inputs(17, {&value, DType::float32, {}});
  std::vector<ElementwiseInstruction> const instructions(65, {Op::constant});
  std::vector<ElementwiseOutput> const outputs(9, {0, &value, DType::float32});
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, inputs, {}, {}}), ErrorKind::internal,
                "17 inputs, 0 instructions, 0 outputs: a chain has at most 16, 64 and 8. Split it");
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, {}, instructions, {}}),
                ErrorKind::internal, "65 instructions");
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, {inputs.data(), 1}, {}, outputs}),
                ErrorKind::internal, "9 outputs");
  ElementwiseInstruction const late{Op::add, 0, 1}, missing{Op::add, 0};
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, {inputs.data(), 1}, {&late, 1}, {}}),
                ErrorKind::internal, "instruction 0 reads register 1, but there are 1 before it");
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, {inputs.data(), 1}, {&missing, 1}, {}}),
                ErrorKind::internal, "reads register -1");
  ElementwiseOutput const nowhere{1, &value, DType::float32};
  REQUIRE_ERROR(kernel::cpu::elementwise<ElementwiseFunctions>(context, {{1}, {inputs.data(), 1}, {}, {&nowhere, 1}}),
                ErrorKind::internal, "an output reads register 1, which does not exist");
}
