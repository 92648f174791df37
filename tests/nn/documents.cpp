// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/nn/documents.hpp>

#include "support/catch.hpp"

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <vector>

using namespace tutti;
using train::TrainStep;

namespace {

constexpr std::int32_t mark = 3;
using Row = std::vector<std::int32_t>;

/// Mean loss of rows of equal length, by a model as `initialise` makes it.
template <class Loss>
double loss_of(typename Loss::Config const& config, std::vector<Row> const& tokens, std::vector<Row> const& targets) {
  auto const rows = static_cast<std::int64_t>(tokens.size()), length = static_cast<std::int64_t>(tokens[0].size());
  exec::Context context({.threads = 1});
  TrainStep<Loss> step(context, config, {}, {.batch = rows, .sequence = length});
  step.initialise(42);
  Tensor<std::int32_t> inputs(Shape{rows, length}), wanted(Shape{rows, length});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < length; ++t) {
      inputs(r, t) = tokens[static_cast<std::size_t>(r)][static_cast<std::size_t>(t)];
      wanted(r, t) = targets[static_cast<std::size_t>(r)][static_cast<std::size_t>(t)];
    }
  return step.evaluate(inputs.view(), wanted.view());
}

/// A packed batch has the losses of its documents, one at a time, by the same model without marks.
template <class Loss>
void check_packed(typename Loss::Config config) {
  // A row that begins within a document, three whole ones, and free places.
  std::vector<Row> const documents{{5, 9, 1}, {3, 8, 8, 2}, {3, 4}, {3}, {3, 10, 6, 7, 1, 5, 9, 2, 4, 8}};
  std::vector<Row> const answers{{9, 1, 3}, {8, 8, -1, 3}, {4, 3}, {6}, {10, 6, 7, 1, 5, 9, 2, 4, 8, 3}};
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    double targets = 0;
    for (std::int32_t const target : answers[i]) targets += target >= 0 ? 1 : 0;
    sum += targets * loss_of<Loss>(config, {documents[i]}, {answers[i]});
    count += targets;
  }
  config.document_mark = mark;
  std::vector<Row> const packed{{5, 9, 1, 3, 8, 8, 2, 3, 4, 3}, documents[4]};
  std::vector<Row> const targets{{9, 1, 3, 8, 8, -1, 3, 4, 3, 6}, answers[4]};
  CHECK(loss_of<Loss>(config, packed, targets) == Approx(sum / count).epsilon(1e-6));
  config.document_mark = -1;
  CHECK(std::abs(loss_of<Loss>(config, packed, targets) - sum / count) > 1e-5);
}

}  // namespace

TEST_CASE("a packed GPT-2 batch has the losses of its documents alone") {
  check_packed<nn::Gpt2Loss>(
      {.layers = 2, .heads = 2, .channels = 16, .vocabulary = 12, .padded_vocabulary = 16, .max_tokens = 12});
}

TEST_CASE("and a packed LLaMA batch, with heads that share keys and values") {
  check_packed<nn::LlamaLoss>({.layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .channels = 16,
                               .head_size = 4,
                               .hidden = 24,
                               .vocabulary = 12,
                               .padded_vocabulary = 16,
                               .max_tokens = 12});
}

TEST_CASE("steps on packed batches learn what steps on the documents alone learn") {
  nn::Gpt2Config config{
      .layers = 2, .heads = 2, .channels = 16, .vocabulary = 12, .padded_vocabulary = 16, .max_tokens = 12};
  // Two documents of four in a row, or each with a row of its own.
  auto const losses = [&](std::int64_t rows, std::int64_t length) {
    exec::Context context({.threads = 1});
    TrainStep<nn::Gpt2Loss> step(context, config, {}, {.batch = rows, .sequence = length});
    step.initialise(42);
    Tensor<std::int32_t> tokens(Shape{rows, length}), targets(Shape{rows, length});
    std::vector<float> found;
    for (int i = 0; i < 5; ++i) {
      for (std::int64_t at = 0; at < rows * length; ++at) {
        auto const word = [&](std::int64_t place) {
          return static_cast<std::int32_t>((place / 4 * 5 + place * 2 + i) % 12);
        };
        tokens.data()[at] = at % 4 == 0 ? mark : word(at) == mark ? 0 : word(at);
        targets.data()[at] = at % 4 == 3 ? -1 : word(at + 1) == mark ? 0 : word(at + 1);
      }
      found.push_back(step({i, tokens.view(), targets.view()}, 1e-2).loss);
    }
    return found;
  };
  auto const alone = losses(4, 4);
  config.document_mark = mark;
  auto const packed = losses(2, 8);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(packed[i] == Approx(alone[i]).epsilon(1e-5));
  CHECK(packed[4] < packed[0]);
}
