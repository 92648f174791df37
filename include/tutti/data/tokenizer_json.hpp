// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `tokenizer.json` in the form of Hugging Face's tokenizers: byte-level BPE read and written. What a file asks for and
/// this library does not do (normalizers, prefix spaces, ...) is refused by name rather than ignored.

#include <tutti/data/tokenizer.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

namespace detail {

/// Reads the parts of one file; every refusal names it.
class TokenizerReader {
 public:
  TokenizerReader(std::string_view text, std::string source)
      : source_(std::move(source)), json_(io::parse_json(text, source_, "read_tokenizer")) {}

  Tokenizer read() {
    if (!json_.is_object() || !json_.contains("model") || !json_["model"].is_object()) refuse("it has no model");
    auto const& model = json_["model"];
    if (model.contains("type") && model["type"] != "BPE") refuse("its model is not BPE");
    for (char const* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model.contains(key) && !model[key].is_null() && model[key] != "")
        refuse(std::string("its model has a ") + key);
    if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0.0)
      refuse("its model drops merges at random");
    if (flag(model, "byte_fallback", false)) refuse("its model is not byte-level (byte_fallback)");
    if (json_.contains("normalizer") && !json_["normalizer"].is_null())
      refuse("it normalizes text, which would not come back unchanged");

    std::string const pattern = read_pattern();
    std::vector<SpecialToken> specials = read_added();
    read_vocabulary(model, specials);
    std::vector<Merge> merges = read_merges(model);
    bool const whole_pieces = flag(model, "ignore_merges", false);
    try {
      return Tokenizer(std::move(tokens_), std::move(merges), std::move(specials), pattern, whole_pieces);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::format) throw;
      refuse(error.message());
    }
  }

 private:
  using Json = nlohmann::json;
  static constexpr std::int64_t most_tokens = 1 << 22;

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(
        ErrorKind::format, "read_tokenizer",
        "'" + source_ + "' is not a usable tokenizer: " + why + ". Use the tokenizer.json of a byte-level BPE model");
  }
  bool flag(Json const& object, char const* key, bool otherwise) const {
    if (!object.contains(key) || object[key].is_null()) return otherwise;
    if (!object[key].is_boolean()) refuse(std::string(key) + " is neither true nor false");
    return object[key].get<bool>();
  }

  bool is_type(Json const& object, char const* type) const {
    return object.is_object() && object.contains("type") && object["type"] == type;
  }
  void check_byte_level(Json const& object) const {
    if (flag(object, "add_prefix_space", true)) refuse("it puts a space before the text (add_prefix_space)");
  }
  /// The pattern of the pre-tokenizer: ByteLevel's own, or that of one Split before it.
  std::string read_pattern() const {
    if (!json_.contains("pre_tokenizer") || json_["pre_tokenizer"].is_null()) refuse("it has no pre_tokenizer");
    auto const& pre = json_["pre_tokenizer"];
    if (is_type(pre, "ByteLevel")) {
      check_byte_level(pre);
      if (!flag(pre, "use_regex", true)) refuse("its pre_tokenizer splits by no pattern");
      return std::string(gpt2_pattern);
    }
    if (is_type(pre, "Sequence") && pre.contains("pretokenizers") && pre["pretokenizers"].is_array() &&
        pre["pretokenizers"].size() == 2) {
      auto const &split = pre["pretokenizers"][0], &bytes = pre["pretokenizers"][1];
      if (is_type(split, "Split") && is_type(bytes, "ByteLevel") && split.contains("pattern") &&
          split["pattern"].is_object() && split["pattern"].contains("Regex") && split["pattern"]["Regex"].is_string() &&
          split.contains("behavior") && split["behavior"] == "Isolated" && !flag(split, "invert", false)) {
        check_byte_level(bytes);
        if (flag(bytes, "use_regex", true)) refuse("its pre_tokenizer splits by two patterns");
        return split["pattern"]["Regex"].get<std::string>();
      }
    }
    refuse("its pre_tokenizer is neither ByteLevel nor a Split by a Regex followed by ByteLevel");
  }

  std::int32_t read_id(Json const& value, std::string const& who) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= std::uint64_t{most_tokens})
      refuse(who + " has an id that is not a count below " + std::to_string(most_tokens));
    return value.get<std::int32_t>();
  }
  std::vector<SpecialToken> read_added() const {
    std::vector<SpecialToken> specials;
    if (!json_.contains("added_tokens") || json_["added_tokens"].is_null()) return specials;
    if (!json_["added_tokens"].is_array()) refuse("added_tokens is not a list");
    for (auto const& added : json_["added_tokens"]) {
      if (!added.is_object() || !added.contains("content") || !added["content"].is_string() || !added.contains("id"))
        refuse("an added token lacks content or id");
      SpecialToken token{added["content"].get<std::string>(), 0};
      std::string const who = "added token " + io::quote_json(token.content);
      token.id = read_id(added["id"], who);
      for (char const* key : {"single_word", "lstrip", "rstrip"})
        if (flag(added, key, false)) refuse(who + " asks for " + key);
      for (auto const& other : specials)
        if (other.id == token.id || other.content == token.content)
          refuse(who + " shares its id or content with another");
      specials.push_back(std::move(token));
    }
    return specials;
  }

  void read_vocabulary(Json const& model, std::vector<SpecialToken> const& specials) {
    if (!model.contains("vocab") || !model["vocab"].is_object()) refuse("its model has no vocab");
    std::int32_t highest = -1;
    for (auto const& special : specials) highest = std::max(highest, special.id);
    ids_.reserve(model["vocab"].size());
    for (auto const& [spelled, value] : model["vocab"].items()) {
      std::int32_t const id = read_id(value, "token " + io::quote_json(spelled));
      ids_.emplace(spelled, id);
      highest = std::max(highest, id);
    }
    tokens_.resize(static_cast<std::size_t>(highest + 1));
    std::vector<bool> taken(tokens_.size()), added(tokens_.size());
    for (auto const& special : specials) added[static_cast<std::size_t>(special.id)] = true;
    for (auto const& [spelled, id] : ids_) {
      auto const place = static_cast<std::size_t>(id);
      if (taken[place]) refuse("id " + std::to_string(id) + " belongs to two tokens");
      taken[place] = true;
      if (added[place]) continue;  // its text is written as it is, not spelled
      auto bytes = unspell_bytes(spelled);
      if (!bytes || bytes->empty()) refuse("token " + io::quote_json(spelled) + " is not spelled in the byte alphabet");
      tokens_[place] = std::move(*bytes);
    }
  }

  std::vector<Merge> read_merges(Json const& model) const {
    if (!model.contains("merges") || !model["merges"].is_array()) refuse("its model has no merges");
    std::vector<Merge> merges;
    merges.reserve(model["merges"].size());
    for (auto const& entry : model["merges"]) {
      std::string const who = "merge " + std::to_string(merges.size());
      std::string left, right;
      if (entry.is_string()) {
        auto const& text = entry.get_ref<std::string const&>();
        auto const space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          refuse(who + " is not two tokens with a space between them");
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0].get<std::string>();
        right = entry[1].get<std::string>();
      } else {
        refuse(who + " is neither text nor a pair of texts");
      }
      auto const a = ids_.find(left), b = ids_.find(right);
      if (a == ids_.end() || b == ids_.end()) refuse(who + " names a token that the vocab lacks");
      merges.push_back({a->second, b->second});
    }
    return merges;
  }

  std::string source_;
  Json json_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> tokens_;
};

}  // namespace detail

