// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/train/validation.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/data/bpe_trainer.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>

#include <cmath>
#include <numbers>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

constexpr std::int64_t sequence = 8;
nn::Gpt2Config const config{.layers = 1, .heads = 2, .channels = 16, .vocabulary = 257, .padded_vocabulary = 384,
                            .max_tokens = sequence};

/// Two files of byte tokens, 4 and 3 windows; the last window of each is not full.
struct HeldOut {
  test::ScratchFolder folder;
  HeldOut() {
    for (int file : {0, 1}) {
      std::vector<std::uint16_t> tokens(file == 0 ? 30u : 20u);
      for (std::size_t i = 1; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::uint16_t>((static_cast<int>(i) * 37 + file) % 256);
      tokens[0] = 256;  // <|endoftext|>
      io::write_token_shard(folder / ("validation_" + std::to_string(file) + ".bin"), tokens);
    }
  }
  data::ValidationLoader loader() const {
    return data::ValidationLoader(data::TokenCorpus(folder / "validation_*.bin"), sequence);
  }
};

Validation measured(HeldOut const& held_out, int ranks, std::int64_t rows, std::int64_t windows) {
  std::vector<Validation> found(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    TrainStep<nn::Gpt2Loss> step(context, config, {},
                                 {.batch = 1, .sequence = sequence, .evaluation_batch = rows});
    step.initialise(42);
    Shared<comm::Port> const port = comm::port(communicator);
    data::Tokenizer const tokenizer = data::train_bpe({}, {.vocabulary = 257});
    found[static_cast<std::size_t>(communicator.rank())] =
        measure(*port, step, held_out.loader(), &tokenizer, windows);
  });
  for (Validation const& one : found) {
    CHECK(one.loss == found[0].loss);
    CHECK(one.predictions == found[0].predictions);
  }
  return found[0];
}

}  // namespace

TEST_CASE("what is measured depends on the windows asked for alone, not on ranks or evaluation batches") {
  HeldOut const held_out;
  struct Row {
    std::int64_t windows, predictions;
  };
  for (auto [windows, predictions] : {Row{1, 8}, Row{3, 24}, Row{4, 29}, Row{5, 37}, Row{7, 48}, Row{1000, 48}}) {
    Validation const one = measured(held_out, 1, 1, windows);
    CHECK(one.predictions == predictions);
    for (int ranks : {1, 2, 3, 4})
      for (std::int64_t rows : {1, 2, 3, 16}) {
        INFO(windows << " windows on " << ranks << " ranks, " << rows << " at a time");
        Validation const other = measured(held_out, ranks, rows, windows);
        CHECK(other.predictions == predictions);
        CHECK(other.loss == Approx(one.loss).epsilon(1e-6));
        CHECK(other.bits_per_byte == Approx(one.bits_per_byte).epsilon(1e-6));
      }
  }
}

TEST_CASE("what several sets give is the mean over the predictions of all") {
  Validation const a{.loss = 2, .bits_per_byte = 3, .predictions = 100},
      b{.loss = 4, .bits_per_byte = 6, .predictions = 300};
  CHECK(joined({a}).loss == 2);
  CHECK(joined({a}).bits_per_byte == 3);
  CHECK(joined({a, b}).loss == 3.5);
  CHECK(joined({a, b}).predictions == 400);
  // 200 nats are 96.2 bytes at 3 bits each, 1200 nats 288.5 bytes at 6.
  CHECK(joined({a, b}).bits_per_byte == Approx(1400 / (200 / 3.0 + 1200 / 6.0)));
  CHECK(joined({a, {.loss = 4, .predictions = 300}}).bits_per_byte == 0);
}

TEST_CASE("of byte tokens, bits per byte are the loss in bits; without a tokenizer they are not known") {
  HeldOut const held_out;
  Validation const all = measured(held_out, 2, 2, 7);
  CHECK(all.bits_per_byte == Approx(all.loss / std::numbers::ln2).epsilon(1e-6));
  CHECK(all.loss == Approx(std::log(257.0)).epsilon(0.02));  // nothing is learned
  threads::run(1, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    TrainStep<nn::Gpt2Loss> step(context, config, {}, {.batch = 1, .sequence = sequence});
    step.initialise(42);
    Shared<comm::Port> const port = comm::port(communicator);
    CHECK(measure(*port, step, held_out.loader(), nullptr, 7).bits_per_byte == 0);
  });
}
