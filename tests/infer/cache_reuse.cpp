// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/cache_moves.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/cache_moves.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/service.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

/// With one layer, keys and values depend on a token and its position alone: what is moved is what would be computed.
LoadedModel make(test::ScratchFolder const& folder, std::string const& architecture, std::int64_t layers = 1) {
  test::TinyModel sizes{.architecture = architecture};
  sizes.layers = layers;
  sizes.positions = 128;
  sizes.rope_factors = architecture == "llama";
  test::write_tiny_gguf(folder / "tiny.gguf", sizes);
  return load_gguf(folder / "tiny.gguf");
}
std::vector<std::int32_t> some_tokens(std::size_t count, std::size_t first = 0) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(((i + first) * 37 + 11) % 95));
  return tokens;
}
double off(std::span<float const> got, std::vector<float> const& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const difference = std::abs(double{got[i]} - double{expected[i]});
    worst = difference <= worst ? worst : difference;
    scale = std::max(scale, std::abs(double{expected[i]}));
  }
  return worst / scale;
}
Request greedy(std::vector<std::int32_t> prompt, std::int64_t most = 4) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.stop.max_tokens = most;
  return request;
}

}  // namespace

TEST_CASE("Keys that are moved are those of their new positions; what a cache begins with is copied bit for bit") {
  test::ScratchFolder const folder;
  exec::Context context({.threads = 2});
  for (std::string const architecture : {"llama", "qwen2"})
    for (BlockType const type : {BlockType::f32, BlockType::f16, BlockType::bf16, BlockType::q8_0}) {
      LoadedModel const loaded = make(folder, architecture);
      Decoder decoder(context, loaded.model, {.slots = 2, .capacity = 96, .batch = 64, .cache = type});
      auto const tokens = some_tokens(60);
      auto left = tokens;
      left.erase(left.begin() + 40, left.begin() + 43);
      left.erase(left.begin() + 5, left.begin() + 22);
      std::int32_t const more[] = {7};
      Sequence plain(decoder, 1);
      static_cast<void>(plain.append(left));
      auto const logits = plain.append(more);
      std::vector<float> const expected(logits.begin(), logits.end());

      Sequence moved(decoder, 0);
      static_cast<void>(moved.append(tokens));
      CacheMove const moves[] = {{22, 5, 18}, {43, 23, 17}};
      move_cached(decoder, 0, moves);
      moved.adopt(left);
      CAPTURE(architecture, name(type));
      REQUIRE(off(moved.append(more), expected) < (type == BlockType::f32   ? 1e-5
                                                   : type == BlockType::f16 ? 2e-3
                                                                            : 3e-2));

      copy_cached(decoder, 1, 0, static_cast<std::int64_t>(left.size()));
      moved.adopt(left);
      auto const same = moved.append(more);
      REQUIRE(std::vector<float>(same.begin(), same.end()) == expected);
    }
}

TEST_CASE("Moves that cannot be are refused before anything is moved") {
  test::ScratchFolder const folder;
  exec::Context context({.threads = 1});
  LoadedModel const llama = make(folder, "llama");
  Decoder decoder(context, llama.model, {.capacity = 32, .batch = 16});
  auto const move = [&](CacheMove const& one) { move_cached(decoder, 0, {&one, 1}); };
  REQUIRE_ERROR(move({3, 5, 2}), ErrorKind::out_of_range, "from position 3 to 5");
  REQUIRE_ERROR(move({30, 5, 3}), ErrorKind::out_of_range, "of 32");
  REQUIRE_ERROR(copy_cached(decoder, 0, 0, 33), ErrorKind::out_of_range, "33 of 32");
  REQUIRE_ERROR(copy_cached(decoder, 0, 1, 3), ErrorKind::out_of_range, "sequence 1");
  LoadedModel const gpt2 = make(folder, "gpt2");
  Decoder learned(context, gpt2.model, {.capacity = 32, .batch = 16});
  CacheMove const one{5, 3, 2};
  REQUIRE_ERROR(move_cached(learned, 0, {&one, 1}), ErrorKind::invalid_argument, "learned its positions");
}

TEST_CASE("A conversation whose old messages are dropped is not read again; answers are those of the whole prompt") {
  test::ScratchFolder const folder;
  exec::Context context({.threads = 1});
  for (std::string const architecture : {"llama", "gpt2"}) {
    LoadedModel const loaded = make(folder, architecture);
    auto const before = some_tokens(60);
    auto after = before;
    after.erase(after.begin() + 10, after.begin() + 25);
    Service fresh(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 96}});
    Completion const expected = fresh.submit(greedy(after))->wait();
    for (std::int64_t const chunk : {0, 8, 40}) {
      Service service(context, loaded.model, loaded.tokenizer,
                      {.decoder = {.slots = 1, .capacity = 96}, .cache = {.chunk = chunk}});
      static_cast<void>(service.submit(greedy(before, 1))->wait());
      Completion const answer = service.submit(greedy(after))->wait();
      CAPTURE(architecture, chunk, answer.reused_tokens);
      REQUIRE(answer.tokens == expected.tokens);
      // All but the last token, which goes in for its logits; a run of 35 is less than 40, and GPT-2's stay.
      REQUIRE(answer.reused_tokens == (chunk == 8 && architecture == "llama" ? 44 : 10));
    }
  }
}

TEST_CASE("A prompt of which a cache holds little takes another place and a copy of what is the same") {
  test::ScratchFolder const folder;
  exec::Context context({.threads = 1});
  LoadedModel const loaded = make(folder, "llama", 2);
  Service fresh(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 128}});
  auto const system = some_tokens(20);
  auto const conversation = [&](std::size_t which, std::size_t size) {
    auto text = system;
    for (std::int32_t const token : some_tokens(size, 100 * which + 7)) text.push_back(token);
    return text;
  };
  Service service(context, loaded.model, loaded.tokenizer,
                  {.decoder = {.slots = 2, .capacity = 128}, .cache = {.similarity = 0.5}});
  REQUIRE(service.submit(greedy(conversation(1, 60)))->wait().reused_tokens == 0);
  Completion const second = service.submit(greedy(conversation(2, 60)))->wait();
  REQUIRE(second.reused_tokens == 20);  // copied
  REQUIRE(second.tokens == fresh.submit(greedy(conversation(2, 60)))->wait().tokens);
  REQUIRE(service.submit(greedy(conversation(1, 70)))->wait().reused_tokens == 80);  // its cache is still there
  // Of another session nothing is copied.
  Request stranger = greedy(conversation(3, 60));
  stranger.session = "another";
  REQUIRE(service.submit(std::move(stranger))->wait().reused_tokens == 0);

  // From a slot that answers at the moment, too.
  Service busy(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 128}});
  std::atomic<bool> begun{false}, go_on{false};
  Request held = greedy(conversation(1, 60), 8);
  held.on_text = [&](std::string_view) {
    begun = true;
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  auto const first = busy.submit(std::move(held));
  while (!begun && !first->done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto const beside = busy.submit(greedy(conversation(2, 60)));
  go_on = true;
  REQUIRE(beside->wait().reused_tokens == 20);
  REQUIRE(beside->wait().tokens == second.tokens);
  static_cast<void>(first->wait());
}
