// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/sequence_files.hpp> <tutti/infer/session_files.hpp> <tutti/infer/generator.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/generate.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/infer/sequence_files.hpp>
#include <tutti/infer/session_files.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

static_assert(Generator<Sequence> && Generator<Gpt2Decoder>);
static_assert(!Generator<Decoder>);  // many texts, none of them its own

TEST_CASE("A text is drawn from a sequence as from any generator, and goes on when it is full") {
  test::ScratchFolder const scratch;
  test::write_tiny_gguf(scratch / "tiny.gguf", {.bytes = true});
  auto const loaded = load_gguf(scratch / "tiny.gguf");
  exec::Context context({.threads = 1});
  Decoder decoder(context, loaded.model, {.capacity = 16, .batch = 16});
  Sequence sequence(decoder);
  std::vector<std::int32_t> const prompt{3, 17, 5};
  std::vector<std::int32_t> drawn;
  Sampler sampler(usual_sampling());
  auto const emit = [&](std::int32_t token) { drawn.push_back(token); };
  CHECK(generate(sequence, sampler, prompt, 12, -1, emit) == 12);
  Sampler same(usual_sampling());
  StopOptions stop;
  stop.max_tokens = 12;
  sequence.reset();
  CHECK(complete(sequence, same, loaded.tokenizer, prompt, stop, {}).tokens == drawn);
  Sampler longer(usual_sampling());
  drawn.clear();
  CHECK(generate(sequence, longer, prompt, 40, -1, emit) == 40);
}

TEST_CASE("A prompt that is cancelled ends with its piece; read in pieces it has the same bits") {
  test::ScratchFolder const scratch;
  test::TinyModel sizes{.bytes = true};
  sizes.positions = 1024;
  test::write_tiny_gguf(scratch / "tiny.gguf", sizes);
  auto const loaded = load_gguf(scratch / "tiny.gguf");
  exec::Context context({.threads = 1});
  Decoder decoder(context, loaded.model, {.capacity = 1024});
  Sequence sequence(decoder);
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 700; ++i) prompt.push_back(3 + i * 7 % 80);
  auto const copied = [](std::span<float const> logits) { return std::vector<float>(logits.begin(), logits.end()); };
  auto const whole = copied(sequence.become(prompt));
  sequence.reset();
  int asked = 0;
  auto const go_on = [&] { return ++asked < 0; };
  CHECK(copied(sequence.become(prompt, go_on)) == whole);
  CHECK(asked == 2);
  sequence.reset();
  static_cast<void>(sequence.become(prompt, [] { return true; }));
  CHECK(sequence.length() == 256);
  StopOptions stop;
  stop.cancelled = [] { return true; };
  Sampler sampler(usual_sampling());
  sequence.reset();
  Completion const ended = complete(sequence, sampler, loaded.tokenizer, prompt, stop, {});
  CHECK(ended.reason == StopReason::cancelled);
  CHECK(ended.tokens.empty());
  CHECK(sequence.length() == 256);
}

