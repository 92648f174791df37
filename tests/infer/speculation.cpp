// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/ngram_drafter.hpp> <tutti/infer/draft_model.hpp> <tutti/train/speculation_flags.hpp>
// Covers: <tutti/infer/cuda/find_device.hpp> <tutti/train/gpu_layer_flags.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/completion.hpp>
#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/draft_model.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/ngram_drafter.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/speculation_flags.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

LoadedModel make(test::TinyModel const& sizes, std::uint32_t seed = 1) {
  test::ScratchFolder const folder;
  write_tiny_gguf(folder / "tiny.gguf", sizes, seed);
  return load_gguf(folder / "tiny.gguf");
}

/// Three tokens that come again and again, with something between.
std::vector<std::int32_t> repeating(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(i % 5 < 3 ? 10 + i % 5 : i % 90));
  return tokens;
}

/// Proposes what a list says, wherever the text has got to: right, wrong, or nothing at all.
struct Script {
  std::vector<std::int32_t> text;
  std::int64_t wrong_every = 0;
  std::int64_t asked = 0;

  std::vector<Proposal> draft(std::span<std::int32_t const> known, std::int64_t most) {
    ++asked;
    std::vector<Proposal> drafts;
    for (std::size_t i = known.size(); i < text.size() && static_cast<std::int64_t>(drafts.size()) < most; ++i) {
      bool const wrong = wrong_every > 0 && static_cast<std::int64_t>(i) % wrong_every == 0;
      drafts.push_back({wrong ? (text[i] + 1) % 90 : text[i], {}});
    }
    return drafts;
  }
};
static_assert(Drafter<Script> && Drafter<NgramDrafter> && Drafter<DraftModel>);

std::vector<std::int32_t> joined(std::vector<std::int32_t> a, std::span<std::int32_t const> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Pearson's statistic of counts beside what was expected.
double chi_square(std::map<std::vector<std::int32_t>, double> const& expected,
                  std::map<std::vector<std::int32_t>, int> const& seen, int draws) {
  double sum = 0;
  int known = 0;
  for (auto const& [what, p] : expected) {
    auto const found = seen.find(what);
    int const count = found == seen.end() ? 0 : found->second;
    known += count;
    sum += (count - draws * p) * (count - draws * p) / (draws * p);
  }
  return known == draws ? sum : INFINITY;  // something came that cannot come
}

}  // namespace

