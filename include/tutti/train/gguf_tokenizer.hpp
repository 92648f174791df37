// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A tokenizer as keys of a GGUF file.

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/data/vocabulary.hpp>
#include <tutti/io/gguf.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::train::detail {

/// How other programs call the way in which a tokenizer of bytes cuts a text. Errors: configuration.
inline std::string gguf_pre_tokenizer(data::Tokenizer const& tokenizer) {
  for (char const* const name : {"gpt-2", "smollm", "qwen2", "llama-bpe", "smaug-bpe", "glm4", "default"}) {
    data::NamedPatterns const known = data::patterns_named(name);
    if (known.patterns == tokenizer.patterns() && known.whole_pieces == tokenizer.whole_pieces()) return name;
  }
  throw Error(ErrorKind::configuration, "write_gguf",
              "the tokenizer cuts text in a way for which GGUF files have no name. Choose another target");
}

enum GgufTokenType : std::int32_t { gguf_normal = 1, gguf_unknown, gguf_control, gguf_added, gguf_unused, gguf_byte };

/// A vocabulary of characters has scores in the place of merges: that of a token says how early it is made.
/// Errors: configuration, where scores alone cannot say what the merges do.
inline std::vector<float> gguf_scores(data::Tokenizer const& tokenizer, data::GgufVocabulary vocabulary) {
  data::TokenizerParts const& parts = tokenizer.parts();
  auto const refuse = [](char const* why) {
    throw Error(ErrorKind::configuration, "write_gguf",
                std::string("the tokenizer ") + why + ", which the scores of a GGUF file cannot say. Choose another "
                "target");
  };
  if (!parts.loose.empty() || !parts.patterns.empty()) refuse("cuts texts, or merges characters that are no tokens");
  std::vector<float> scores(vocabulary.tokens.size(), -1e6f);
  std::vector<bool> made(scores.size());
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], id);
  using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;
  auto const pairs_of = [](data::Tokenizer const& one) {
    std::vector<std::pair<std::int32_t, std::size_t>> order;
    for (std::size_t i = 0; i < one.merges().size(); ++i)
      order.emplace_back(one.parts().ranks.empty() ? static_cast<std::int32_t>(i) : one.parts().ranks[i], i);
    std::sort(order.begin(), order.end());
    Pairs pairs;
    for (auto const& [rank, i] : order) pairs.emplace_back(one.merges()[i].left, one.merges()[i].right);
    return pairs;
  };
  Pairs pairs = pairs_of(tokenizer);
  std::size_t before = 0, place = 0;
  for (auto const& [left, right] : pairs) {
    auto const found = ids.find(parts.tokens[static_cast<std::size_t>(left)] +
                                parts.tokens[static_cast<std::size_t>(right)]);
    if (found == ids.end()) refuse("has a merge that makes no token");
    std::size_t const id = found->second;
    if (made[id] && id != before) refuse("makes a token by merges between which others stand");
    if (!made[id]) scores[id] = -static_cast<float>(++place);
    made[id] = true;
    before = id;
  }
  vocabulary.scores = scores;
  Pairs again = pairs_of(data::make_tokenizer(vocabulary, "the tokenizer"));
  std::sort(pairs.begin(), pairs.end());
  std::sort(again.begin(), again.end());
  if (pairs != again) refuse("does not merge all that its tokens allow");
  return scores;
}

/// The keys of a tokenizer; `classes` is what the model has, and tokens that the tokenizer lacks are unused.
/// `begins_texts`: the mark between documents begins a text. Errors: configuration.
inline void add_tokenizer(io::GgufMetadata& metadata, data::Tokenizer const& tokenizer, std::int64_t classes,
                          bool begins_texts, std::string const& chat_template) {
  if (tokenizer.vocabulary() > classes)
    throw Error(ErrorKind::configuration, "write_gguf",
                "the tokenizer has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " +
                    std::to_string(classes) + ". Use that of the model");
  data::TokenizerParts const& parts = tokenizer.parts();
  bool const characters = parts.alphabet == data::Alphabet::characters;
  data::GgufVocabulary v;
  v.model = characters ? "llama" : "gpt2";
  v.pre = characters ? "default" : gguf_pre_tokenizer(tokenizer);
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    std::string const& text = parts.tokens[static_cast<std::size_t>(id)];
    v.tokens.push_back(characters ? text : data::spell_bytes(text));
    v.types.push_back(text.empty() ? gguf_unused : gguf_normal);
    if (text.empty()) v.tokens.back() = "[unused " + std::to_string(id) + "]";
  }
  for (std::int32_t const id : parts.byte_tokens)
    if (characters && id >= 0) v.types[static_cast<std::size_t>(id)] = gguf_byte;
  for (data::SpecialToken const& token : tokenizer.specials()) {
    auto const id = static_cast<std::size_t>(token.id);
    v.tokens[id] = token.content;
    v.types[id] = token.special ? gguf_control : gguf_added;
    if (characters && token.id == parts.roles.unknown) v.types[id] = gguf_unknown;
  }
  for (std::size_t id = v.tokens.size(); static_cast<std::int64_t>(id) < classes; ++id) {
    v.tokens.push_back("[unused " + std::to_string(id) + "]");
    v.types.push_back(gguf_unused);
  }
  data::TokenRoles roles = parts.roles;
  // Every document of this library's training data begins with the mark, and so does a text that is to be continued.
  if (auto const mark = tokenizer.document_mark(); mark && begins_texts)
    roles.begin = roles.end = mark, roles.add_begin = true;
  v.bos = roles.begin ? roles.begin : roles.end;
  v.eos = roles.end;
  v.unknown = roles.unknown;
  v.add_bos = roles.add_begin;
  v.add_space_prefix = parts.prefix_space != data::PrefixSpace::none;
  auto const key = [](char const* name) { return std::string("tokenizer.ggml.") + name; };
  metadata.set(key("model"), v.model).set(key("pre"), v.pre);
  if (characters) {
    metadata.set(key("scores"), io::GgufArray(gguf_scores(tokenizer, v)));
    metadata.set(key("add_space_prefix"), *v.add_space_prefix);
  } else {
    std::vector<std::size_t> order(tokenizer.merges().size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!parts.ranks.empty())
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return parts.ranks[a] < parts.ranks[b]; });
    for (std::size_t const i : order)
      v.merges.push_back(v.tokens[static_cast<std::size_t>(tokenizer.merges()[i].left)] + " " +
                         v.tokens[static_cast<std::size_t>(tokenizer.merges()[i].right)]);
    metadata.set(key("merges"), io::GgufArray(std::move(v.merges)));
  }
  metadata.set(key("tokens"), io::GgufArray(std::move(v.tokens)));
  metadata.set(key("token_type"), io::GgufArray(std::move(v.types)));
  auto const set = [&](char const* name, std::optional<std::int32_t> id) {
    if (id) metadata.set(key(name), static_cast<std::uint32_t>(*id));
  };
  set("bos_token_id", v.bos);
  set("eos_token_id", v.eos);
  set("eot_token_id", roles.end_of_turn);
  set("unknown_token_id", v.unknown);
  set("padding_token_id", roles.padding);
  metadata.set(key("add_bos_token"), roles.add_begin);
  if (roles.add_end) metadata.set(key("add_eos_token"), true);
  if (!chat_template.empty()) metadata.set("tokenizer.chat_template", chat_template);
}

}  // namespace tutti::train::detail
