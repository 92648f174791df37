// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/decoder.hpp> <tutti/infer/sequence.hpp> <tutti/infer/gguf_model.hpp> <tutti/nn/decoding.hpp>
// Covers: <tutti/nn/stored_layers.hpp> <tutti/nn/stored_model.hpp> <tutti/nn/cached_attention.hpp>
// Covers: <tutti/infer/stopping.hpp> <tutti/infer/completion.hpp> <tutti/infer/decoder_options.hpp>
// Covers: <tutti/infer/grammar_triggers.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/completion.hpp>
#include <tutti/infer/gguf_model.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <vector>

using namespace tutti;
using namespace tutti::infer;
using test::TinyModel;
using test::TinyReference;

namespace {

/// A generated file, read.
struct Made {
  TinyModel sizes;
  test::ScratchFolder folder;
  std::shared_ptr<io::Gguf const> file;
  nn::StoredModel model;
  mutable std::map<std::vector<std::int32_t>, std::vector<double>> known;

  explicit Made(TinyModel const& m) : sizes(m) {
    std::string const path = folder / "tiny.gguf";
    write_tiny_gguf(path, m);
    file = std::make_shared<io::Gguf const>(path);
    model = read_gguf_model(file);
  }
  /// Logits behind these tokens. The reference is slow: what it said of a beginning is kept.
  std::vector<double> const& expected(std::span<std::int32_t const> tokens) const {
    std::vector<std::int32_t> const key(tokens.begin(), tokens.end());
    if (known.find(key) == known.end()) {
      TinyReference reference(*file, sizes);
      for (std::size_t i = 0; i < key.size(); ++i)
        known[{key.begin(), key.begin() + static_cast<std::ptrdiff_t>(i) + 1}] = reference(key[i]);
    }
    return known.at(key);
  }
};

/// Largest difference, as a part of the largest logit.
double off(std::span<float const> got, std::vector<double> const& expected) {
  if (got.size() != expected.size()) return 1e9;
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const difference = std::abs(double{got[i]} - expected[i]);
    worst = difference <= worst ? worst : difference;
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

std::vector<std::int32_t> some_tokens(std::size_t count, int seed = 1) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((i * 37 + 11 * static_cast<std::size_t>(seed)) % 95));
  return tokens;
}

std::vector<TinyModel> architectures() {
  TinyModel gpt2{.architecture = "gpt2"}, llama, qwen{.architecture = "qwen2"}, phi{.architecture = "phi3"};
  llama.rope_factors = true;
  qwen.tied = false;
  phi.tied = false, phi.packed_qkv = true, phi.window = 9;
  return {gpt2, llama, qwen, phi};
}

}  // namespace

TEST_CASE("Every architecture gives the logits of a naive model in double: prompts, single tokens, chunks") {
  for (TinyModel const& sizes : architectures()) {
    Made const made(sizes);
    auto const tokens = some_tokens(40);
    static_cast<void>(made.expected(tokens));
    for (BlockType const cache : {BlockType::f32, BlockType::f16, BlockType::bf16, BlockType::q8_0})
      for (int const threads : {1, 3}) {
        exec::Context context({.threads = threads});
        Decoder decoder(context, made.model, {.capacity = 48, .batch = 16, .cache = cache});
        Sequence sequence(decoder);
        double const tolerance = cache == BlockType::f32 ? 2e-5 : cache == BlockType::f16 ? 5e-3 : 6e-2;
        CAPTURE(sizes.architecture, name(cache), threads);
        REQUIRE(off(sequence.append(std::span(tokens).first(20)), made.expected(std::span(tokens).first(20))) <
                tolerance);
        REQUIRE(off(sequence.append(std::span(tokens).subspan(20, 1)), made.expected(std::span(tokens).first(21))) <
                tolerance);
        REQUIRE(off(sequence.append(std::span(tokens).subspan(21, 2)), made.expected(std::span(tokens).first(23))) <
                tolerance);
        REQUIRE(off(sequence.append(std::span(tokens).subspan(23)), made.expected(tokens)) < tolerance);
        // A text that goes another way keeps what is the same.
        auto other = tokens;
        other[30] = (other[30] + 1) % 95;
        REQUIRE(off(sequence.become(other), made.expected(other)) < tolerance);
        REQUIRE(sequence.reused() == 30);
        REQUIRE(off(sequence.become(std::span(other).first(12)), made.expected(std::span(other).first(12))) <
                tolerance);
        REQUIRE(sequence.reused() == 11);
      }
  }
}