/// `source` names the text in messages. Errors: format, with the source, what is wrong and what to do.
inline Tokenizer parse_tokenizer(std::string_view text, std::string source) {
  return detail::TokenizerReader(text, std::move(source)).read();
}
/// Errors: io; format.
inline Tokenizer read_tokenizer(std::string const& path) { return parse_tokenizer(io::read_file(path), path); }

/// The text of a tokenizer.json. The same tokenizer always gives the same bytes.
inline std::string tokenizer_to_json(Tokenizer const& tokenizer) {
  auto const yes_no = [](bool value) { return std::string(value ? "true" : "false"); };
  auto const byte_level = [&](bool prefix, bool use_regex) {
    return R"({"type": "ByteLevel", "add_prefix_space": )" + yes_no(prefix) +
           R"(, "trim_offsets": true, "use_regex": )" + yes_no(use_regex) + "}";
  };
  auto const quoted_token = [&](std::int32_t id) {
    std::string const& bytes = tokenizer.token_bytes(id);
    return io::quote_json(tokenizer.is_special(id) ? bytes : spell_bytes(bytes));
  };
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  std::string separator = "\n";
  for (SpecialToken const& special : tokenizer.specials()) {
    text += separator + "    {\"id\": " + std::to_string(special.id) +
            ", \"content\": " + io::quote_json(special.content) +
            R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";
    separator = ",\n";
  }
  text += "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ";
  if (tokenizer.pattern() == gpt2_pattern) text += byte_level(false, true);
  else
    text += R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )" +
            io::quote_json(tokenizer.pattern()) + R"(}, "behavior": "Isolated", "invert": false}, )" +
            byte_level(false, false) + "]}";
  text += ",\n  \"post_processor\": null,\n  \"decoder\": " + byte_level(true, true) +
          ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n" +
          "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    "
          "\"byte_fallback\": false,\n    \"ignore_merges\": " +
          yes_no(tokenizer.whole_pieces()) + ",\n    \"vocab\": {";
  separator = "\n";
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    if (tokenizer.token_bytes(id).empty()) continue;
    text += separator + "      " + quoted_token(id) + ": " + std::to_string(id);
    separator = ",\n";
  }
  text += "\n    },\n    \"merges\": [";
  separator = "\n";
  for (Merge const& merge : tokenizer.merges()) {
    text += separator + "      " +
            io::quote_json(spell_bytes(tokenizer.token_bytes(merge.left)) + " " +
                           spell_bytes(tokenizer.token_bytes(merge.right)));
    separator = ",\n";
  }
  return text + "\n    ]\n  }\n}\n";
}
/// Errors: io. The file is complete or absent.
inline void write_tokenizer(std::string const& path, Tokenizer const& tokenizer) {
  io::write_file(path, tokenizer_to_json(tokenizer));
}

}  // namespace tutti::data
