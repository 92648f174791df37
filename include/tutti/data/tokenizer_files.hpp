// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tokenizer of a folder as Hugging Face publishes models: tokenizer.json, or, where there is none, vocab.json with
/// merges.txt, and what tokenizer_config.json, added_tokens.json and special_tokens_map.json say beside them.

#include <tutti/core/concat.hpp>
#include <tutti/data/tokenizer_json.hpp>
#include <tutti/data/vocabulary_files.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

namespace detail {

/// Reads vocab.json and its neighbours; every refusal names the file.
class VocabularyFolder {
 public:
  explicit VocabularyFolder(std::string vocabulary)
      : vocabulary_(std::move(vocabulary)), folder_(std::filesystem::path(vocabulary_).parent_path()) {}

  Tokenizer read() {
    std::string const merges = beside("merges.txt");
    if (!io::file_exists(merges))
      refuse(vocabulary_, "there is no merges.txt beside it", "Fetch it too, or tokenizer.json");
    config_ = object("tokenizer_config.json");
    std::string const text = io::read_file(vocabulary_);
    known_ = io::parse_json(text, vocabulary_, "read_tokenizer");
    ByteLevelOptions options;
    if (qwen2()) options.patterns = {std::string(qwen2_pattern)}, options.nfc = true;
    if (flag(config_, "add_prefix_space"))
      refuse(beside("tokenizer_config.json"), "add_prefix_space puts a space before every text", "Use another model");
    collect_marks();
    for (auto& [content, token] : marks_) options.specials.push_back(std::move(token));
    std::sort(options.specials.begin(), options.specials.end(),
              [](SpecialToken const& a, SpecialToken const& b) { return a.id < b.id; });
    Tokenizer tokenizer = parse_gpt2_vocabulary(io::read_file(merges), merges, text, vocabulary_, std::move(options));
    auto const begin = mark_named("bos_token");
    if (!flag(config_, "add_bos_token") || !begin) return tokenizer;
    TokenizerParts parts = tokenizer.parts();
    parts.roles.begin = tokenizer.special(*begin);
    parts.roles.add_begin = true;
    return Tokenizer(std::move(parts));
  }

 private:
  using Json = nlohmann::json;

  [[noreturn]] static void refuse(std::string const& file, std::string const& why,
                                  char const* advice = "Fetch the files again") {
    throw Error(ErrorKind::format, "read_tokenizer",
                concat("'", file, "' is not a usable tokenizer: ", why, ". ", advice));
  }
  std::string beside(char const* name) const { return (folder_ / name).string(); }
  /// An absent file is an empty object.
  Json object(char const* name) const {
    std::string const path = beside(name);
    if (!io::file_exists(path)) return Json::object();
    Json json = io::parse_json(io::read_file(path), path, "read_tokenizer");
    if (!json.is_object()) refuse(path, "it is no JSON object");
    return json;
  }
  static bool flag(Json const& json, char const* key) {
    auto const found = json.find(key);
    return found != json.end() && found->is_boolean() && found->get<bool>();
  }