TEST_CASE("A sequence kept in a file goes on with the same bits in another decoder, slot and capacity") {
  test::ScratchFolder const scratch;
  std::vector<std::int32_t> const text{3, 17, 5, 80, 42, 42, 9, 60}, more{7, 8};
  for (std::string const architecture : {"gpt2", "llama"})
    for (BlockType const dtype : {BlockType::f32, BlockType::f16, BlockType::q8_0}) {
      test::TinyModel sizes{.architecture = architecture, .bytes = true};
      write_tiny_gguf(scratch / "tiny.gguf", sizes);
      auto const loaded = load_gguf(scratch / "tiny.gguf");
      exec::Context context({.threads = 1});
      std::vector<float> expected;
      {
        Decoder decoder(context, loaded.model, {.slots = 1, .capacity = 16, .batch = 8, .cache = dtype});
        Sequence sequence(decoder);
        static_cast<void>(sequence.append(text));
        save_sequence(scratch / "kept", sequence);
        auto const got = sequence.append(more);
        expected.assign(got.begin(), got.end());
      }
      for (std::int64_t const capacity : {10, 40, 6}) {
        INFO(architecture << " " << name(dtype) << " " << capacity);
        Decoder decoder(context, loaded.model, {.slots = 2, .capacity = capacity, .batch = 8, .cache = dtype});
        Sequence first(decoder, 0), sequence(decoder, 1);
        static_cast<void>(first.append(more));
        restore_sequence(scratch / "kept", sequence);
        std::int64_t const kept = std::min<std::int64_t>(8, capacity);
        REQUIRE(sequence.length() == kept);
        CHECK(std::equal(sequence.tokens().begin(), sequence.tokens().end(), text.begin()));
        if (capacity < 10) continue;
        auto const got = sequence.append(more);
        CHECK(std::vector<float>(got.begin(), got.end()) == expected);
      }
      // Another type of cache, another model, another file: a sentence, and the sequence stays.
      BlockType const other = dtype == BlockType::f32 ? BlockType::f16 : BlockType::f32;
      Decoder decoder(context, loaded.model, {.capacity = 16, .batch = 8, .cache = other});
      Sequence sequence(decoder);
      static_cast<void>(sequence.append(more));
      REQUIRE_ERROR(restore_sequence(scratch / "kept", sequence), ErrorKind::format, "keeps its cache in");
      write_tiny_gguf(scratch / "other.gguf", sizes, 2);
      auto const another = load_gguf(scratch / "other.gguf");
      Decoder stranger(context, another.model, {.capacity = 16, .batch = 8, .cache = dtype});
      Sequence strange(stranger);
      REQUIRE_ERROR(restore_sequence(scratch / "kept", strange), ErrorKind::format, "is of another model");
      REQUIRE_ERROR(restore_sequence(scratch / "absent", sequence), ErrorKind::io, "absent");
      // Any byte of its numbers that is another one.
      std::string const whole = io::read_file(scratch / "kept");
      for (std::size_t const back : {std::size_t{1}, std::size_t{700}, std::size_t{3000}}) {
        std::string bytes = whole;
        bytes[bytes.size() - back] = static_cast<char>(bytes[bytes.size() - back] ^ 1);
        io::write_file(scratch / "damaged", bytes);
        Decoder same(context, loaded.model, {.capacity = 16, .batch = 8, .cache = dtype});
        Sequence untouched(same);
        REQUIRE_ERROR(restore_sequence(scratch / "damaged", untouched), ErrorKind::format, "is damaged");
        CHECK(untouched.length() == 0);
      }
      CHECK(sequence.length() == 2);
      CHECK(std::filesystem::exists(scratch / "kept"));
    }
}

TEST_CASE("A session of a service goes on in another service, where its text was kept in a file") {
  test::ScratchFolder const scratch;
  test::write_tiny_gguf(scratch / "tiny.gguf", {.bytes = true});
  auto const loaded = load_gguf(scratch / "tiny.gguf");
  exec::Context context({.threads = 1});
  ServiceOptions const options{.decoder = {.slots = 2, .capacity = 32}, .prompt_chunk = 8};
  auto const ask = [](Service& service, std::string session, std::vector<std::int32_t> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.session = std::move(session);
    request.sampling.temperature = 0;
    request.stop.max_tokens = 4;
    return service.submit(std::move(request))->wait();
  };
  std::vector<std::int32_t> const text{3, 17, 5, 80, 42, 42, 9, 60};
  std::vector<std::int32_t> more = text;
  more.insert(more.end(), {7, 8});
  std::string const path = scratch / "kept";
  Completion expected;
  {
    Service service(context, loaded.model, loaded.tokenizer, options);
    CHECK(save_session(service, "a", path) == 0);
    CHECK_FALSE(io::file_exists(path));
    ask(service, "a", text);
    ask(service, "b", {1, 2, 3});
    CHECK(save_session(service, "a", path) == 8 + 4);
    expected = ask(service, "a", more);
    CHECK(expected.reused_tokens == 8);
    REQUIRE_ERROR(service.between_passes([](Decoder&, Slots&) { throw Error(ErrorKind::io, "test", "no"); }),
                  ErrorKind::io, "no");
  }
  Service service(context, loaded.model, loaded.tokenizer, options);
  ask(service, "c", text);
  CHECK(restore_session(service, "other name", path) == 12);
  Completion const got = ask(service, "other name", more);
  CHECK(got.reused_tokens == 8);
  CHECK(got.tokens == expected.tokens);
  CHECK(ask(service, "c", text).reused_tokens == 7);  // it kept its own
  REQUIRE_ERROR(restore_session(service, "x", scratch / "none"), ErrorKind::io, "none");
}
