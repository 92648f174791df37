// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/tokenizer_files.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/data/bpe_trainer.hpp>

#include <filesystem>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::data;

namespace {

using Json = nlohmann::json;

std::string const corpus =
    "the cat's \u00e9t\u00e9; the cats 1999, the other cat\n\n  thinks that the cat sat there.\n";

/// vocab.json and merges.txt of a vocabulary without marks, and what may lie beside them.
struct Folder {
  test::ScratchFolder scratch;
  std::int32_t words = 0;

  Folder() {
    std::vector<std::string_view> const documents = {corpus, corpus};
    Tokenizer const from = train_bpe(documents, {.vocabulary = 275});
    Json vocabulary;
    for (std::int32_t id = 0; id < from.vocabulary(); ++id)
      if (!from.is_special(id)) vocabulary[spell_bytes(from.token_bytes(id))] = id, words = std::max(words, id + 1);
    std::string merges = "#version: 0.2\n";
    for (Merge const& merge : from.merges())
      merges += spell_bytes(from.token_bytes(merge.left)) + " " + spell_bytes(from.token_bytes(merge.right)) + "\n";
    write("vocab.json", vocabulary.dump());
    write("merges.txt", merges);
  }
  void write(std::string const& name, std::string const& text) const { io::write_file(scratch / name, text); }
  void config(Json const& json) const { write("tokenizer_config.json", json.dump()); }
  Tokenizer read() const { return read_tokenizer_file(scratch / "vocab.json"); }
};

}  // namespace

TEST_CASE("vocab.json and merges.txt are a tokenizer with the marks of the files beside them") {
  Folder const folder;
  std::string const id = std::to_string(folder.words), next = std::to_string(folder.words + 1);
  Json const eot{
      {"content", "<|endoftext|>"}, {"lstrip", false}, {"rstrip", true}, {"normalized", false}, {"special", true}};
  Json const word{{"content", "<word>"}, {"normalized", true}, {"special", false}};
  folder.config({{"tokenizer_class", "Qwen2TokenizerFast"},
                 {"added_tokens_decoder", {{id, eot}, {next, word}}},
                 {"eos_token", "<|endoftext|>"},
                 {"additional_special_tokens", {"<|endoftext|>"}}});
  Tokenizer const qwen = folder.read();
  CHECK(qwen.vocabulary() == folder.words + 2);
  CHECK(qwen.patterns() == std::vector<std::string>{std::string(qwen2_pattern)});
  CHECK(qwen.parts().nfc);
  CHECK(qwen.special("<|endoftext|>") == folder.words);
  CHECK(qwen.is_special(folder.words));
  CHECK(qwen.specials()[0].rstrip);
  CHECK_FALSE(qwen.is_special(folder.words + 1));
  CHECK(qwen.encode("<word>") == std::vector<std::int32_t>{folder.words + 1});
  CHECK(qwen.decode(qwen.encode(corpus)) == corpus);
  CHECK(qwen.encode("e\u0301") == qwen.encode("\u00e9"));  // normalization form C

  // GPT-2's class: marks of the older files, ids of vocab.json, a text that begins with one.
  Json vocabulary = Json::parse(io::read_file(folder.scratch / "vocab.json"));
  vocabulary["<|endoftext|>"] = folder.words;
  folder.write("vocab.json", vocabulary.dump());
  folder.write("added_tokens.json", Json{{"<|im_end|>", folder.words + 1}, {"<more>", folder.words + 2}}.dump());
  folder.write("special_tokens_map.json",
               Json{{"bos_token", "<|endoftext|>"}, {"eos_token", {{"content", "<|im_end|>"}}}}.dump());
  folder.config({{"add_bos_token", true}, {"bos_token", "<|endoftext|>"}});
  folder.write("config.json", R"({"model_type": "gpt2"})");
  Tokenizer const gpt2 = folder.read();
  CHECK(gpt2.patterns() == std::vector<std::string>{std::string(gpt2_pattern)});
  CHECK(gpt2.vocabulary() == folder.words + 3);
  CHECK(gpt2.is_special(folder.words));
  CHECK(gpt2.is_special(folder.words + 1));
  CHECK_FALSE(gpt2.is_special(folder.words + 2));
  CHECK(gpt2.encode_complete("a") == std::vector<std::int32_t>{folder.words, gpt2.encode("a")[0]});

  // As a tokenizer.json it is the same.
  for (Tokenizer const* const tokenizer : {&qwen, &gpt2})
    CHECK(parse_tokenizer(tokenizer_to_json(*tokenizer), "t").encode(corpus) == tokenizer->encode(corpus));
  CHECK(tokenizer_text(folder.scratch / "vocab.json") == tokenizer_to_json(gpt2));
  CHECK(tokenizer_in(folder.scratch / "") == folder.scratch / "vocab.json");
  folder.write("tokenizer.json", tokenizer_to_json(qwen));
  CHECK(tokenizer_in(folder.scratch / "") == folder.scratch / "tokenizer.json");
  CHECK(read_tokenizer_file(folder.scratch / "tokenizer.json").parts() == qwen.parts());
  CHECK(tokenizer_text(folder.scratch / "tokenizer.json") == tokenizer_to_json(qwen));
  CHECK(tokenizer_in(folder.scratch / "none").empty());
}

TEST_CASE("Vocabularies that do not say how texts are cut, or whose marks have no id, are refused") {
  Folder const folder;
  auto const refused = [&](Json const& config, char const* why) {
    folder.config(config);
    REQUIRE_ERROR(folder.read(), ErrorKind::format, why);
  };
  refused(Json::object(), "nothing says which tokenizer's");
  refused({{"tokenizer_class", "RobertaTokenizer"}}, "vocab.json and merges.txt of 'RobertaTokenizer' do not say");
  refused({{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}}, "add_prefix_space");
  refused({{"tokenizer_class", "GPT2Tokenizer"}, {"eos_token", "<|end|>"}}, "special token \"<|end|>\" has no id");
  refused({{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", {{"x", {{"content", "<a>"}}}}}}, "\"x\"");
  refused({{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", {{"7", {{"content", "<a>"}}}}}},
          "id 7 stands twice");
  refused({{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", {{"999", {{"content", "a"}}}}}},
          "the mark \"a\" has id");
  folder.config({{"tokenizer_class", "GPT2Tokenizer"}});
  folder.write("added_tokens.json", R"({"<a>": "seven"})");
  REQUIRE_ERROR(folder.read(), ErrorKind::format, "added_tokens.json");
  std::filesystem::remove(folder.scratch / "added_tokens.json");
  std::filesystem::remove(folder.scratch / "merges.txt");
  REQUIRE_ERROR(folder.read(), ErrorKind::format, "no merges.txt beside it");
  CHECK(tokenizer_in(folder.scratch / "").empty());
}