  /// How texts are cut is in no file: it is what the class does whose name one of them has.
  bool qwen2() const {
    auto const text = [](Json const& json, char const* key) {
      auto const found = json.find(key);
      return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    std::string kind = text(config_, "tokenizer_class"), where = beside("tokenizer_config.json");
    if (kind.empty()) kind = text(object("config.json"), "model_type"), where = beside("config.json");
    if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
    if (kind == "Qwen2Tokenizer" || kind == "qwen2") return true;
    if (kind == "GPT2Tokenizer" || kind == "gpt2") return false;
    refuse(where,
           kind.empty() ? "nothing says which tokenizer's vocab.json and merges.txt lie beside it"
                        : concat("vocab.json and merges.txt of '", kind.substr(0, 40),
                                 "' do not say how texts are cut, but for GPT2Tokenizer and Qwen2Tokenizer"),
           "Put the model's tokenizer.json into the folder: transformers' save_pretrained writes it");
  }

  /// What a key of special tokens holds: a text, or an added token with its content.
  static std::optional<std::string> content_of(Json const& json) {
    if (json.is_string()) return json.get<std::string>();
    if (json.is_object() && json.contains("content") && json["content"].is_string())
      return json["content"].get<std::string>();
    return std::nullopt;
  }
  std::optional<std::string> mark_named(char const* key) const {
    return config_.contains(key) ? content_of(config_[key]) : std::nullopt;
  }
  void add(std::string const& file, std::string const& content, std::int64_t id, Json const& flags, bool special) {
    if (content.empty() || id < 0 || id >= static_cast<std::int64_t>(most_vocabulary))
      refuse(file, concat("the added token ", io::quote_json(content), " has id ", id));
    SpecialToken token{content, static_cast<std::int32_t>(id)};
    token.special = special;
    token.normalized = !special;
    if (flags.is_object()) {
      token.lstrip = flag(flags, "lstrip"), token.rstrip = flag(flags, "rstrip");
      token.single_word = flag(flags, "single_word"), token.normalized = flag(flags, "normalized");
    }
    marks_.insert_or_assign(content, std::move(token));
  }
  void collect_marks() {
    std::string const config = beside("tokenizer_config.json"), added = beside("added_tokens.json");
    if (auto const list = config_.find("added_tokens_decoder"); list != config_.end() && list->is_object()) {
      for (auto const& [id, token] : list->items()) {
        auto const content = content_of(token);
        if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos || !content)
          refuse(config, concat("the added token ", io::quote_json(id), " has no id or no content"));
        add(config, *content, std::stol(id), token, flag(token, "special"));
      }
    } else {
      Json const table = object("added_tokens.json");
      for (auto const& [content, id] : table.items()) {
        if (!id.is_number_unsigned()) refuse(added, concat("token ", io::quote_json(content), " has no id"));
        add(added, content, id.get<std::int64_t>(), {}, false);
      }
    }
    for (char const* const file : {"special_tokens_map.json", "tokenizer_config.json"}) {
      Json const json = object(file);
      for (char const* const key : {"bos_token", "eos_token", "unk_token", "pad_token"})
        if (json.contains(key)) be_special(beside(file), content_of(json[key]));
      if (json.contains("additional_special_tokens") && json["additional_special_tokens"].is_array())
        for (Json const& one : json["additional_special_tokens"]) be_special(beside(file), content_of(one));
    }
  }
  void be_special(std::string const& file, std::optional<std::string> const& content) {
    if (!content || content->empty()) return;
    if (auto const found = marks_.find(*content); found != marks_.end()) {
      if (!found->second.special) found->second.special = true, found->second.normalized = false;
      return;
    }
    auto const found = known_.is_object() ? known_.find(*content) : known_.end();
    if (found == known_.end() || !found->is_number_unsigned())
      refuse(file, concat("the special token ", io::quote_json(*content), " has no id"));
    add(file, *content, found->get<std::int64_t>(), {}, true);
  }

  std::string vocabulary_;
  std::filesystem::path folder_;
  Json config_, known_;
  std::map<std::string, SpecialToken> marks_;
};

inline bool is_vocabulary(std::string const& path) { return std::filesystem::path(path).filename() == "vocab.json"; }

}  // namespace detail

/// The file of a folder that its tokenizer is read from: tokenizer.json, else vocab.json with merges.txt beside it;
/// empty where it has neither.
inline std::string tokenizer_in(std::string const& folder) {
  std::filesystem::path const path = folder;
  for (char const* const name : {"tokenizer.json", "vocab.json"})
    if (std::string const file = (path / name).string();
        io::file_exists(file) && (!detail::is_vocabulary(file) || io::file_exists((path / "merges.txt").string())))
      return file;
  return {};
}

/// `path` is a tokenizer.json, or a vocab.json of GPT2Tokenizer or Qwen2Tokenizer with merges.txt beside it.
/// Errors: io; format, naming the file.
inline Tokenizer read_tokenizer_file(std::string const& path) {
  return detail::is_vocabulary(path) ? detail::VocabularyFolder(path).read() : read_tokenizer(path);
}
/// The same as the text of a tokenizer.json: the file's own, or what says the same as the two. Errors: likewise.
inline std::string tokenizer_text(std::string const& path) {
  return detail::is_vocabulary(path) ? tokenizer_to_json(read_tokenizer_file(path)) : io::read_file(path);
}

}  // namespace tutti::data
