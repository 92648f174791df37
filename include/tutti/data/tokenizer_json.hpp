// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `tokenizer.json` in the form of Hugging Face's tokenizers, read and written.

#include <tutti/data/tokenizer_reader.hpp>
#include <tutti/io/file.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::data {

/// `source` names the text in messages. Errors: format, with the source, what is wrong and what to do.
inline Tokenizer parse_tokenizer(std::string_view text, std::string source) {
  return detail::TokenizerReader(text, std::move(source)).read();
}
/// Errors: io; format.
inline Tokenizer read_tokenizer(std::string const& path) { return parse_tokenizer(io::read_file(path), path); }

namespace detail {

inline std::string yes_no(bool value) { return value ? "true" : "false"; }

inline std::string normalizer_json(TokenizerParts const& parts) {
  std::vector<std::string> steps;
  if (parts.nfc) steps.emplace_back(R"({"type": "NFC"})");
  if (parts.alphabet == Alphabet::characters) {
    std::string const mark = io::quote_json(space_mark);
    if (parts.prefix_space == PrefixSpace::always) steps.push_back(R"({"type": "Prepend", "prepend": )" + mark + "}");
    if (parts.prefix_space == PrefixSpace::always || parts.prefix_space == PrefixSpace::none)
      steps.push_back(R"({"type": "Replace", "pattern": {"String": " "}, "content": )" + mark + "}");
  }
  if (steps.empty()) return "null";
  std::string list;
  for (std::string const& step : steps) list += (list.empty() ? "" : ", ") + step;
  return steps.size() == 1 ? list : R"({"type": "Sequence", "normalizers": [)" + list + "]}";
}

inline std::string byte_level_json(bool prefix, bool use_regex) {
  return R"({"type": "ByteLevel", "add_prefix_space": )" + yes_no(prefix) + R"(, "trim_offsets": true, "use_regex": )" +
         yes_no(use_regex) + "}";
}

inline std::string pre_tokenizer_json(TokenizerParts const& parts) {
  std::vector<std::string> steps;
  bool const characters = parts.alphabet == Alphabet::characters;
  bool const metaspace =
      characters && (parts.prefix_space == PrefixSpace::unless_present || parts.prefix_space == PrefixSpace::first);
  if (metaspace)
    steps.push_back(R"({"type": "Metaspace", "replacement": )" + io::quote_json(space_mark) +
                    R"(, "prepend_scheme": ")" + (parts.prefix_space == PrefixSpace::first ? "first" : "always") +
                    R"(", "split": false})");
  bool const last_is_gpt2 = !characters && !parts.patterns.empty() && parts.patterns.back() == gpt2_pattern;
  for (std::size_t i = 0; i + (last_is_gpt2 ? 1 : 0) < parts.patterns.size(); ++i)
    steps.push_back(parts.patterns[i] == digit_pattern
                        ? R"({"type": "Digits", "individual_digits": true})"
                        : R"({"type": "Split", "pattern": {"Regex": )" + io::quote_json(parts.patterns[i]) +
                              R"(}, "behavior": "Isolated", "invert": false})");
  if (!characters) steps.push_back(byte_level_json(false, last_is_gpt2));
  if (steps.empty()) return "null";
  std::string list;
  for (std::string const& step : steps) list += (list.empty() ? "" : ", ") + step;
  return steps.size() == 1 ? list : R"({"type": "Sequence", "pretokenizers": [)" + list + "]}";
}

inline std::string post_processor_json(Tokenizer const& tokenizer) {
  TokenRoles const& roles = tokenizer.roles();
  std::string single, tokens;
  auto const put = [&](std::optional<std::int32_t> id) {
    std::string const name = io::quote_json(tokenizer.token_bytes(*id));
    single += (single.empty() ? "" : ", ") + (R"({"SpecialToken": {"id": )" + name) + R"(, "type_id": 0}})";
    if (tokens.find(name + ": {") == std::string::npos)
      tokens += (tokens.empty() ? "" : ", ") + name + ": {\"id\": " + name + ", \"ids\": [" + std::to_string(*id) +
                "], \"tokens\": [" + name + "]}";
  };
  bool const begin = roles.add_begin && roles.begin, end = roles.add_end && roles.end;
  if (!begin && !end) return "null";
  if (begin) put(roles.begin);
  single += std::string(single.empty() ? "" : ", ") + R"({"Sequence": {"id": "A", "type_id": 0}})";
  if (end) put(roles.end);
  return R"({"type": "TemplateProcessing", "single": [)" + single +
         R"(], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], )" +
         R"("special_tokens": {)" + tokens + "}}";
}

