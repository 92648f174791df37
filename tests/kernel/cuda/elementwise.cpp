// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/elementwise.hpp> <tutti/kernel/cuda/chain.hpp> <tutti/graph/cuda/chains.hpp>
// Covers: <tutti/kernel/activation.hpp>
#include <tutti/graph/cuda/chains.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/elementwise_programs.hpp"

#include <utility>

using namespace tutti;
using namespace tutti::test;

namespace {

/// The program with its memory on the device, run; what its outputs hold.
std::vector<std::vector<std::uint64_t>> run(Program program, std::int64_t count) {
  std::vector<OnDevice<std::uint64_t>> memory;
  for (std::size_t input = 0; input < program.inputs.size(); ++input) {
    memory.emplace_back(program.memory[input]);
    program.inputs[input].data = memory.back().data();
  }
  std::vector<OnDevice<std::uint64_t>> outputs;
  for (ElementwiseOutput& output : program.outputs) {
    outputs.emplace_back(std::vector<std::uint64_t>(length(count), 0x0101010101010101u));
    output.data = outputs.back().data();
  }
  graph::cuda::elementwise(cuda_context(), program.args());
  std::vector<std::vector<std::uint64_t>> results;
  for (auto const& output : outputs) results.push_back(output.read());
  return results;
}

std::vector<float> apply(Op op, double value, std::vector<float> const& a, std::vector<float> const& b = {}) {
  std::int64_t const n = static_cast<std::int64_t>(a.size());
  OnDevice const on_a(a), on_b(b);
  OnDevice<float> const out(a.size());
  std::vector<ElementwiseInput> inputs{{on_a.data(), DType::float32, {1}}};
  if (!b.empty()) inputs.push_back({on_b.data(), DType::float32, {1}});
  ElementwiseInstruction const instruction{op, 0, static_cast<std::int16_t>(b.empty() ? -1 : 1), -1, value};
  ElementwiseOutput const output{static_cast<std::int16_t>(inputs.size()), out.data(), DType::float32};
  graph::cuda::elementwise(cuda_context(), {{n}, inputs, {&instruction, 1}, {&output, 1}});
  return out.read();
}

double exact_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double exact_silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("Random chains on a GPU over random shapes, strides and element types are exact") {
  for (int round = 0; round < 150; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    Program const program = random_program(random, round);
    CAPTURE(round, to_string(program.shape), program.inputs.size(), program.instructions.size());
    std::int64_t const count = program.shape.size();
    std::vector<std::vector<std::uint64_t>> expected(program.outputs.size(), std::vector<std::uint64_t>(length(count)));
    if (program.wide()) interpret<double>(program, expected);
    else interpret<float>(program, expected);
    auto const results = run(program, count);
    for (std::size_t output = 0; output < results.size(); ++output) {
      CAPTURE(output, std::string(name(program.outputs[output].dtype)));
      REQUIRE(same_values(program.outputs[output].dtype, results[output], expected[output], count));
    }
  }
}

TEST_CASE("Functions on a GPU are within their tolerance of double precision, compiled and interpreted") {
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
      {Op::gelu, 0, exact_gelu, -8, 8},
      {Op::silu, 0, exact_silu, -20, 20},
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
      {Op::power, 2.7, [](double x) { return std::pow(x, 2.7); }, 0, 10},
  };
  for (Function const& function : functions)
    for (std::int64_t const n : {1, 3, 17, 1003}) {
      CAPTURE(static_cast<int>(function.op), function.value, n);
      Random random(static_cast<std::uint64_t>(n));
      double const middle = (function.low + function.high) / 2;
      auto const x = random.floats(n, static_cast<float>(function.high - middle), static_cast<float>(middle));
      auto const out = apply(function.op, function.value, x);
      for (std::size_t i = 0; i < out.size(); ++i) {
        double const exact = function.f(double{x[i]});
        CAPTURE(x[i], out[i], exact);
        if (std::abs(double{out[i]} - exact) > 1e-7) REQUIRE(ulps(out[i], static_cast<float>(exact)) <= 5);
      }
      OnDevice const on_x(x);
      OnDevice<double> const wide(x.size());
      ElementwiseInput const input{on_x.data(), DType::float32, {1}};
      ElementwiseInstruction const instruction{function.op, 0, -1, -1, function.value};
      ElementwiseOutput const output{1, wide.data(), DType::float64};
      graph::cuda::elementwise(cuda_context(), {{n}, {&input, 1}, {&instruction, 1}, {&output, 1}});
      auto const values = wide.read();
      for (std::size_t i = 0; i < values.size(); ++i) {
        double const exact = function.f(double{x[i]});
        REQUIRE(close(values[i], exact, 1e-13, std::max(0.1, std::abs(exact))));  // 1 + tanh cancels in the oracle
      }
    }
}

TEST_CASE("The gradients of GELU and SiLU on a GPU are the slopes of GELU and SiLU, far out too") {
  Random random(8);
  auto x = random.floats(999, 6), g = random.floats(999, 2);
  for (float const far : {-1e20f, -100.0f, -20.0f, 20.0f, 100.0f, 1e20f}) {
    x.push_back(far);
    g.push_back(1);
  }
  using Slope = std::pair<Op, double (*)(double)>;
  for (auto const& [op, f] : {Slope{Op::gelu_gradient, exact_gelu}, Slope{Op::silu_gradient, exact_silu}}) {
    CAPTURE(static_cast<int>(op));
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i)
      expected.push_back(std::abs(x[i]) > 10 ? (x[i] > 0 ? g[i] : 0)
                                             : g[i] * (f(x[i] + 1e-5) - f(x[i] - 1e-5)) / 2e-5);
    require_close_on_device(apply(op, 0, g, x), expected, 1e-6, 2, "slope");
  }
}

