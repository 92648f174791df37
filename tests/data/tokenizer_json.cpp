// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/tokenizer_json.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/data/bpe_trainer.hpp>

using namespace tutti;

namespace {

std::string const corpus =
    "It's the cat's \xc3\xa9t\xc3\xa9, the cats' 1999; the cat\n\n  sat. The cat sat on the cat's mat.\n";

data::Tokenizer trained(std::string const& pattern = std::string(data::gpt2_pattern)) {
  std::vector<std::string_view> const documents = {corpus, corpus};
  return data::train_bpe(documents, {.vocabulary = 280, .pattern = pattern});
}
bool same(data::Tokenizer const& a, data::Tokenizer const& b) {
  return a.tokens() == b.tokens() && a.merges() == b.merges() && a.specials() == b.specials() &&
         a.pattern() == b.pattern() && a.whole_pieces() == b.whole_pieces();
}

nlohmann::json split_then_bytes(std::string const& pattern, std::string const& behavior) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}
nlohmann::json good() { return nlohmann::json::parse(data::tokenizer_to_json(trained())); }
void require_refused(nlohmann::json const& json, std::string const& part) {
  std::string const text = json.dump();
  REQUIRE_ERROR(data::parse_tokenizer(text, "some/tokenizer.json"), ErrorKind::format, part);
  REQUIRE_ERROR(data::parse_tokenizer(text, "some/tokenizer.json"), ErrorKind::format, "some/tokenizer.json");
}

}  // namespace

TEST_CASE("a written tokenizer is read back the same, and written again gives the same bytes") {
  test::ScratchFolder const folder;
  for (std::string const& pattern :
       {std::string(data::gpt2_pattern), std::string("\\p{L}+|\\p{N}{1,3}|\\s+|[^\\s\\p{L}\\p{N}]+")}) {
    data::Tokenizer const first = trained(pattern);
    data::write_tokenizer(folder / "tokenizer.json", first);
    data::Tokenizer const second = data::read_tokenizer(folder / "tokenizer.json");
    CHECK(same(first, second));
    CHECK(data::tokenizer_to_json(second) == io::read_file(folder / "tokenizer.json"));
    CHECK(first.encode(corpus) == second.encode(corpus));
  }
}

TEST_CASE("the file has the form of Hugging Face's tokenizers") {
  auto const json = good();
  CHECK(json["version"] == "1.0");
  CHECK(json["model"]["type"] == "BPE");
  CHECK(json["model"]["vocab"]["!"] == 0);
  CHECK(json["model"]["vocab"]["\u0120"] == 220);
  CHECK(json["model"]["vocab"]["<|endoftext|>"] == 279);
  CHECK(json["model"]["merges"].size() == 23);
  CHECK(json["model"]["merges"][0].is_string());
  CHECK(json["pre_tokenizer"]["type"] == "ByteLevel");
  CHECK(json["pre_tokenizer"]["add_prefix_space"] == false);
  CHECK(json["decoder"]["type"] == "ByteLevel");
  CHECK(json["added_tokens"][0]["content"] == "<|endoftext|>");
  CHECK(json["added_tokens"][0]["special"] == true);
}

TEST_CASE("variants that other writers produce are read") {
  auto json = good();
  for (auto& merge : json["model"]["merges"]) {  // pairs instead of text
    std::string const text = merge;
    auto const space = text.find(' ');
    merge = nlohmann::json::array({text.substr(0, space), text.substr(space + 1)});
  }
  CHECK(same(data::parse_tokenizer(json.dump(), "x"), trained()));
  json["model"].erase("type");
  json["model"].erase("dropout");
  json["model"]["continuing_subword_prefix"] = "";
  json["model"]["end_of_word_suffix"] = "";
  json["pre_tokenizer"].erase("use_regex");
  json.erase("normalizer");
  json["model"]["vocab"].erase("<|endoftext|>");  // an added token need not be in the vocabulary
  CHECK(same(data::parse_tokenizer(json.dump(), "x"), trained()));
  json["model"]["ignore_merges"] = true;
  CHECK(data::parse_tokenizer(json.dump(), "x").whole_pieces());
  json["added_tokens"][0]["id"] = 300;  // ids may have holes
  json["added_tokens"][0]["content"] = "a mark \u00e9";
  auto const holes = data::parse_tokenizer(json.dump(), "x");
  CHECK(holes.vocabulary() == 301);
  CHECK(holes.token_bytes(299).empty());
  CHECK(holes.encode("xa mark \u00e9", data::Marks::as_tokens).back() == 300);
}

