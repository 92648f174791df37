// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/embedding.hpp>

#include "kernel/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

struct Case {
  std::int64_t batch, tokens, channels, vocabulary;
};
std::vector<Case> const cases{{0, 4, 8, 5}, {2, 0, 3, 5}, {1, 1, 1, 1},   {2, 3, 7, 4},  {3, 5, 16, 2},
                              {1, 9, 17, 3}, {2, 8, 33, 50}, {4, 64, 48, 11}, {2, 100, 65, 3}, {3, 4, 768, 300}};

std::vector<std::int32_t> random_tokens(Random& random, Case const& shape) {
  std::vector<std::int32_t> tokens(length(shape.batch * shape.tokens));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(shape.vocabulary));
  return tokens;
}

}  // namespace

TEST_CASE("Embedding is the exact sum of token and position rows") {
  for (Case const& shape : cases)
    for (bool with_positions : {true, false}) {
      auto const [batch, T, C, vocabulary] = shape;
      CAPTURE(batch, T, C, vocabulary, with_positions);
      Random random(static_cast<std::uint64_t>(C + T));
      auto const tokens = random_tokens(random, shape);
      auto const table = random.floats(vocabulary * C), positions = random.floats((T + 2) * C);
      std::vector<float> expected;
      for (std::int64_t index = 0; index < batch * T; ++index)
        for (std::int64_t c = 0; c < C; ++c)
          expected.push_back(table[length(tokens[length(index)] * C + c)] +
                             (with_positions ? positions[length(index % T * C + c)] : 0.0f));
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(batch * T * C));
            kernel::cpu::embedding(context, {.batch = batch,
                                             .tokens_per_row = T,
                                             .channels = C,
                                             .vocabulary = vocabulary,
                                             .tokens = tokens.data(),
                                             .table = table.data(),
                                             .positions = with_positions ? positions.data() : nullptr,
                                             .out = out.data()});
            return out;
          },
          [&](std::vector<float> const& out) { REQUIRE(same_bits(out, expected)); });
    }
}

TEST_CASE("The gradient of embedding sums equal tokens in the order of the text, bit for bit") {
  for (Case const& shape : cases)
    for (bool zero_table : {true, false}) {
      auto const [batch, T, C, vocabulary] = shape;
      CAPTURE(batch, T, C, vocabulary, zero_table);
      Random random(static_cast<std::uint64_t>(C * 3 + T));
      auto const tokens = random_tokens(random, shape);
      auto const dout = random.floats(batch * T * C), before = random.floats(vocabulary * C);
      std::int64_t const position_rows = T + 3;
      std::vector<float> expected = before;
      if (zero_table) std::fill(expected.begin(), expected.end(), 0.0f);
      expected.resize(length((vocabulary + position_rows) * C), 0.0f);
      for (std::int64_t index = 0; index < batch * T; ++index)
        for (std::int64_t c = 0; c < C; ++c) {
          expected[length(tokens[length(index)] * C + c)] += dout[length(index * C + c)];
          expected[length((vocabulary + index % T) * C + c)] += dout[length(index * C + c)];
        }
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out = before;
            out.resize(expected.size(), 9.0f);
            kernel::cpu::embedding_gradient(context, {.batch = batch,
                                                      .tokens_per_row = T,
                                                      .channels = C,
                                                      .vocabulary = vocabulary,
                                                      .position_rows = position_rows,
                                                      .tokens = tokens.data(),
                                                      .dout = dout.data(),
                                                      .dtable = out.data(),
                                                      .dpositions = out.data() + vocabulary * C,
                                                      .zero_table = zero_table});
            return out;
          },
          [&](std::vector<float> const& out) { REQUIRE(same_bits(out, expected)); });
    }
}

TEST_CASE("Gradients of table and positions can be left out") {
  std::vector<std::int32_t> const tokens{1, 0};
  std::vector<float> const dout{1, 2, 3, 4};
  std::vector<float> table(4), positions(4);
  auto& context = context_of(exec::best_isa(), 2);
  kernel::EmbeddingGradient args{.batch = 1, .tokens_per_row = 2, .channels = 2, .vocabulary = 2, .position_rows = 2,
                                 .tokens = tokens.data(), .dout = dout.data()};
  kernel::cpu::embedding_gradient(context, args);
  args.dtable = table.data();
  kernel::cpu::embedding_gradient(context, args);
  args.dtable = nullptr;
  args.dpositions = positions.data();
  kernel::cpu::embedding_gradient(context, args);
  REQUIRE(table == std::vector<float>{3, 4, 1, 2});
  REQUIRE(positions == dout);
}

TEST_CASE("A token outside the vocabulary is named before anything is written") {
  std::vector<float> const table(10 * 3, 1.0f);
  std::vector<float> out(6 * 3, -1.0f);
  auto& context = context_of(exec::best_isa(), 2);
  for (std::int32_t bad : {10, -1}) {
    std::vector<std::int32_t> const tokens{0, 1, 2, 3, bad, 5};
    kernel::Embedding const args{.batch = 2,
                                 .tokens_per_row = 3,
                                 .channels = 3,
                                 .vocabulary = 10,
                                 .tokens = tokens.data(),
                                 .table = table.data(),
                                 .out = out.data()};
    std::string const text =
        "token " + std::to_string(bad) + " of sequence 1, position 1, is outside the vocabulary of 10";
    REQUIRE_ERROR(kernel::cpu::embedding(context, args), ErrorKind::out_of_range, text);
    kernel::EmbeddingGradient const gradient{.batch = 2,
                                             .tokens_per_row = 3,
                                             .channels = 3,
                                             .vocabulary = 10,
                                             .tokens = tokens.data(),
                                             .dout = table.data(),
                                             .dtable = out.data(),
                                             .zero_table = true};
    REQUIRE_ERROR(kernel::cpu::embedding_gradient(context, gradient), ErrorKind::out_of_range, text);
    REQUIRE(out == std::vector<float>(6 * 3, -1.0f));
  }
}