TEST_CASE("Weights of every type give the logits of the numbers that they stand for") {
  for (std::uint32_t id : {0u, 1u, 2u, 3u, 6u, 7u, 8u, 10u, 11u, 12u, 13u, 14u, 20u, 23u, 30u})
    for (char const* const architecture : {"llama", "gpt2"}) {
      TinyModel sizes{.architecture = architecture, .type = static_cast<BlockType>(id)};
      Made const made(sizes);
      auto const tokens = some_tokens(24);
      static_cast<void>(made.expected(tokens));
      exec::Context context({.threads = 2});
      Decoder decoder(context, made.model, {.capacity = 32});
      Sequence sequence(decoder);
      CAPTURE(name(sizes.type), architecture);
      // Rows are rounded to 8 bits where weights are quantised, and layers of random weights magnify that; kernels are
      // held to the rounding itself in tests/kernel/block_product.cpp.
      double const tolerance = is_quantised(sizes.type) ? 0.2 : 1e-4;
      std::span const beginning = std::span(tokens).first(20);
      REQUIRE(off(sequence.append(beginning), made.expected(beginning)) < tolerance);
      for (std::size_t i = 20; i < tokens.size(); ++i)
        REQUIRE(off(sequence.append(std::span(tokens).subspan(i, 1)), made.expected(std::span(tokens).first(i + 1))) <
                tolerance);
    }
}

TEST_CASE("Sequences of one decoder go on together without seeing one another") {
  Made const made(architectures()[1]);
  exec::Context context({.threads = 2});
  Decoder decoder(context, made.model, {.slots = 3, .capacity = 32, .batch = 8});
  std::vector<std::vector<std::int32_t>> const texts{some_tokens(9, 1), some_tokens(20, 2), some_tokens(5, 3)};
  // Prompts of different lengths in one call, then one token of each.
  std::vector<NewToken> rows;
  for (std::int32_t slot = 0; slot < 3; ++slot)
    for (std::size_t i = 0; i + 1 < texts[static_cast<std::size_t>(slot)].size(); ++i)
      rows.push_back({texts[static_cast<std::size_t>(slot)][i], slot, static_cast<std::int32_t>(i), false});
  REQUIRE(decoder.append(rows).empty());
  rows.clear();
  for (std::int32_t slot = 2; slot >= 0; --slot) {
    auto const& text = texts[static_cast<std::size_t>(slot)];
    rows.push_back({text.back(), slot, static_cast<std::int32_t>(text.size() - 1), slot != 1});
  }
  auto const logits = decoder.append(rows);
  REQUIRE(logits.size() == 2 * 96);
  REQUIRE(off(logits.first(96), made.expected(texts[2])) < 2e-5);
  REQUIRE(off(logits.subspan(96), made.expected(texts[0])) < 2e-5);
}

TEST_CASE("The decoder is bitwise the same for any number of threads, whatever the instruction set") {
  TinyModel sizes;
  sizes.type = BlockType::q4_k;
  Made const made(sizes);
  auto const tokens = some_tokens(30);
  for (exec::Isa const isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    std::vector<float> first;
    for (int const threads : {1, 2, 3}) {
      exec::Context context({.threads = threads, .isa = isa});
      Decoder decoder(context, made.model, {.capacity = 32});
      Sequence sequence(decoder);
      sequence.append(std::span(tokens).first(25));
      std::span<float const> logits;
      for (std::size_t i = 25; i < 30; ++i) logits = sequence.append(std::span(tokens).subspan(i, 1));
      if (first.empty()) first.assign(logits.begin(), logits.end());
      REQUIRE(std::equal(first.begin(), first.end(), logits.begin(), logits.end()));
    }
  }
}

TEST_CASE("What a decoder cannot take is refused") {
  Made const made(architectures()[0]);
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(Decoder(context, made.model, {.capacity = 65}), ErrorKind::invalid_argument, "positions");
  REQUIRE_ERROR(Decoder(context, made.model, {.slots = 0}), ErrorKind::invalid_argument, "positive");
  Decoder decoder(context, made.model, {.capacity = 8});
  Sequence sequence(decoder);
  REQUIRE_ERROR(sequence.append({}), ErrorKind::invalid_argument, "no token");
  REQUIRE_ERROR(sequence.append(some_tokens(9)), ErrorKind::out_of_range, "do not fit");
  std::int32_t const unknown[] = {1, 96};
  REQUIRE_ERROR(sequence.append(unknown), ErrorKind::out_of_range, "vocabulary");
  REQUIRE(sequence.length() == 0);
}

TEST_CASE("An answer ends for the reason that it says, and its text stops before stop texts") {
  Made const made(TinyModel{});
  auto const tokenizer = data::make_tokenizer(gguf_vocabulary(*made.file), "tiny");
  exec::Context context({.threads = 1});
  Decoder decoder(context, made.model, {.capacity = 40});
  Sequence sequence(decoder);
  Sampler sampler(SamplerOptions{.temperature = 0});
  auto const prompt = tokenizer.encode("abc");
  REQUIRE(prompt.size() == 3);
  auto const run = [&](StopOptions const& stop) {
    std::string emitted;
    auto const answer =
        complete(sequence, sampler, tokenizer, prompt, stop, [&](std::string_view text) { emitted += text; });
    REQUIRE(emitted == answer.text);
    return answer;
  };
  auto const whole = run({.max_tokens = 12});
  REQUIRE(whole.reason == StopReason::max_tokens);
  REQUIRE(whole.tokens.size() == 12);
  REQUIRE(whole.text == tokenizer.decode(whole.tokens));
  // The same again, from the cache: the same text.
  auto const again = run({.max_tokens = 12});
  REQUIRE(again.reused_tokens == 2);
  REQUIRE(again.tokens == whole.tokens);
  std::string const stop = whole.text.substr(4, 3);
  auto const stopped = run({.texts = {"never there", stop}, .max_tokens = 12});
  REQUIRE(stopped.reason == StopReason::text);
  REQUIRE(stopped.text == whole.text.substr(0, whole.text.find(stop)));
  auto const ended = run({.ends = {whole.tokens[3]}, .max_tokens = 12});
  REQUIRE(ended.reason == StopReason::end_of_generation);
  REQUIRE(ended.tokens.size() <= 3);
  auto const full = run({});
  REQUIRE(full.reason == StopReason::context_full);
  REQUIRE(full.tokens.size() == 38);
  int asked = 0;
  auto const cancelled = run({.cancelled = [&] { return ++asked > 5; }});
  REQUIRE(cancelled.reason == StopReason::cancelled);
  REQUIRE(cancelled.tokens.size() == 5);
}

