// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/multiple_choice.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/evaluation.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/multiple_choice.hpp>
#include <tutti/infer/sequence.hpp>

#include <algorithm>
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

namespace {

/// The bytes of llm.c's file for these examples.
std::string llmc_file(std::vector<MultipleChoice> const& examples) {
  std::vector<std::uint16_t> numbers;
  auto const put = [&](std::vector<std::int32_t> const& tokens) {
    numbers.push_back(static_cast<std::uint16_t>(tokens.size()));
    for (std::int32_t const token : tokens) numbers.push_back(static_cast<std::uint16_t>(token));
  };
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::size_t const begin = numbers.size();
    for (std::size_t const number :
         {std::size_t{65535}, std::size_t{0}, i, examples[i].label, examples[i].endings.size()})
      numbers.push_back(static_cast<std::uint16_t>(number));
    put(examples[i].context);
    for (auto const& ending : examples[i].endings) put(ending);
    numbers[begin + 1] = static_cast<std::uint16_t>(2 * (numbers.size() - begin));
  }
  std::int32_t header[256] = {20240522, 1, static_cast<std::int32_t>(examples.size()), 1000};
  std::string bytes(reinterpret_cast<char const*>(header), sizeof header);
  return bytes + std::string(reinterpret_cast<char const*>(numbers.data()), 2 * numbers.size());
}

}  // namespace

TEST_CASE("Endings are judged by the log-probabilities of their tokens behind the context, with any number of slots") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = tiny(folder);
  exec::Context context({.threads = 2});
  Decoder alone(context, loaded.model, {.capacity = 64});
  std::vector<MultipleChoice> examples;
  ChoiceScore expected;
  for (std::size_t i = 0; i < 12; ++i) {
    MultipleChoice one;
    auto const tokens = text(60);
    one.context.assign(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                       tokens.begin() + static_cast<std::ptrdiff_t>(i + 1 + i % 5));
    for (std::size_t k = 0; k < 4; ++k)
      one.endings.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(20 + 5 * k + i),
                               tokens.begin() + static_cast<std::ptrdiff_t>(21 + 5 * k + i + (i + k) % 4));
    // Token after token; what the label should be for a half of them.
    std::vector<double> sums, means;
    for (auto const& ending : one.endings) {
      Sequence sequence(alone);
      std::span<float const> logits = sequence.append(one.context);
      double sum = 0;
      for (std::int32_t const token : ending) {
        sum -= log_probability_of(logits, token).value;
        logits = sequence.append({&token, 1});
      }
      sums.push_back(sum), means.push_back(sum / static_cast<double>(ending.size()));
    }
    auto const least = [](std::vector<double> const& list) {
      return static_cast<std::size_t>(std::min_element(list.begin(), list.end()) - list.begin());
    };
    one.label = i % 2 == 0 ? least(means) : (least(means) + 1) % 4;
    ++expected.examples;
    expected.best += i % 2 == 0 ? 1 : 0;
    expected.likeliest += least(sums) == one.label ? 1 : 0;
    examples.push_back(std::move(one));
  }
  auto const read = parse_llmc_choices(llmc_file(examples), "hellaswag.bin");
  for (std::int64_t const slots : {1, 3, 4, 6}) {
    Decoder decoder(context, loaded.model, {.slots = slots, .capacity = 64});
    ChoiceScore const score = evaluate_choices(decoder, read);
    CAPTURE(slots);
    REQUIRE(score.examples == 12);
    REQUIRE(score.best == 6);
    REQUIRE(score.likeliest == expected.likeliest);
    REQUIRE(score.mean_accuracy() == 0.5);
    REQUIRE(score.error() == Approx(0.1508).margin(1e-4));
  }
}

TEST_CASE("HellaSwag is read from llm.c's file and as it is published; what is wrong is named") {
  test::ScratchFolder const folder;
  test::TinyModel sizes = test::tiny_byte_model();
  test::write_tiny_gguf(folder / "bytes.gguf", sizes);
  LoadedModel const loaded = load_gguf(folder / "bytes.gguf");
  std::vector<MultipleChoice> const examples{{{1, 2, 3}, {{4}, {5, 6}, {7}, {8}}, 2}, {{9}, {{1}, {2}}, 0}};
  std::string const good = llmc_file(examples);
  auto const got = parse_llmc_choices(good, "x");
  REQUIRE(got.size() == 2);
  REQUIRE(got[0].context == examples[0].context);
  REQUIRE(got[0].endings == examples[0].endings);
  REQUIRE(got[0].label == 2);
  for (std::size_t size = 0; size < good.size(); size += size < 1024 ? 256 : 2)
    REQUIRE_THROWS_AS(parse_llmc_choices(std::string_view(good).substr(0, size), "x"), Error);
  std::string bad = good;
  bad[1024 + 2] = 99;  // its size
  REQUIRE_ERROR(parse_llmc_choices(bad, "x"), ErrorKind::format, "another size");
  bad = good, bad[1024 + 6] = 4;  // its label
  REQUIRE_ERROR(parse_llmc_choices(bad, "x"), ErrorKind::format, "number of the right one");
  io::write_file(folder / "hellaswag.bin", good);
  REQUIRE_ERROR(read_multiple_choice(folder / "hellaswag.bin", loaded.tokenizer), ErrorKind::configuration, "GPT-2");

  std::string const line =
      R"({"ind": 24, "activity_label": "x", "ctx": "A man is", "endings": ["flying.", "on a roof."], "label": 1})";
  io::write_file(folder / "hellaswag.jsonl", line + "\n\n" + line + "\n");
  auto const published = read_multiple_choice(folder / "hellaswag.jsonl", loaded.tokenizer);
  REQUIRE(published.size() == 2);
  REQUIRE(published[1].label == 1);
  REQUIRE(published[1].context == loaded.tokenizer.encode_complete("A man is"));
  REQUIRE(published[1].endings[1] == loaded.tokenizer.encode(" on a roof."));
  for (char const* const wrong :
       {"[]", "{}", R"({"ctx": 1, "endings": ["a", "b"], "label": 1})", R"({"ctx": "a", "endings": ["b"], "label": 0})",
        R"({"ctx": "a", "endings": ["b", "c"], "label": 2})", R"({"ctx": "a", "endings": ["b", 3], "label": 0})",
        R"({"ctx": "", "endings": ["b", "c"], "label": 0})", "not JSON", ""})
    REQUIRE_THROWS_AS(parse_json_choices(wrong, "x.jsonl", loaded.tokenizer), Error);
}
