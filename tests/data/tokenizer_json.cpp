// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/data/tokenizer_reader.hpp>
#include <tutti/data/tokenizer_json.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/data/bpe_trainer.hpp>

#include <random>

using namespace tutti;

namespace {

std::string const corpus =
    "It's the cat's \xc3\xa9t\xc3\xa9, the cats' 1999; the cat\n\n  sat. The cat sat on the cat's mat.\n";

data::Tokenizer trained(std::string const& pattern = std::string(data::gpt2_pattern)) {
  std::vector<std::string_view> const documents = {corpus, corpus};
  return data::train_bpe(documents, {.vocabulary = 280, .pattern = pattern});
}
bool same(data::Tokenizer const& a, data::Tokenizer const& b) {
  return a.tokens() == b.tokens() && a.parts() == b.parts();
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
  change([](Json& j) { j["model"]["byte_fallback"] = true; }, "falls back to bytes");
  change([](Json& j) { j["model"]["ignore_merges"] = 1; }, "ignore_merges");
  change([](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; }, "NFKC");
  change([](Json& j) { j["pre_tokenizer"] = nullptr; }, "not ByteLevel");
  change([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "Metaspace is none");
  change([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space");
  change([](Json& j) { j["pre_tokenizer"] = split_then_bytes("(a", "Isolated"); }, "regular expression");
  change([](Json& j) { j["pre_tokenizer"] = split_then_bytes("a", "Removed"); }, "does not isolate");
  change([](Json& j) { j["normalizer"] = {{"type", "Sequence"}}; }, "without normalizers");
  change([](Json& j) { j["normalizer"] = 1; }, "no type");
  change(
      [](Json& j) {
        j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {j["pre_tokenizer"], j["pre_tokenizer"]}}};
      },
      "behind ByteLevel");
  change([](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; }, "BertProcessing");
  change([](Json& j) { j["model"]["unk_token"] = "nothing"; }, "nothing");
  change([](Json& j) { j["added_tokens"] = 1; }, "not a list");
  change([](Json& j) { j["added_tokens"][0].erase("id"); }, "lacks");
  change([](Json& j) { j["added_tokens"][0]["id"] = -1; }, "not a count");
  change([](Json& j) { j["added_tokens"][0]["id"] = 4000000000u; }, "not a count");
  change([](Json& j) { j["added_tokens"][0]["lstrip"] = 1; }, "lstrip");
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

namespace {

nlohmann::json steps(char const* key, std::vector<nlohmann::json> const& list) {
  return {{"type", "Sequence"}, {key, list}};
}

/// SentencePiece's kind, as LLaMA's file has it: ids are places in the list.
nlohmann::json characters() {
  auto json = good();
  json["added_tokens"] = {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
                          {{"id", 1}, {"content", "<s>"}, {"special", true}},
                          {{"id", 2}, {"content", "</s>"}, {"special", true}}};
  json["normalizer"] =
      steps("normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                            {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}});
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  auto& model = json["model"];
  model["byte_fallback"] = true;
  model["unk_token"] = "<unk>";
  model["vocab"] = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  int next = 3;
  char name[8];
  for (int byte = 0; byte < 256; ++byte) {
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    model["vocab"][name] = next++;
  }
  for (char const* token : {"\u2581", "a", "b", "\u00e9", "ab", "\u2581ab", "\u2581\u2581"})
    model["vocab"][token] = next++;
  model["merges"] = {"a b", "\u2581 ab", "\u2581 \u2581"};
  return json;
}
using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("SentencePiece's kind: spaces, merges, bytes of what has no token, and back") {
  auto const tokenizer = data::parse_tokenizer(characters().dump(), "x");
  CHECK(tokenizer.encode("") == Ids{});
  CHECK(tokenizer.encode("ab") == Ids{264});
  CHECK(tokenizer.encode("ab ab") == Ids{264, 264});
  CHECK(tokenizer.encode(" ab") == Ids{259, 264});  // two spaces would merge last
  CHECK(tokenizer.encode("b\u00e9z") == Ids{259, 261, 262, 3 + 'z'});
  CHECK(tokenizer.encode("\u20ac\n") == Ids{259, 3 + 0xe2, 3 + 0x82, 3 + 0xac, 3 + '\n'});
  CHECK(tokenizer.encode_complete("ab") == Ids{1, 264});
  CHECK(tokenizer.encode("ab</s>ab", data::Marks::as_tokens) == Ids{264, 2, 264});
  for (std::string const text : {"ab", " ab", "", "a  b\n\u20ac", "\xff\xfe a"})
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(same(data::parse_tokenizer(data::tokenizer_to_json(tokenizer), "x"), tokenizer));
}

TEST_CASE("Metaspace puts a space where the file says so") {
  auto json = characters();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  auto const first = data::parse_tokenizer(json.dump(), "x");
  CHECK(first.encode("ab</s>ab", data::Marks::as_tokens) == Ids{264, 2, 263});
  CHECK(first.encode(" ab") == Ids{264});
  CHECK(same(data::parse_tokenizer(data::tokenizer_to_json(first), "x"), first));
  json["pre_tokenizer"]["prepend_scheme"] = "always";
  CHECK(data::parse_tokenizer(json.dump(), "x").encode("ab</s>ab", data::Marks::as_tokens) == Ids{264, 2, 264});
  json["pre_tokenizer"]["split"] = true;
  CHECK(data::parse_tokenizer(json.dump(), "x").encode("ab  ab") == Ids{264, 259, 264});
  json["pre_tokenizer"]["prepend_scheme"] = "sometimes";
  REQUIRE_ERROR(data::parse_tokenizer(json.dump(), "x"), ErrorKind::format, "prepend_scheme");
  json["model"]["type"] = "Unigram";
  REQUIRE_ERROR(data::parse_tokenizer(json.dump(), "x"), ErrorKind::format, "Unigram, not BPE");
}

TEST_CASE("normalization, digits and added words do what the file says") {
  auto json = good();
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = steps("pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}},
                                                  {{"type", "ByteLevel"}, {"add_prefix_space", false}}});
  json["added_tokens"].push_back({{"id", 300}, {"content", "ca\u0301t"}, {"special", false}, {"normalized", true}});
  auto const tokenizer = data::parse_tokenizer(json.dump(), "x");
  CHECK(tokenizer.parts().nfc);
  CHECK(tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9"));
  CHECK(tokenizer.encode("c\u00e1t") == Ids{300});  // found in the normalized text, whatever `Marks` says
  CHECK(tokenizer.patterns() ==
        std::vector<std::string>{std::string(data::digit_pattern), std::string(data::gpt2_pattern)});
  CHECK(same(data::parse_tokenizer(data::tokenizer_to_json(tokenizer), "x"), tokenizer));
}

TEST_CASE("merges that make a special token are read, and make none") {
  auto json = good();
  json["model"]["vocab"]["<|"] = 300;
  json["model"]["merges"].push_back("< |");
  json["added_tokens"].push_back({{"id", 300}, {"content", "<|"}, {"special", true}, {"normalized", false}});
  auto const tokenizer = data::parse_tokenizer(json.dump(), "x");
  Ids const plain = data::parse_tokenizer(good().dump(), "x").encode("<|");
  CHECK(tokenizer.encode("<|") == plain);
  CHECK(tokenizer.encode("<|", data::Marks::as_tokens) == Ids{300});  // as Hugging Face's tokenizers do
  CHECK(same(data::parse_tokenizer(data::tokenizer_to_json(tokenizer), "x"), tokenizer));
}

TEST_CASE("two tokens of one spelling are refused where they are written: nobody could read them") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {std::string(data::end_of_text_mark), std::string(data::end_of_text_mark)});
  data::Tokenizer const tokenizer(tokens, {}, {{std::string(data::end_of_text_mark), 257}});
  REQUIRE_ERROR(data::tokenizer_to_json(tokenizer), ErrorKind::format, "two tokens are spelled \"<|endoftext|>\"");
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

TEST_CASE("a tokenizer damaged at random is refused or read; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  std::string const llama = R"({"version":"1.0","normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]},
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
      {"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]})";
  std::string const whole = data::tokenizer_to_json(trained());
  test::Fuzzer fuzzer(300, {whole, llama + whole.substr(whole.find(','))},
                      {"\"id\":4294967295,", "\"type\":\"Metaspace\",", "\"pattern\":{\"Regex\":\"(a+)+$\"},",
                       "\"behavior\":\"Isolated\",", "\"pattern\":{\"Regex\":\"(\"},", "null", "\"merges\":[",
                       "\"byte_fallback\":true,", "[\"a\",\"b\"],"});
  int refused = 0;
  std::mt19937 random(5);
  while (fuzzer.next()) {
    std::string const damaged = fuzzer.damaged();
    try {
      auto const tokenizer = data::parse_tokenizer(damaged, "x");
      std::string bytes;
      for (std::size_t n = fuzzer.below(200); n > 0; --n) bytes += static_cast<char>(random());
      static_cast<void>(tokenizer.decode(tokenizer.encode(corpus + bytes, data::Marks::as_tokens)));
      // Written and read again it is the same.
      data::Tokenizer const again = data::parse_tokenizer(data::tokenizer_to_json(tokenizer), "y");
      REQUIRE(same(again, tokenizer));
    } catch (Error const& error) {
      INFO(damaged);
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused;
    }
  }
  CHECK(refused > 50);
}
