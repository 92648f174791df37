// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/graph/check.hpp>
#include <tutti/graph/compile.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/nn/gpt2.hpp>

#include <cmath>
#include <vector>

using namespace tutti;
using namespace tutti::nn;
using Values = std::vector<double>;

namespace {

Values numbers(std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(3 * i + 1));
  return values;
}

constexpr std::int64_t batch = 2, tokens = 5, heads = 2, size = 3, channels = heads * size;

/// Softmax attention with masked probabilities, one loop for each sum.
Values naive_attention(Values const& qkv, double p, std::int64_t first_row) {
  Values out(static_cast<std::size_t>(batch * tokens * channels));
  auto const at = [&](std::int64_t b, std::int64_t t, std::int64_t part, std::int64_t h, std::int64_t i) {
    return qkv[static_cast<std::size_t>((b * tokens + t) * 3 * channels + part * channels + h * size + i)];
  };
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < tokens; ++t) {
        Values weight;
        double sum = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < size; ++i) score += at(b, t, 0, h, i) * at(b, s, 1, h, i);
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += weight.back();
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          auto const position = static_cast<std::uint64_t>((((first_row + b) * heads + h) * tokens + t) * tokens + s);
          CounterRandom const words{42, 7 | std::uint64_t{9} << 32};
          bool const kept = words.bits(position) >= p * 4294967296.0;
          for (std::int64_t i = 0; kept && i < size; ++i)
            out[static_cast<std::size_t>((b * tokens + t) * channels + h * size + i)] +=
                weight[static_cast<std::size_t>(s)] / sum / (1 - p) * at(b, s, 2, h, i);
        }
      }
  return out;
}

}  // namespace

TEST_CASE("attention drops probabilities by their place in the batch of all ranks") {
  for (double const p : {0.0, 0.25})
    for (std::int64_t const first_row : {0, 6}) {
      graph::Builder b;
      Var const qkv = b.input("qkv", DType::float32, {batch, tokens, 3 * channels});
      StepRandom const random(qkv);
      Var const stream = graph::constant(b, 9, {}, DType::int64);
      b.output("y", attention(qkv, heads, p, random, stream));
      graph::Graph const graph = graph::canonical(b.graph());
      graph::Interpreter run(graph, 1);
      Values const x = numbers(batch * tokens * 3 * channels);
      run.set("qkv", x);
      if (p > 0) {
        run.set(StepRandom::seed_name, {42});
        run.set(StepRandom::step_name, {7});
        run.set(StepRandom::row_name, {static_cast<double>(first_row)});
      } else {
        for (auto name : {StepRandom::seed_name, StepRandom::step_name, StepRandom::row_name}) run.set(name, {1});
      }
      run.run();
      Values const expected = naive_attention(x, p, first_row);
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(run.output("y")[i] == Approx(expected[i]).epsilon(1e-9).margin(1e-12));
    }
  graph::Builder b;
  Var const qkv = b.input("qkv", DType::float32, {batch, tokens, 7});
  Var const stream = graph::constant(b, 9, {}, DType::int64);
  REQUIRE_ERROR(attention(qkv, 2, 0.5, StepRandom(qkv), stream), ErrorKind::shape, "multiple of heads");
}

TEST_CASE("gradients of a GPT-2 with dropout agree with central differences, and every layer drops others") {
  Gpt2Config const config{.layers = 2, .heads = 2, .channels = 8, .vocabulary = 7, .padded_vocabulary = 8,
                          .max_tokens = 4, .dropout = 0.25, .attention_dropout = 0.25};
  graph::Graph const model = graph::trace(make_parameters(config), [](graph::Builder& builder, Gpt2 const& p) {
    Var const in = builder.input("tokens", DType::int32, {2, 4});
    Var const targets = builder.input("targets", DType::int32, {2, 4});
    builder.output("loss", Gpt2Loss{}(p, in, targets));
  });
  CHECK(graph::check_gradients(model, {.integers = 7}).worst < 1e-6);
  Gpt2Config wrong = config;
  wrong.dropout = 1;
  REQUIRE_ERROR(make_parameters(wrong), ErrorKind::configuration, "dropout 1.000000 must be at least 0 and below 1");
}
