// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/gpt2_files.hpp>

#include <cmath>
#include <string>
#include <vector>

using namespace tutti;

namespace {

/// All bytes, two merges and the mark: fewer tokens than the model has classes.
// Covers: <tutti/train/gguf_sizes.hpp> <tutti/train/gguf_tokenizer.hpp>
data::Tokenizer small_tokenizer() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("th");
  tokens.emplace_back("the");
  tokens.emplace_back(data::end_of_text_mark);
  return {tokens, {{'t', 'h'}, {256, 'e'}}, {{std::string(data::end_of_text_mark), 258}}};
}

train::Gpt2Model small_model() {
  nn::Gpt2Config const config{
      .layers = 2, .heads = 2, .channels = 32, .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 16};
  train::Gpt2Model model(config);
  nn::initialise_gpt2(config, model.mutable_data(), 7);
  Mt19937 generator(3);
  for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i) {
    std::vector<float> noise(static_cast<std::size_t>(nn::gpt2_shape(config, i).size()));
    generator.fill_normal(noise, 0.0f, 0.2f);
    for (std::size_t j = 0; j < noise.size(); ++j) model.mutable_data()[i][j] += noise[j];
  }
  return model;
}

double difference(std::span<float const> a, std::span<float const> b) {
  double worst = a.size() == b.size() ? 0 : 1e9, scale = 1e-9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
    scale = std::max(scale, std::abs(double{b[i]}));
  }
  return worst / scale;
}

}  // namespace

TEST_CASE("A GPT-2 written as a GGUF file gives its logits again, within what its type rounds, and its tokens") {
  train::Gpt2Model const model = small_model();
  data::Tokenizer const tokenizer = small_tokenizer();
  test::ScratchFolder const folder;
  std::vector<std::int32_t> const tokens{3, 258, 0, 17, 299, 8, 21};
  exec::Context context({.threads = 2});
  infer::Gpt2Decoder reference(context, model.weights());
  auto const expected = reference.append(tokens);
  for (auto const& [type, tolerance] :
       {std::pair{BlockType::f32, 1e-5}, {BlockType::f16, 2e-3}, {BlockType::q8_0, 5e-2}, {BlockType::q4_k, 5e-2}}) {
    std::string const path = folder / "model.gguf";
    std::string last;
    train::write_gguf(
        path, model.weights(), tokenizer, "small",
        {.type = type, .progress = [&](std::string const& name, BlockType, std::int64_t done, std::int64_t total) {
           last = done == total ? name : "";
         }});
    REQUIRE(last == "output_norm.bias");
    auto const loaded = infer::load_gguf(path);
    infer::Decoder decoder(context, loaded.model);
    infer::Sequence sequence(decoder);
    CAPTURE(name(type));
    // Rows of 32 numbers are no blocks of Q4_K: Q8_0 stands for it.
    REQUIRE(difference(sequence.append(tokens), expected) < tolerance);
    REQUIRE(decoder.capacity() == std::int64_t{16});
    REQUIRE(loaded.tokenizer.encode("the cat, there") == tokenizer.encode("the cat, there"));
    REQUIRE(loaded.tokenizer.encode_complete("a").front() == 258);
    REQUIRE(loaded.tokenizer.vocabulary() == 300);
  }
}

TEST_CASE("A GGUF file converted to another type keeps its metadata and its numbers within what the type rounds") {
  train::Gpt2Model const model = small_model();
  test::ScratchFolder const folder;
  std::string const first = folder / "first.gguf", second = folder / "second.gguf";
  train::write_gguf(first, model.weights(), small_tokenizer(), "small", {.type = BlockType::f32});
  train::write_gguf(second, io::Gguf(first), {.type = BlockType::bf16});
  io::Gguf const a(first), b(second);
  REQUIRE(b.tensors().size() == a.tensors().size());
  REQUIRE(b.at("blk.1.ffn_up.weight").type == BlockType::bf16);
  REQUIRE(b.at("blk.1.ffn_up.bias").type == BlockType::f32);
  REQUIRE(difference(b.floats("blk.1.ffn_up.weight").elements(), a.floats("blk.1.ffn_up.weight").elements()) < 0.005);
  REQUIRE(b.metadata().get<std::string>("general.name") == "small");
  REQUIRE(b.metadata().get<std::int64_t>("tokenizer.ggml.bos_token_id") == 258);
}

TEST_CASE("A vocabulary with ChatML's marks brings the template to chat by, and the mark that ends an answer") {
  train::Gpt2Model const model = small_model();
  test::ScratchFolder const folder;
  std::string const path = folder / "chat.gguf";
  train::write_gguf(path, model.weights(), small_tokenizer(), "small");
  REQUIRE(infer::load_gguf(path).chat_template.empty());
  data::Tokenizer const plain = small_tokenizer();
  std::vector<std::string> tokens = plain.tokens();
  std::vector<data::SpecialToken> specials = plain.specials();
  for (std::string const& mark : data::chat_marks(data::ChatFormat::chatml)) {
    specials.push_back({mark, static_cast<std::int32_t>(tokens.size())});
    tokens.push_back(mark);
  }
  train::write_gguf(path, model.weights(), data::Tokenizer(tokens, plain.merges(), specials), "small");
  auto const loaded = infer::load_gguf(path);
  data::ChatTemplate const chat = data::choose_chat_template(loaded.chat_template);
  REQUIRE(chat.format == data::ChatFormat::chatml);
  REQUIRE(chat.default_system.empty());
  REQUIRE(loaded.tokenizer.roles().end_of_turn == 260);
  std::vector<data::ChatMessage> const talk{{"user", "the"}};
  auto const ids = loaded.tokenizer.encode_complete(data::render_chat(chat, talk), data::Marks::as_tokens);
  REQUIRE(ids[0] == 258);  // as documents of training data begin
  REQUIRE(ids[1] == 259);
}

TEST_CASE("A tokenizer that is not the model's is refused, and no file appears") {
  train::Gpt2Model const model = small_model();
  nn::Gpt2Weights weights = model.weights();
  test::ScratchFolder const folder;
  std::string const path = folder / "model.gguf";
  weights.config.vocabulary = 200;
  REQUIRE_ERROR(train::write_gguf(path, weights, small_tokenizer(), "small"), ErrorKind::configuration, "259 tokens");
  REQUIRE(folder.names().empty());
}