TEST_CASE("what is not byte-level BPE, or asks for more, is refused by name") {
  REQUIRE_ERROR(data::parse_tokenizer("{", "x"), ErrorKind::format, "damaged");
  require_refused(nlohmann::json::array(), "no model");
  auto const change = [](auto&& edit, std::string const& part) {
    auto json = good();
    edit(json);
    require_refused(json, part);
  };
  using Json = nlohmann::json;
  change([](Json& j) { j["model"]["type"] = "WordPiece"; }, "not BPE");
  change([](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix");
  change([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  change([](Json& j) { j["model"]["dropout"] = 0.1; }, "random");
  change([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  change([](Json& j) { j["model"]["ignore_merges"] = 1; }, "ignore_merges");
  change([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, "normalizes");
  change([](Json& j) { j["pre_tokenizer"] = nullptr; }, "no pre_tokenizer");
  change([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "neither ByteLevel");
  change([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space");
  change([](Json& j) { j["pre_tokenizer"]["use_regex"] = false; }, "no pattern");
  change([](Json& j) { j["pre_tokenizer"] = split_then_bytes("(a", "Isolated"); }, "regular expression");
  change([](Json& j) { j["pre_tokenizer"] = split_then_bytes("a", "Removed"); }, "neither ByteLevel");
  change([](Json& j) { j["added_tokens"] = 1; }, "not a list");
  change([](Json& j) { j["added_tokens"][0].erase("id"); }, "lacks");
  change([](Json& j) { j["added_tokens"][0]["id"] = -1; }, "not a count");
  change([](Json& j) { j["added_tokens"][0]["id"] = 4000000000u; }, "not a count");
  change([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }, "lstrip");
  change([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }, "shares");
  change([](Json& j) { j["model"].erase("vocab"); }, "no vocab");
  change([](Json& j) { j["model"]["vocab"]["!"] = 1; }, "two tokens");
  change([](Json& j) { j["model"]["vocab"]["!"] = "0"; }, "not a count");
  change([](Json& j) { j["model"]["vocab"].erase("!"); }, "byte 33");
  change([](Json& j) { j["model"]["vocab"]["a b"] = 1000; }, "alphabet");
  change([](Json& j) { j["model"].erase("merges"); }, "no merges");
  change([](Json& j) { j["model"]["merges"][0] = "ab"; }, "merge 0");
  change([](Json& j) { j["model"]["merges"][0] = "a b c"; }, "merge 0");
  change([](Json& j) { j["model"]["merges"][0] = {"a"}; }, "merge 0");
  change([](Json& j) { j["model"]["merges"][1] = 7; }, "merge 1");
  change([](Json& j) { j["model"]["merges"][1] = "qqqq z"; }, "vocab lacks");
  change([](Json& j) { j["model"]["merges"][1] = "q z"; }, "merge 1");
  change([](Json& j) { j["model"]["merges"].push_back(j["model"]["merges"][0]); }, "twice");
}

TEST_CASE("a tokenizer damaged anywhere is refused or read, never worse") {
  std::string const text = data::tokenizer_to_json(trained());
  int refused = 0;
  for (std::size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = i % 2 == 0 ? text.substr(0, i) : text;
    if (i % 2 != 0) damaged[i] = "\"{}[]0 \xff"[i % 8];
    try {
      auto const tokenizer = data::parse_tokenizer(damaged, "x");
      CHECK(tokenizer.decode(tokenizer.encode(corpus)) == corpus);
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::format);
      ++refused;
    }
  }
  CHECK(refused > 100);
}