TEST_CASE("Up to eight rows at once give a token the bits that it has alone, whatever the type of weights") {
  for (std::uint32_t const id : {0u, 1u, 3u, 12u, 14u}) {
    char const* const architecture = id == 1 ? "gpt2" : "llama";
    LoadedModel const made = make({.architecture = architecture, .type = static_cast<BlockType>(id)});
    exec::Context context({.threads = 2});
    Decoder decoder(context, made.model, {.slots = 2, .capacity = 48});
    Sequence alone(decoder, 0), together(decoder, 1);
    auto const tokens = repeating(40);
    alone.append(std::span(tokens).first(4));
    together.append(std::span(tokens).first(4));
    std::size_t at = 4;
    for (std::size_t const count : {2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
      std::vector<float> expected;
      for (std::size_t i = 0; i < count; ++i) {
        auto const logits = alone.append(std::span(tokens).subspan(at + i, 1));
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
      auto const logits = together.append_each(std::span(tokens).subspan(at, count));
      CAPTURE(id, architecture, count);
      REQUIRE(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end()));
      at += count;
    }
  }
}

TEST_CASE("A greedy text is the same with drafts of any kind, and so is the cache that it leaves") {
  for (BlockType const type : {BlockType::f32, BlockType::q4_k}) {
    LoadedModel const made = make({.type = type, .positions = 128}), other = make({.positions = 64}, 2);
    exec::Context context({.threads = 2});
    Decoder decoder(context, made.model), small(context, other.model), same(context, made.model);
    Sampler sampler(SamplerOptions{.temperature = 0});
    auto const prompt = repeating(30);
    Sequence plain(decoder);
    auto const expected = complete(plain, sampler, made.tokenizer, prompt, {.max_tokens = 60}, {});
    std::vector<std::int32_t> const cached(plain.tokens().begin(), plain.tokens().end());
    REQUIRE(expected.tokens.size() == 60);
    REQUIRE(expected.speculation.drafted == 0);
    for (std::int64_t most = 1; most <= most_drafts; ++most) {
      NgramDrafter ngrams;
      DraftModel itself(same, decoder.vocabulary(), sampler.options());
      DraftModel stranger(small, decoder.vocabulary(), sampler.options());  // its cache ends before the text does
      Script right{joined(prompt, expected.tokens)}, half{joined(prompt, expected.tokens), 7};
      auto const run = [&](auto& drafter) {
        Speculation speculation(drafter, most);
        Sequence sequence(decoder);
        auto const got = complete(sequence, sampler, made.tokenizer, prompt, {.max_tokens = 60}, {}, nullptr,
                                  std::nullopt, &speculation);
        CAPTURE(name(type), most);
        REQUIRE(got.tokens == expected.tokens);
        REQUIRE(got.text == expected.text);
        REQUIRE(got.reason == expected.reason);
        REQUIRE(std::equal(sequence.tokens().begin(), sequence.tokens().end(), cached.begin(), cached.end()));
        return got.speculation;
      };
      run(ngrams);
      auto const all = run(right);
      REQUIRE(all.accepted == all.drafted);
      // The first token comes from the prompt; then 1 + most a pass.
      REQUIRE(right.asked >= 59 / (most + 1));
      REQUIRE(right.asked <= 59 / (most + 1) + 1);
      auto const mixed = run(half);
      REQUIRE(mixed.accepted > 0);
      REQUIRE(mixed.accepted < mixed.drafted);
      auto const own = run(itself);
      // Its own drafts, but it reads the prompt and the first token at once: sums in another order.
      REQUIRE(own.drafted > 0);
      REQUIRE(own.accepted > own.drafted / 2);
      REQUIRE(run(stranger).drafted > 0);
    }
  }
}

TEST_CASE("With certain drafts a seed gives the text that it gives without: penalties, mirostat, XTC, stops, grammar") {
  LoadedModel const made = make(test::tiny_byte_model());
  exec::Context context({.threads = 1});
  Decoder decoder(context, made.model, {.capacity = 160});
  Grammar const digits("root ::= ([0-9]+ \" \")+");
  GrammarVocabulary const vocabulary(token_pieces(made.tokenizer), end_tokens(made.tokenizer));
  auto const prompt = made.tokenizer.encode("12 34 12 34 12 34 12");
  SamplerOptions const free{.temperature = 0.3, .seed = 5};
  SamplerOptions penalised = free, surprised = free, odd = free;
  penalised.repeat_penalty = 1.3, penalised.presence_penalty = 0.5, penalised.dry_multiplier = 1;
  surprised.mirostat = Mirostat::two, surprised.mirostat_tau = 2;
  odd.xtc_probability = 0.5, odd.xtc_threshold = 0.05, odd.top_p = 0.9;
  std::int64_t drafted = 0, accepted = 0;
  for (SamplerOptions const& options : {free, penalised, surprised, odd})
    for (bool const ruled : {false, true}) {
      StopOptions stop{.max_tokens = 120};
      GrammarMatcher matcher(digits, vocabulary);
      Sampler sampler(options);
      auto const run = [&](Speculation* speculation) {
        Sequence sequence(decoder);
        std::string emitted;
        auto answer = complete(
            sequence, sampler, made.tokenizer, prompt, stop, [&](std::string_view text) { emitted += text; },
            ruled ? &matcher : nullptr, 3, speculation);
        REQUIRE(emitted == answer.text);
        drafted += answer.speculation.drafted, accepted += answer.speculation.accepted;
        return std::pair(std::move(answer), std::vector(sequence.tokens().begin(), sequence.tokens().end()));
      };
      for (bool const stopped : {false, true}) {
        auto const [expected, cached] = run(nullptr);
        if (stopped) stop.texts = {expected.text.substr(expected.text.size() / 2, 3)};
        NgramDrafter ngrams({.longest = 3, .shortest = 1});
        Script right{joined(prompt, expected.tokens), 7};
        Speculation by_runs(ngrams), by_script(right, 5);
        auto const [whole, held] = run(nullptr);
        for (Speculation* const speculation : {&by_runs, &by_script}) {
          auto const [got, left] = run(speculation);
          REQUIRE(got.tokens == whole.tokens);
          REQUIRE(got.text == whole.text);
          REQUIRE(got.reason == whole.reason);
          REQUIRE(left == held);
          REQUIRE(got.log_probabilities.size() == whole.log_probabilities.size());
          for (std::size_t i = 0; i < got.log_probabilities.size(); ++i) {
            REQUIRE(got.log_probabilities[i].value == whole.log_probabilities[i].value);
            REQUIRE(got.log_probabilities[i].top == whole.log_probabilities[i].top);
          }
        }
      }
    }
  CAPTURE(drafted, accepted);
  REQUIRE(accepted > 100);
  REQUIRE(drafted > accepted);
}

TEST_CASE("Drafts leave frequencies as they are, and are taken as often as two distributions have in common") {
  std::array<float, 6> const p_logits{1.0f, 3.0f, 2.0f, 2.5f, -1.0f, 0.0f},
      q_logits{2.0f, 1.0f, 2.5f, 2.5f, 0.0f, -2.0f};
  std::vector<std::int32_t> const text{1, 2, 2, 4};
  SamplerOptions plain{}, cut{.temperature = 0.7, .top_k = 4}, weighed{.top_p = 0.9, .repeat_penalty = 1.2};
  weighed.frequency_penalty = 0.4, weighed.logit_bias = {{3, -1.0f}};
  SamplerOptions surprised{};
  surprised.mirostat = Mirostat::two, surprised.mirostat_tau = 1.5, surprised.mirostat_eta = 0;
  constexpr int draws = 20000;
  for (SamplerOptions options : {plain, cut, weighed, surprised}) {
    auto const exact = [&](std::span<float const> logits) {
      Sampler sampler(options);
      sampler.observe(text);
      return sampler.propose(logits).from;
    };
    auto const p = exact(p_logits);
    SamplerOptions draft_options = options;
    draft_options.seed = 99;
    draft_options.mirostat = Mirostat::off;
    Sampler target(options), draft(draft_options);
    std::map<std::vector<std::int32_t>, double> expected;
    for (TokenProbability const& token : p) expected[{token.id}] = token.probability;
    std::map<std::vector<std::int32_t>, int> seen;
    std::vector<TokenProbability> q;
    int taken = 0;
    for (int i = 0; i < draws; ++i) {
      target.observe_instead(text);
      draft.observe_instead(text);
      Proposal const proposal = draft.propose(q_logits);
      q = proposal.from;
      std::int32_t const token = target(
          p_logits, [](Candidates&) {}, &proposal);
      taken += token == proposal.token;
      ++seen[{token}];
    }
    // 99.99 % of chi-square with five degrees of freedom is below 25.7; seeds are fixed.
    CHECK(chi_square(expected, seen, draws) < 25.7);
    double common = 0;
    for (TokenProbability const& a : p)
      for (TokenProbability const& b : q)
        if (a.id == b.id) common += std::min(a.probability, b.probability);
    CHECK(std::abs(taken - draws * common) < 4.5 * std::sqrt(draws * common * (1 - common)));
  }
}

TEST_CASE("A draft model leaves a model's texts as often as they come without it") {
  test::TinyModel sizes = test::tiny_byte_model(32);
  LoadedModel const made = make(sizes);
  sizes.type = BlockType::q4_0;  // the same weights, rounded: another distribution, and not a strange one
  LoadedModel const rounded = make(sizes);
  exec::Context context({.threads = 1});
  Decoder decoder(context, made.model), small(context, rounded.model);
  SamplerOptions options{.temperature = 2, .top_k = 3};
  auto const prompt = made.tokenizer.encode("ab");
  Sequence sequence(decoder);
  std::map<std::vector<std::int32_t>, double> expected;
  for (TokenProbability const& a : Sampler(options).propose(sequence.become(prompt)).from)
    for (TokenProbability const& b : Sampler(options).propose(sequence.become(joined(prompt, {{a.id}}))).from)
      for (TokenProbability const& c : Sampler(options).propose(sequence.become(joined(prompt, {{a.id, b.id}}))).from)
        expected[{a.id, b.id, c.id}] = a.probability * b.probability * c.probability;
  REQUIRE(expected.size() == 27);
  constexpr int draws = 3000;
  std::map<std::vector<std::int32_t>, int> seen;
  SpeculationCounts counts;
  DraftModel drafter(small, decoder.vocabulary(), options);
  for (int i = 0; i < draws; ++i) {
    options.seed = static_cast<std::uint64_t>(i) * 7919;
    Sampler sampler(options);
    Speculation speculation(drafter);
    auto const answer =
        complete(sequence, sampler, made.tokenizer, prompt, {.max_tokens = 3}, {}, nullptr, std::nullopt, &speculation);
    ++seen[answer.tokens];
    counts.drafted += answer.speculation.drafted, counts.accepted += answer.speculation.accepted;
  }
  CAPTURE(counts.drafted, counts.accepted);
  CHECK(counts.accepted > 0);
  CHECK(counts.accepted < counts.drafted);
  CHECK(chi_square(expected, seen, draws) < 58.0);  // 99.97 % with 26 degrees of freedom
}

TEST_CASE("Runs of the text foretell what followed them the last time, longer runs first") {
  NgramDrafter ngrams;
  auto const ids = [&](std::vector<std::int32_t> const& text, std::int64_t most = 7) {
    std::vector<std::int32_t> tokens;
    for (Proposal const& proposal : ngrams.draft(text, most)) {
      REQUIRE(proposal.from.empty());
      tokens.push_back(proposal.token);
    }
    return tokens;
  };
  using Ids = std::vector<std::int32_t>;
  REQUIRE(ids({1}) == Ids{});
  REQUIRE(ids({1, 2, 3}) == Ids{});
  REQUIRE(ids({1, 2, 3, 4, 1, 2}) == Ids{3, 4, 1, 2, 3, 4, 1});  // beyond the end: as it goes on
  REQUIRE(ids({1, 2, 3, 4, 1, 2}, 2) == Ids{3, 4});
  REQUIRE(ids({1, 2, 3, 4, 1, 2, 5, 1, 2}, 1) == Ids{5});        // the last time
  REQUIRE(ids({9, 1, 2, 3, 8, 1, 2, 5, 9, 1, 2}, 1) == Ids{3});  // the longer run
  REQUIRE(ids({1, 2, 1, 3}) == Ids{});                           // another text: nothing is left of the last
  REQUIRE(ids({7, 7, 7}) == Ids{7, 7, 7, 7, 7, 7, 7});
  REQUIRE_ERROR(NgramDrafter({.longest = 1, .shortest = 2}), ErrorKind::invalid_argument, "runs");
  REQUIRE_ERROR(Speculation(ngrams, 8), ErrorKind::invalid_argument, "1 to 7");
}

TEST_CASE("A draft model of another vocabulary is refused with the first token that differs") {
  test::TinyModel more;
  more.vocabulary = 90;
  LoadedModel const model = make({}), fewer = make(more), bytes = make(test::tiny_byte_model());
  check_same_vocabulary(model.tokenizer, make({}, 2).tokenizer, "same.gguf");
  REQUIRE_ERROR(check_same_vocabulary(model.tokenizer, fewer.tokenizer, "draft.gguf"), ErrorKind::configuration,
                "'draft.gguf' cannot draft for this model: it has 90 tokens, the model 96");
  data::TokenizerParts parts = bytes.tokenizer.parts();
  std::swap(parts.tokens[65], parts.tokens[66]);
  REQUIRE_ERROR(check_same_vocabulary(bytes.tokenizer, data::Tokenizer(parts), "draft.gguf"), ErrorKind::configuration,
                "token 65 is another one");
}

TEST_CASE("The flags of programs ask for nothing, for runs of the text, or for a draft model") {
  test::ScratchFolder const folder;
  test::write_tiny_gguf(folder / "tiny.gguf", {});
  test::write_tiny_gguf(folder / "other.gguf", test::tiny_byte_model());
  LoadedModel const made = load_gguf(folder / "tiny.gguf");
  exec::Context context({.threads = 1});
  auto const flagged = [](std::vector<std::string> words) {
    train::SpeculationFlags flags;
    CLI::App app;
    train::add_speculation_flags(app, flags);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return flags;
  };
  auto const made_of = [&](train::SpeculationFlags const& flags) {
    train::FlaggedSpeculation speculation(flags, made.tokenizer);
    FitOptions fit;
    speculation.add_to(fit);
    REQUIRE((fit.draft != nullptr) == !flags.model.empty());
    speculation.start(context, made.model.vocabulary(), {.capacity = 64}, {.temperature = 0});
    return speculation.get() == nullptr
               ? std::int64_t{-1}
               : static_cast<std::int64_t>(speculation.get()->draft(repeating(31), 11, 9).size());
  };
  REQUIRE(made_of(flagged({})) == -1);
  REQUIRE(made_of(flagged({"--speculate", "5"})) == 5);
  REQUIRE(made_of(flagged({"--draft", folder / "tiny.gguf"})) == most_drafts);
  REQUIRE(made_of(flagged({"--draft", folder / "tiny.gguf", "--speculate", "2"})) == 2);
  REQUIRE_THROWS_AS(flagged({"--speculate", "8"}), CLI::ParseError);
  REQUIRE_ERROR(made_of(flagged({"--draft", folder / "other.gguf"})), ErrorKind::configuration, "cannot draft");
  REQUIRE_ERROR(made_of(flagged({"--draft", folder / "none.gguf"})), ErrorKind::io, "none.gguf");
  REQUIRE(train::text_of({}).empty());
  REQUIRE(train::text_of({5, 3}) == "; 3 of 5 drafts taken");
}

TEST_CASE("The flag of layers on a GPU takes a number or auto, and says what is missing where there is no GPU") {
  test::ScratchFolder const folder;
  test::write_tiny_gguf(folder / "tiny.gguf", {});
  LoadedModel const made = load_gguf(folder / "tiny.gguf");
  exec::Context context({.threads = 1});
  auto const flagged = [](std::vector<std::string> words) {
    train::GpuLayerFlags flags;
    CLI::App app;
    train::add_gpu_layer_flags(app, flags);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return flags;
  };
  auto const told = [&](train::GpuLayerFlags const& flags) {
    train::FlaggedGpu const gpu(flags, "generate", find_layer_device);
    DecoderOptions options{.capacity = 8};
    gpu.give(options);
    REQUIRE(options.device == nullptr);
    return gpu.told(Decoder(context, made.model, options));
  };
  REQUIRE(told(flagged({})).empty());
  REQUIRE(told(flagged({"--gpu-layers", "00"})).empty());
  REQUIRE(told(flagged({"--gpu-layers", "auto"})).find("all layers on the processors: this program was built without "
                                                       "CUDA") == 0);
  REQUIRE_ERROR(told(flagged({"--gpu-layers", "4"})), ErrorKind::configuration,
                "--gpu-layers 4: this program was built without CUDA");
  for (char const* const wrong : {"-1", "1.5", "all", "70000"})
    REQUIRE_THROWS_AS(flagged({"--gpu-layers", wrong}), CLI::ParseError);
}
