// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/evaluation.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sequence.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

LoadedModel tiny(test::ScratchFolder const& folder) {
  test::TinyModel sizes;
  sizes.positions = 256;
  test::write_tiny_gguf(folder / "tiny.gguf", sizes);
  return load_gguf(folder / "tiny.gguf");
}
std::vector<std::int32_t> text(std::size_t size) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < size; ++i) tokens.push_back(static_cast<std::int32_t>((i * i + 7 * i) % 94));
  return tokens;
}

}  // namespace

TEST_CASE("The loss of a text is that of each token from those before it in its window") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = tiny(folder);
  exec::Context context({.threads = 2}), alone({.threads = 1});
  Decoder decoder(context, loaded.model, {.capacity = 200, .batch = 96}), other(alone, loaded.model, {.capacity = 200});
  auto const tokens = text(430);
  for (std::int64_t const window : {4, 33, 150, 200}) {
    CAPTURE(window);
    std::int64_t calls = 0;
    Evaluation const got =
        evaluate_text(decoder, tokens,
                      {.window = window, .begin = 1, .progress = [&](std::int64_t done, std::int64_t all, auto const&) {
                         REQUIRE(done == ++calls);
                         REQUIRE(all == 430 / window);
                       }});
    // One token after the other, by a decoder of its own.
    Sequence sequence(other);
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t w = 0; w < 430 / window; ++w) {
      sequence.reset();
      for (std::int64_t i = 0; i + 1 < window; ++i) {
        std::int32_t const token = i == 0 ? 1 : tokens[static_cast<std::size_t>(w * window + i)];
        auto const logits = sequence.append({&token, 1});
        if (i < window / 2) continue;
        double all = 0;
        for (float const logit : logits) all += std::exp(double{logit});
        sum -= std::log(
            std::exp(double{logits[static_cast<std::size_t>(tokens[static_cast<std::size_t>(w * window + i + 1)])]}) /
            all);
        ++count;
      }
    }
    REQUIRE(calls == 430 / window);
    REQUIRE(got.windows == calls);
    REQUIRE(got.tokens == count);
    REQUIRE(std::abs(got.loss() - sum / static_cast<double>(count)) < 1e-4);
    REQUIRE(std::abs(got.perplexity() - std::exp(got.loss())) < 1e-9);
    REQUIRE(got.loss_error() > 0);
  }
}

TEST_CASE("What cannot be evaluated is refused with the sizes") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = tiny(folder);
  exec::Context context({.threads = 1});
  Decoder decoder(context, loaded.model, {.capacity = 64});
  auto const message = [&](std::size_t size, std::int64_t window) {
    try {
      evaluate_text(decoder, text(size), {.window = window});
    } catch (Error const& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  REQUIRE(message(50, 3).find("at least 4") != std::string::npos);
  REQUIRE(message(100, 65).find("does not fit the decoder's 64") != std::string::npos);
  REQUIRE(message(50, 60).find("the text has 50 tokens") != std::string::npos);
}
