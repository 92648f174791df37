// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/embedding.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

struct Case {
  std::int64_t batch, tokens, channels, vocabulary;
};
std::vector<Case> const cases{{0, 4, 8, 5},   {2, 0, 3, 5},    {1, 1, 1, 1},   {2, 3, 7, 4},     {3, 5, 16, 2},
                              {1, 9, 17, 3},  {2, 8, 33, 50},  {4, 64, 48, 11}, {2, 100, 65, 3}, {3, 40, 8, 1},
                              {3, 4, 768, 300}, {2, 80, 2056, 9}, {1, 33, 8, 1000}};

std::vector<std::int32_t> random_tokens(Random& random, Case const& shape) {
  std::vector<std::int32_t> tokens(length(shape.batch * shape.tokens));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(shape.vocabulary));
  return tokens;
}

template <class T, class P>
void check_forward(Case const& shape, bool with_positions) {
  auto const [batch, T_, C, vocabulary] = shape;
  CAPTURE(sizeof(T), sizeof(P), batch, T_, C, vocabulary, with_positions);
  Random random(static_cast<std::uint64_t>(C + T_));
  auto const tokens = random_tokens(random, shape);
  auto const table = as_stored<P>(random.floats(vocabulary * C)), positions = as_stored<P>(random.floats((T_ + 2) * C));
  std::vector<T> expected;
  for (std::int64_t index = 0; index < batch * T_; ++index)
    for (std::int64_t c = 0; c < C; ++c)
      expected.push_back(T(table[length(tokens[length(index)] * C + c)] +
                           (with_positions ? positions[length(index % T_ * C + c)] : 0.0f)));
  OnDevice const on_tokens(tokens);
  OnDevice const on_table(rounded<P>(table)), on_positions(rounded<P>(positions));
  OnDevice<T> const out(length(batch * T_ * C));
  kernel::cuda::embedding(cuda_context(),
                          kernel::EmbeddingOf<T, P>{.batch = batch,
                                                    .tokens_per_row = T_,
                                                    .channels = C,
                                                    .vocabulary = vocabulary,
                                                    .tokens = on_tokens.data(),
                                                    .table = on_table.data(),
                                                    .positions = with_positions ? on_positions.data() : nullptr,
                                                    .out = out.data()});
  REQUIRE(bits_equal(out.read(), expected));
}

template <class T>
void check_gradient(Case const& shape, bool zero_table) {
  auto const [batch, T_, C, vocabulary] = shape;
  CAPTURE(sizeof(T), batch, T_, C, vocabulary, zero_table);
  Random random(static_cast<std::uint64_t>(C * 3 + T_));
  auto const tokens = random_tokens(random, shape);
  auto const dout = as_stored<T>(random.floats(batch * T_ * C)), before = random.floats(vocabulary * C);
  std::int64_t const position_rows = T_ + 3;
  std::vector<double> table(before.begin(), before.end()), positions(length(position_rows * C));
  if (zero_table) std::fill(table.begin(), table.end(), 0.0);
  for (std::int64_t index = 0; index < batch * T_; ++index)
    for (std::int64_t c = 0; c < C; ++c) {
      table[length(tokens[length(index)] * C + c)] += double{dout[length(index * C + c)]};
      positions[length(index % T_ * C + c)] += double{dout[length(index * C + c)]};
    }
  OnDevice const on_tokens(tokens);
  OnDevice const on_dout(rounded<T>(dout));
  auto const run = [&] {
    OnDevice const dtable(before), dpositions(std::vector<float>(positions.size(), 9));
    kernel::cuda::embedding_gradient(cuda_context(), kernel::EmbeddingGradientOf<T>{.batch = batch,
                                                                                    .tokens_per_row = T_,
                                                                                    .channels = C,
                                                                                    .vocabulary = vocabulary,
                                                                                    .position_rows = position_rows,
                                                                                    .tokens = on_tokens.data(),
                                                                                    .dout = on_dout.data(),
                                                                                    .dtable = dtable.data(),
                                                                                    .dpositions = dpositions.data(),
                                                                                    .zero_table = zero_table});
    return std::pair{dtable.read(), dpositions.read()};
  };
  auto const [dtable, dpositions] = run();
  double const most = std::sqrt(static_cast<double>(batch * T_) + 1);
  require_close_on_device(dtable, table, tolerance<float>(batch * T_), most, "table");
  require_close_on_device(dpositions, positions, tolerance<float>(batch), most, "positions");
  auto const [table_again, positions_again] = run();
  REQUIRE(bits_equal(dtable, table_again));
  REQUIRE(bits_equal(dpositions, positions_again));
}

}  // namespace