TEST_CASE("Stop texts hold back what may be their beginning, however pieces fall") {
  for (std::size_t piece = 1; piece < 8; ++piece) {
    StopTexts stops({"", "</end>", "##"});
    std::string const text = "a<b # c </en d#</end>never";
    std::string shown;
    bool found = false;
    for (std::size_t i = 0; i < text.size() && !found; i += piece) shown += stops.push(text.substr(i, piece), found);
    REQUIRE(found);
    REQUIRE(shown == "a<b # c </en d#");
    StopTexts open({"</end>"});
    found = false;
    std::string const rest = open.push("x</en", found);
    REQUIRE(rest == "x");
    REQUIRE(open.finish() == "</en");
  }
}

TEST_CASE("A model that is not whole is refused with its name") {
  test::ScratchFolder const folder;
  TinyModel sizes;
  sizes.architecture = "mamba";
  std::string const path = folder / "m.gguf";
  write_tiny_gguf(path, sizes);
  REQUIRE_ERROR(load_gguf(path), ErrorKind::format, "mamba");
  sizes.architecture = "llama";
  sizes.head_size = 63;
  write_tiny_gguf(path, sizes);
  REQUIRE_ERROR(load_gguf(path), ErrorKind::format, "head size");
  // A tensor that nothing would read: with it the model is another one.
  for (auto const& [architecture, extra] :
       {std::pair("llama", "blk.0.ffn_gate.bias"), std::pair("llama", "output.bias"),
        std::pair("qwen2", "blk.2.attn_norm.weight"), std::pair("phi3", "blk.1.attn_norm.bias"),
        std::pair("gpt2", "blk.0.ffn_gate.weight"), std::pair("llama", "blk.x")}) {
    sizes = {};
    sizes.architecture = architecture;
    sizes.packed_qkv = sizes.architecture == "phi3";
    sizes.extra = extra;
    write_tiny_gguf(path, sizes);
    REQUIRE_ERROR(load_gguf(path), ErrorKind::format, std::string("has a tensor '") + extra + "'");
  }
}

TEST_CASE("What a file lacks, and sizes that are not its tensors', are told with its name") {
  test::ScratchFolder const folder;
  std::string const path = folder / "m.gguf";
  write_tiny_gguf(path, TinyModel{});
  auto const changed = [&](auto&& change) {
    io::Gguf const file(path);
    io::GgufMetadata meta = file.metadata();
    change(meta);
    std::vector<io::GgufTensorPlan> plan;
    for (io::GgufTensor const& tensor : file.tensors()) plan.push_back({tensor.name, tensor.type, tensor.shape});
    std::string const to = folder / "changed.gguf";
    io::GgufWriter writer(to, meta, plan);
    for (io::GgufTensor const& tensor : file.tensors()) writer.write(tensor.data, tensor.bytes);
    writer.commit();
    return to;
  };
  for (std::string const gone : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "llama.block_count"}) {
    std::string const to = changed([&](io::GgufMetadata& meta) { meta.erase(gone); });
    REQUIRE_ERROR(load_gguf(to), ErrorKind::format, to);
    REQUIRE_ERROR(load_gguf(to), ErrorKind::format, gone);
  }
  for (char const* const size : {"llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count"}) {
    std::string const to = changed([&](io::GgufMetadata& meta) { meta.set(size, std::uint32_t{1} << 31); });
    REQUIRE_ERROR(load_gguf(to), ErrorKind::format, to);
  }
}

TEST_CASE("Rotations that old files scale by one number are those of the linear scaling") {
  test::ScratchFolder const folder;
  TinyModel sizes;
  write_tiny_gguf(folder / "plain.gguf", sizes);
  sizes.scale_linear = 4;
  write_tiny_gguf(folder / "scaled.gguf", sizes);
  auto const plain = load_gguf(folder / "plain.gguf").model.rotation.frequencies;
  auto const scaled = load_gguf(folder / "scaled.gguf").model.rotation.frequencies;
  REQUIRE(plain.size() == scaled.size());
  for (std::size_t i = 0; i < plain.size(); ++i) REQUIRE(scaled[i] == Approx(plain[i] / 4));
}