inline std::string decoder_json(TokenizerParts const& parts) {
  if (parts.alphabet == Alphabet::bytes) return byte_level_json(true, true);
  std::string const strip =
      parts.prefix_space == PrefixSpace::none ? "" : R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0})";
  return R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": )" +
         io::quote_json(space_mark) + R"(}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})" + strip +
         "]}";
}

}  // namespace detail

/// The text of a tokenizer.json. The same tokenizer always gives the same bytes. Merges of equal rank, which only
/// vocabularies of ranks or scores have, stand in the order of their tokens.
/// Errors: format, for a vocabulary that starts from characters which are no tokens, has two tokens of one spelling, or
/// drops bytes that it lacks although its alphabet was not learned from text.
inline std::string tokenizer_to_json(Tokenizer const& tokenizer) {
  TokenizerParts const& parts = tokenizer.parts();
  bool const characters = parts.alphabet == Alphabet::characters;
  if (!parts.loose.empty())
    throw Error(ErrorKind::format, "tokenizer_to_json",
                "tokenizer.json cannot say that merging starts from characters which are no tokens. Keep the file "
                "that the vocabulary came from");
  // What has no token is dropped where the model names no unknown one.
  bool const drops = parts.drop_unknown && has_learned_alphabet(parts.tokens);
  for (unsigned byte = 0; parts.drop_unknown && !drops && byte < 256; ++byte)
    if (!has_byte(parts.tokens, byte))
      throw Error(ErrorKind::format, "tokenizer_to_json",
                  "byte " + std::to_string(byte) +
                      " has no token, and others that no text has do: whoever reads that takes the file for damaged. "
                      "Keep the file that the vocabulary came from");
  auto const spelled = [&](std::int32_t id) {
    std::string const& text = parts.tokens[static_cast<std::size_t>(id)];
    return characters || tokenizer.is_special(id) ? text : spell_bytes(text);
  };
  using detail::yes_no;
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  std::string separator = "\n";
  for (SpecialToken const& special : tokenizer.specials()) {
    text += separator + "    {\"id\": " + std::to_string(special.id) +
            ", \"content\": " + io::quote_json(special.content) + ", \"single_word\": " + yes_no(special.single_word) +
            ", \"lstrip\": " + yes_no(special.lstrip) + ", \"rstrip\": " + yes_no(special.rstrip) +
            ", \"normalized\": " + yes_no(special.normalized) + ", \"special\": " + yes_no(special.special) + "}";
    separator = ",\n";
  }
  text += "\n  ],\n  \"normalizer\": " + detail::normalizer_json(parts) +
          ",\n  \"pre_tokenizer\": " + detail::pre_tokenizer_json(parts) +
          ",\n  \"post_processor\": " + detail::post_processor_json(tokenizer) +
          ",\n  \"decoder\": " + detail::decoder_json(parts) +
          ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": " +
          (parts.roles.unknown && !drops ? io::quote_json(spelled(*parts.roles.unknown)) : "null") +
          ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": " +
          yes_no(parts.fuse_unknown) + ",\n    \"byte_fallback\": " + yes_no(characters) +
          ",\n    \"ignore_merges\": " + yes_no(tokenizer.whole_pieces()) + ",\n    \"vocab\": {";
  separator = "\n";
  std::unordered_set<std::string> keys;
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    if (parts.tokens[static_cast<std::size_t>(id)].empty()) continue;
    std::string const key = io::quote_json(spelled(id));
    if (!keys.insert(key).second)
      throw Error(ErrorKind::format, "tokenizer_to_json",
                  "two tokens are spelled " + key + ", which tokenizer.json cannot say. Keep the file that the "
                  "vocabulary came from");
    text += separator + "      " + key + ": " + std::to_string(id);
    separator = ",\n";
  }
  text += "\n    },\n    \"merges\": [";
  separator = "\n";
  std::vector<std::size_t> order(parts.merges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!parts.ranks.empty())
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return parts.ranks[a] < parts.ranks[b]; });
  for (std::size_t const place : order) {
    Merge const& merge = parts.merges[place];
    text += separator + "      " + io::quote_json(spelled(merge.left) + " " + spelled(merge.right));
    separator = ",\n";
  }
  return text + "\n    ]\n  }\n}\n";
}
/// Errors: io. The file is complete or absent.
inline void write_tokenizer(std::string const& path, Tokenizer const& tokenizer) {
  io::write_file(path, tokenizer_to_json(tokenizer));
}

}  // namespace tutti::data