TEST_CASE("Embedding on a GPU is the sum of token and position rows, rounded once") {
  for (Case const& shape : cases)
    for (bool const with_positions : {true, false}) {
      check_forward<float, float>(shape, with_positions);
      check_forward<bfloat16, float>(shape, with_positions);
      check_forward<bfloat16, bfloat16>(shape, with_positions);
    }
}

TEST_CASE("The gradient of embedding on a GPU sums equal tokens, and gives the same bits in every run") {
  for (Case const& shape : cases)
    for (bool const zero_table : {true, false}) {
      check_gradient<float>(shape, zero_table);
      check_gradient<bfloat16>(shape, zero_table);
    }
}

TEST_CASE("Gradients of table and positions on a GPU can be left out") {
  OnDevice const tokens(std::vector<std::int32_t>{1, 0});
  OnDevice const dout(std::vector<float>{1, 2, 3, 4});
  OnDevice const table(std::vector<float>(4)), positions(std::vector<float>(4));
  kernel::EmbeddingGradient args{.batch = 1, .tokens_per_row = 2, .channels = 2, .vocabulary = 2, .position_rows = 2,
                                 .tokens = tokens.data(), .dout = dout.data()};
  kernel::cuda::embedding_gradient(cuda_context(), args);
  args.dtable = table.data();
  kernel::cuda::embedding_gradient(cuda_context(), args);
  args.dtable = nullptr;
  args.dpositions = positions.data();
  kernel::cuda::embedding_gradient(cuda_context(), args);
  REQUIRE(table.read() == std::vector<float>{3, 4, 1, 2});
  REQUIRE(positions.read() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("A token outside the vocabulary is named when the host waits, stands for zeros and gets no gradient") {
  for (std::int32_t const bad : {10, -1}) {
    OnDevice const tokens(std::vector<std::int32_t>{0, 1, 2, 3, bad, 5});
    OnDevice const table(std::vector<float>(30, 1.0f));
    OnDevice<float> const out(18);
    kernel::cuda::embedding(cuda_context(), kernel::Embedding{.batch = 2,
                                                              .tokens_per_row = 3,
                                                              .channels = 3,
                                                              .vocabulary = 10,
                                                              .tokens = tokens.data(),
                                                              .table = table.data(),
                                                              .out = out.data()});
    std::string const text = "token " + std::to_string(bad) + " at index 4";
    REQUIRE_ERROR(cuda_context().wait(), ErrorKind::out_of_range, text);
    auto const rows = out.read();
    for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i] == (i / 3 == 4 ? 0 : 1));
    OnDevice<float> const dtable(30);
    kernel::cuda::embedding_gradient(cuda_context(), kernel::EmbeddingGradient{.batch = 2,
                                                                               .tokens_per_row = 3,
                                                                               .channels = 3,
                                                                               .vocabulary = 10,
                                                                               .tokens = tokens.data(),
                                                                               .dout = out.data(),
                                                                               .dtable = dtable.data(),
                                                                               .zero_table = true});
    REQUIRE_ERROR(cuda_context().wait(), ErrorKind::out_of_range, text);
    auto const gradient = dtable.read();
    for (std::size_t i = 0; i < 30; ++i) REQUIRE(gradient[i] == (i / 3 == 4 || i / 3 > 5 ? 0 : 1));
  }
}