TEST_CASE("Chains that a kernel is compiled for are found by their structure, whatever types and constants they have") {
  using graph::cuda::AddGeluChain;
  using graph::cuda::ScaleChain;
  using kernel::cuda::detail::is_chain;
  std::int64_t const n = 1003;
  Random random(2);
  auto const a = as_stored<bfloat16>(random.floats(n)), b = random.floats(n);
  OnDevice const on_a(rounded<bfloat16>(a));
  OnDevice const on_b(b);
  OnDevice<bfloat16> const sum(length(n)), activated(length(n));
  ElementwiseInput const inputs[] = {{on_a.data(), DType::bfloat16, {1}}, {on_b.data(), DType::float32, {1}}};
  ElementwiseOutput const outputs[] = {{2, sum.data(), DType::bfloat16}, {3, activated.data(), DType::bfloat16}};
  kernel::Elementwise const fused{{n}, inputs, AddGeluChain::steps, outputs};
  REQUIRE(is_chain<AddGeluChain>(fused));
  REQUIRE_FALSE(is_chain<graph::cuda::SingleChain<Op::add>>(fused));
  graph::cuda::elementwise(cuda_context(), fused);
  auto const sums = sum.read(), activations = activated.read();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    REQUIRE(sums[i].bits == bfloat16(a[i] + b[i]).bits);
    REQUIRE(close(float(activations[i]), exact_gelu(double{a[i]} + double{b[i]}), tolerance<bfloat16>(), 1));
  }
  OnDevice<float> const scaled(length(n));
  ElementwiseInstruction const scale[] = {{Op::constant, -1, -1, -1, 0.125}, {Op::multiply, 0, 1}};
  ElementwiseOutput const to{2, scaled.data(), DType::float32};
  kernel::Elementwise const product{{n}, {inputs, 1}, scale, {&to, 1}};
  REQUIRE(is_chain<ScaleChain>(product));
  graph::cuda::elementwise(cuda_context(), product);
  auto const known = scaled.read();
  graph::cuda::elementwise(cuda_context(), product, kernel::cuda::ChainTable<>{});  // interpreted
  REQUIRE(bits_equal(scaled.read(), known));
  for (std::size_t i = 0; i < known.size(); ++i) REQUIRE(known[i] == a[i] * 0.125f);
}

TEST_CASE("On a GPU outputs may stand where contiguous inputs stood, even exchanged") {
  std::int64_t const n = 1003;
  Random random(4);
  auto const a = random.floats(n), b = random.floats(n);
  OnDevice const x(a), y(b);
  ElementwiseInput const inputs[] = {{x.data(), DType::float32, {1}}, {y.data(), DType::float32, {1}}};
  ElementwiseInstruction const instructions[] = {{Op::add, 0, 1}, {Op::subtract, 0, 1}, {Op::multiply, 2, 0}};
  ElementwiseOutput const outputs[] = {{4, x.data(), DType::float32}, {3, y.data(), DType::float32}};
  graph::cuda::elementwise(cuda_context(), {{n}, inputs, instructions, outputs});
  ElementwiseOutput const exchanged[] = {{1, x.data(), DType::float32}, {0, y.data(), DType::float32}};
  graph::cuda::elementwise(cuda_context(), {{n}, inputs, {}, exchanged});
  auto const first = x.read(), second = y.read();
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(first[i] == a[i] - b[i]);
    REQUIRE(second[i] == (a[i] + b[i]) * a[i]);
  }
}

TEST_CASE("On a GPU integers are stored toward zero, saturate, and take 0 for NaN") {
  OnDevice const x(std::vector<float>{1.9f, -1.9f, 3e9f, -3e9f, std::nanf(""), 300, -7, 0});
  OnDevice<std::int32_t> const wide(8);
  OnDevice<std::uint8_t> const narrow(8);
  ElementwiseInput const input{x.data(), DType::float32, {1}};
  ElementwiseOutput const outputs[] = {{0, wide.data(), DType::int32}, {0, narrow.data(), DType::uint8}};
  graph::cuda::elementwise(cuda_context(), {{8}, {&input, 1}, {}, outputs});
  REQUIRE(wide.read() == std::vector<std::int32_t>{1, -1, INT32_MAX, INT32_MIN, 0, 300, -7, 0});
  REQUIRE(narrow.read() == std::vector<std::uint8_t>{1, 0, 255, 0, 0, 255, 0, 0});
}

TEST_CASE("Chains beyond the limits are refused on a GPU before anything runs") {
  std::vector<ElementwiseInstruction> const instructions(65, {Op::constant});
  REQUIRE_ERROR(graph::cuda::elementwise(cuda_context(), {{1}, {}, instructions, {}}), ErrorKind::internal,
                "0 inputs, 65 instructions, 0 outputs: a chain has at most 16, 64 and 8. Split it");
}
