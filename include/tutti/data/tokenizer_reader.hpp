// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reads `tokenizer.json` in the form of Hugging Face's tokenizers: byte-level BPE, and BPE over characters with byte
/// fallback (SentencePiece's kind). What a file asks for and this library does not do is refused by name rather than
/// ignored.

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/io/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data::detail {

/// The byte that `<0x41>` names; nothing for other texts.
inline std::optional<std::size_t> byte_named(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  std::size_t byte = 0;
  for (char const digit : text.substr(3, 2)) {
    if (digit >= '0' && digit <= '9') byte = byte * 16 + static_cast<std::size_t>(digit - '0');
    else if (digit >= 'A' && digit <= 'F') byte = byte * 16 + static_cast<std::size_t>(digit - 'A' + 10);
    else return std::nullopt;
  }
  return byte;
}

/// Reads the parts of one file; every refusal names it.
class TokenizerReader {
 public:
  TokenizerReader(std::string_view text, std::string source)
      : source_(std::move(source)), json_(io::parse_json(text, source_, "read_tokenizer")) {}

  Tokenizer read() {
    if (!json_.is_object() || !json_.contains("model") || !json_["model"].is_object()) refuse("it has no model");
    auto const& model = json_["model"];
    if (model.contains("type") && model["type"] != "BPE")
      refuse("its model is " + (model["type"].is_string() ? model["type"].get<std::string>() : "of no type") +
             ", not BPE");
    for (char const* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (given(model, key) && model[key] != "") refuse(std::string("its model has a ") + key);
    if (given(model, "dropout") && model["dropout"] != 0.0) refuse("its model drops merges at random");
    if (flag(model, "byte_fallback", false)) parts_.alphabet = Alphabet::characters;
    parts_.patterns.clear();
    if (given(json_, "normalizer")) read_normalizer(json_["normalizer"]);
    if (given(json_, "pre_tokenizer")) read_pre_tokenizer(json_["pre_tokenizer"], true);
    if (characters() != spaced_ || characters() == byte_level_)
      refuse(characters() ? "it falls back to bytes and does not write spaces as U+2581"
                          : "its pre_tokenizer is not ByteLevel and its model does not fall back to bytes");
    parts_.specials = read_added();
    read_vocabulary(model);
    parts_.merges = read_merges(model);
    parts_.whole_pieces = flag(model, "ignore_merges", false);
    parts_.fuse_unknown = flag(model, "fuse_unk", false);
    if (given(model, "unk_token")) parts_.roles.unknown = id_of(model["unk_token"], "the unknown token");
    else parts_.drop_unknown = !characters() && has_learned_alphabet(parts_.tokens);
    if (given(json_, "post_processor")) read_processor(json_["post_processor"]);
    try {
      return Tokenizer(std::move(parts_));
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::format) throw;
      refuse(error.message());
    }
  }

 private:
  using Json = nlohmann::json;
  static constexpr std::int64_t most_tokens = 1 << 22;

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "read_tokenizer",
                "'" + source_ + "' is not a usable tokenizer: " + why +
                    ". Use the tokenizer.json of a byte-level BPE model or of a model of LLaMA's kind");
  }
  static bool given(Json const& object, char const* key) { return object.contains(key) && !object[key].is_null(); }
  bool flag(Json const& object, char const* key, bool otherwise) const {
    if (!given(object, key)) return otherwise;
    if (!object[key].is_boolean()) refuse(std::string(key) + " is neither true nor false");
    return object[key].get<bool>();
  }
  bool characters() const noexcept { return parts_.alphabet == Alphabet::characters; }
  std::string type_of(Json const& object, char const* who) const {
    if (!object.is_object() || !object.contains("type") || !object["type"].is_string())
      refuse(std::string("its ") + who + " has no type");
    return object["type"].get<std::string>();
  }
  Json const& list_of(Json const& object, char const* key, char const* who) const {
    if (!object.contains(key) || !object[key].is_array())
      refuse(std::string("its ") + who + " is a Sequence without " + key);
    return object[key];
  }

  void read_normalizer(Json const& normalizer) {
    std::string const type = type_of(normalizer, "normalizer");
    auto const is = [&](char const* key, std::string_view text) {
      return normalizer.contains(key) && normalizer[key] == text;
    };
    if (type == "Sequence") {
      for (auto const& step : list_of(normalizer, "normalizers", "normalizer")) read_normalizer(step);
    } else if (type == "NFC" && !spaced_) {
      parts_.nfc = true;
    } else if (type == "Prepend" && is("prepend", space_mark) && !spaced_) {
      parts_.prefix_space = PrefixSpace::always;
    } else if (type == "Replace" && normalizer.contains("pattern") && normalizer["pattern"].is_object() &&
               normalizer["pattern"].value("String", Json()) == " " && is("content", space_mark)) {
      spaced_ = true;
    } else {
      refuse("its normalizer " + type + " is none of NFC, Prepend and Replace of spaces, in this order");
    }
  }

  void read_pre_tokenizer(Json const& pre, bool outermost) {
    std::string const type = type_of(pre, "pre_tokenizer");
    if (byte_level_) refuse("its pre_tokenizer goes on behind ByteLevel");
    if (type == "Sequence" && outermost) {
      for (auto const& step : list_of(pre, "pretokenizers", "pre_tokenizer")) read_pre_tokenizer(step, false);
    } else if (type == "ByteLevel") {
      if (flag(pre, "add_prefix_space", true)) refuse("it puts a space before the text (add_prefix_space)");
      byte_level_ = true;
      if (flag(pre, "use_regex", true)) parts_.patterns.emplace_back(gpt2_pattern);
    } else if (type == "Digits") {
      parts_.patterns.emplace_back(flag(pre, "individual_digits", false) ? digit_pattern
                                                                         : std::string_view(R"(\p{N}+)"));
    } else if (type == "Split") {
      if (!pre.contains("pattern") || !pre["pattern"].is_object() || !pre["pattern"].contains("Regex") ||
          !pre["pattern"]["Regex"].is_string())
        refuse("its pre_tokenizer has a Split without a Regex");
      if (!pre.contains("behavior") || pre["behavior"] != "Isolated" || flag(pre, "invert", false))
        refuse("its pre_tokenizer has a Split that does not isolate what its Regex matches");
      parts_.patterns.push_back(pre["pattern"]["Regex"].get<std::string>());
    } else if (type == "Metaspace" && characters() && !spaced_) {
      read_metaspace(pre);
    } else {
      refuse("its pre_tokenizer " + type + " is none of ByteLevel, Split, Digits, Metaspace and a Sequence of them");
    }
  }
  void read_metaspace(Json const& pre) {
    if (pre.value("replacement", Json()) != space_mark) refuse("its Metaspace does not write spaces as U+2581");
    Json const scheme = given(pre, "prepend_scheme")          ? pre["prepend_scheme"]
                        : flag(pre, "add_prefix_space", true) ? Json("always")
                                                              : Json("never");
    if (scheme == "always") parts_.prefix_space = PrefixSpace::unless_present;
    else if (scheme == "first") parts_.prefix_space = PrefixSpace::first;
    else refuse("its Metaspace has a prepend_scheme that is neither always nor first");
    if (flag(pre, "split", true)) parts_.patterns.emplace_back(R"(\x{2581}[^\x{2581}]*)");
    spaced_ = true;
  }

  /// Roles of the tokens that are put around a text.
  void read_processor(Json const& processor) {
    std::string const type = type_of(processor, "post_processor");
    if (type == "Sequence") {
      for (auto const& step : list_of(processor, "processors", "post_processor")) read_processor(step);
      return;
    }
    if (type == "ByteLevel") return;
    if (type != "TemplateProcessing") refuse("its post_processor " + type + " is not TemplateProcessing");
    bool behind = false;
    for (auto const& part : list_of(processor, "single", "post_processor")) {
      if (!part.is_object()) refuse("its post_processor has a part that is no object");
      if (part.contains("Sequence")) {
        behind = true;
        continue;
      }
      if (!part.contains("SpecialToken") || !part["SpecialToken"].is_object())
        refuse("its post_processor has a part that is neither Sequence nor SpecialToken");
      auto& role = behind ? parts_.roles.end : parts_.roles.begin;
      if (role) refuse("its post_processor puts two tokens on one side of a text");
      role = id_of(part["SpecialToken"].value("id", Json()), "a token of the post_processor");
      (behind ? parts_.roles.add_end : parts_.roles.add_begin) = true;
    }
  }
  std::int32_t id_of(Json const& content, char const* who) const {
    if (!content.is_string()) refuse(std::string(who) + " is not text");
    std::string const text = content.get<std::string>();
    for (SpecialToken const& special : parts_.specials)
      if (special.content == text) return special.id;
    auto const found = ids_.find(text);
    if (found == ids_.end()) refuse(std::string(who) + " " + io::quote_json(text) + " does not exist");
    return found->second;
  }

  std::int32_t read_id(Json const& value, std::string const& who) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= std::uint64_t{most_tokens})
      refuse(who + " has an id that is not a count below " + std::to_string(most_tokens));
    return value.get<std::int32_t>();
  }
  std::vector<SpecialToken> read_added() const {
    std::vector<SpecialToken> specials;
    std::unordered_map<std::string, std::int32_t> contents;
    std::unordered_map<std::int32_t, int> ids;
    if (!given(json_, "added_tokens")) return specials;
    if (!json_["added_tokens"].is_array()) refuse("added_tokens is not a list");
    for (auto const& added : json_["added_tokens"]) {
      if (!added.is_object() || !added.contains("content") || !added["content"].is_string() || !added.contains("id"))
        refuse("an added token lacks content or id");
      SpecialToken token{added["content"].get<std::string>()};
      std::string const who = "added token " + io::quote_json(token.content);
      token.id = read_id(added["id"], who);
      token.lstrip = flag(added, "lstrip", false);
      token.rstrip = flag(added, "rstrip", false);
      token.single_word = flag(added, "single_word", false);
      token.normalized = flag(added, "normalized", false);
      token.special = flag(added, "special", true);
      if (!contents.emplace(token.content, token.id).second || !ids.emplace(token.id, 0).second)
        refuse(who + " shares its id or content with another");
      specials.push_back(std::move(token));
    }
    return specials;
  }

  void read_vocabulary(Json const& model) {
    if (!model.contains("vocab") || !model["vocab"].is_object()) refuse("its model has no vocab");
    std::int32_t highest = -1;
    for (auto const& special : parts_.specials) highest = std::max(highest, special.id);
    ids_.reserve(model["vocab"].size());
    for (auto const& [spelled, value] : model["vocab"].items()) {
      std::int32_t const id = read_id(value, "token " + io::quote_json(spelled));
      ids_.emplace(spelled, id);
      highest = std::max(highest, id);
    }
    parts_.tokens.resize(static_cast<std::size_t>(highest + 1));
    std::vector<bool> taken(parts_.tokens.size()), added(parts_.tokens.size());
    for (auto const& special : parts_.specials) added[static_cast<std::size_t>(special.id)] = true;
    if (characters()) parts_.byte_tokens.assign(256, -1);
    for (auto const& [spelled, id] : ids_) {
      auto const place = static_cast<std::size_t>(id);
      if (taken[place]) refuse("id " + std::to_string(id) + " belongs to two tokens");
      taken[place] = true;
      if (characters()) {
        if (auto const byte = byte_named(spelled)) parts_.byte_tokens[*byte] = id;
        parts_.tokens[place] = spelled;
        continue;
      }
      auto bytes = unspell_bytes(spelled);
      if (added[place] && (!bytes || bytes->empty())) continue;  // its text may be written as it is, not spelled
      if (!bytes || bytes->empty()) refuse("token " + io::quote_json(spelled) + " is not spelled in the byte alphabet");
      parts_.tokens[place] = std::move(*bytes);
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
  TokenizerParts parts_;
  bool spaced_ = false, byte_level_ = false;
};

}  // namespace tutti::data::detail
