// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tokenizers from files of vocabularies: GPT-2's `vocab.bpe` and `encoder.json`, tiktoken's ranks, llm.c's
/// `tokenizer.bin`.

#include <tutti/data/vocabulary.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/token_shard.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

namespace detail {

[[noreturn]] inline void refuse_vocabulary(std::string const& source, std::string const& why) {
  throw Error(ErrorKind::format, "read_vocabulary",
              "'" + source + "' is not a usable vocabulary: " + why + ". Fetch the file again");
}
inline Tokenizer finish_vocabulary(TokenizerParts parts, std::string const& source) {
  try {
    return Tokenizer(std::move(parts));
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::format) throw;
    refuse_vocabulary(source, error.message());
  }
}
inline constexpr std::size_t most_vocabulary = std::size_t{1} << 22;

/// The next line without its end; `text` moves behind it.
inline std::string_view next_line(std::string_view& text) noexcept {
  auto const end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// Nothing when `text` is not base64 with its padding.
inline std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t const padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    std::uint32_t digit = 0;
    if (c >= 'A' && c <= 'Z') digit = static_cast<std::uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z') digit = static_cast<std::uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9') digit = static_cast<std::uint32_t>(c - '0' + 52);
    else if (c == '+') digit = 62;
    else if (c == '/') digit = 63;
    else if (i < text.size() - padding) return std::nullopt;
    word = word << 6 | digit;
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 255u);
    word = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace detail

/// What GPT-2's two files do not say.
struct ByteLevelOptions {
  std::vector<std::string> patterns = {std::string(gpt2_pattern)};
  std::vector<SpecialToken> specials = {};  ///< tokens of the vocabulary, or more than it has
  bool nfc = false;
};
/// GPT-2's two files: merges in the byte alphabet, one a line behind a line of version, and ids by spelled token.
/// <|endoftext|> is a mark, whatever `options` say. Errors: format, naming the file.
inline Tokenizer parse_gpt2_vocabulary(std::string_view merges, std::string const& merges_source,
                                       std::string_view encoder, std::string const& encoder_source,
                                       ByteLevelOptions options = {}) {
  nlohmann::json const json = io::parse_json(encoder, encoder_source, "read_vocabulary");
  if (!json.is_object() || json.empty()) detail::refuse_vocabulary(encoder_source, "it is not a table of ids");
  std::unordered_map<std::string, std::int32_t> ids;
  TokenizerParts parts;
  parts.patterns = std::move(options.patterns);
  parts.nfc = options.nfc;
  auto const add = [&](std::string const& spelled, std::size_t id, std::string bytes) {
    if (id >= parts.tokens.size()) parts.tokens.resize(id + 1);
    if (!parts.tokens[id].empty())
      detail::refuse_vocabulary(encoder_source, "id " + std::to_string(id) + " stands twice");
    ids.emplace(spelled, static_cast<std::int32_t>(id));
    parts.tokens[id] = std::move(bytes);
  };
  std::unordered_map<std::string, std::int32_t> marks;
  for (SpecialToken const& special : options.specials) marks.emplace(special.content, special.id);
  for (auto const& [spelled, value] : json.items()) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= detail::most_vocabulary)
      detail::refuse_vocabulary(encoder_source, "token " + io::quote_json(spelled) + " has no usable id");
    auto const id = value.get<std::size_t>();
    if (auto const mark = marks.find(spelled); mark != marks.end()) {
      if (mark->second != static_cast<std::int32_t>(id))
        detail::refuse_vocabulary(encoder_source, "the mark " + io::quote_json(spelled) + " has id " +
                                                      std::to_string(id) + " here and " + std::to_string(mark->second) +
                                                      " elsewhere");
      add(spelled, id, spelled);
      continue;
    }
    if (spelled == end_of_text_mark) options.specials.push_back({spelled, static_cast<std::int32_t>(id)});
    auto bytes = unspell_bytes(spelled);
    if (!bytes || bytes->empty())
      detail::refuse_vocabulary(encoder_source,
                                "token " + io::quote_json(spelled) + " is not spelled in the byte alphabet");
    add(spelled, id, std::move(*bytes));
  }
  for (SpecialToken const& special : options.specials)
    if (special.id >= 0 && static_cast<std::size_t>(special.id) < detail::most_vocabulary && !special.content.empty() &&
        !ids.contains(special.content))
      add(special.content, static_cast<std::size_t>(special.id), special.content);
  parts.specials = std::move(options.specials);
  for (std::size_t number = 1; !merges.empty(); ++number) {
    std::string_view const line = detail::next_line(merges);
    if ((number == 1 && line.starts_with("#version")) || line.empty()) continue;
    auto const space = line.find(' ');
    auto const left = ids.find(std::string(line.substr(0, space)));
    auto const right = space == line.npos ? ids.end() : ids.find(std::string(line.substr(space + 1)));
    if (left == ids.end() || right == ids.end())
      detail::refuse_vocabulary(merges_source,
                                "line " + std::to_string(number) + " is not two tokens of '" + encoder_source + "'");
    parts.merges.push_back({left->second, right->second});
  }
  return detail::finish_vocabulary(std::move(parts), merges_source);
}
/// Errors: io; format.
inline Tokenizer read_gpt2_vocabulary(std::string const& vocab_bpe, std::string const& encoder_json) {
  return parse_gpt2_vocabulary(io::read_file(vocab_bpe), vocab_bpe, io::read_file(encoder_json), encoder_json);
}

/// What a file of ranks does not say.
struct RankOptions {
  std::vector<std::string> patterns = {std::string(cl100k_pattern)};
  std::vector<SpecialToken> specials = {};
  bool whole_pieces = true;  ///< as tiktoken does
};
/// tiktoken's ranks: a line for each token, its bytes in base64, a space, its rank, which is its id.
/// Errors: format, naming the file and the line.
inline Tokenizer parse_ranks(std::string_view text, std::string const& source, RankOptions options = {}) {
  TokenizerParts parts;
  parts.patterns = std::move(options.patterns);
  parts.whole_pieces = options.whole_pieces;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view const line = detail::next_line(text);
    if (line.empty()) continue;
    auto const refuse = [&](char const* why) {
      detail::refuse_vocabulary(source, "line " + std::to_string(number) + " " + why);
    };
    auto const space = line.find(' ');
    if (space == line.npos) refuse("is not a token and a rank");
    auto bytes = detail::decode_base64(line.substr(0, space));
    if (!bytes || bytes->empty()) refuse("has a token that is not base64");
    std::size_t id = 0;
    auto const [end, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), id);
    if (error != std::errc() || end != line.data() + line.size() || id >= detail::most_vocabulary)
      refuse("has a rank that is not a count below 4194304");
    if (id >= parts.tokens.size()) parts.tokens.resize(id + 1);
    if (!parts.tokens[id].empty()) refuse("has the rank of an earlier line");
    parts.tokens[id] = std::move(*bytes);
  }
  if (parts.tokens.empty()) detail::refuse_vocabulary(source, "it is empty");
  add_rank_merges(parts);
  for (SpecialToken const& special : options.specials)
    if (special.id >= 0 && static_cast<std::size_t>(special.id) < detail::most_vocabulary &&
        static_cast<std::size_t>(special.id) >= parts.tokens.size())
      parts.tokens.resize(static_cast<std::size_t>(special.id) + 1);
  parts.specials = std::move(options.specials);
  return detail::finish_vocabulary(std::move(parts), source);
}
/// Errors: io; format.
inline Tokenizer read_ranks(std::string const& path, RankOptions options = {}) {
  return parse_ranks(io::read_file(path), path, std::move(options));
}

/// llm.c's `tokenizer.bin`: 256 words of header (20240328, version, count, end of text), then the bytes of each token
/// behind their number. The file has no merges; the ids of GPT-2's vocabulary, which llm.c writes, are ranks.
/// Errors: format, naming the file.
inline Tokenizer parse_llmc_tokenizer(std::string_view file, std::string const& source) {
  io::detail::LlmcHeader header{};
  if (file.size() < sizeof header) detail::refuse_vocabulary(source, "it is shorter than a header of 1024 bytes");
  std::memcpy(header.data(), file.data(), sizeof header);
  if (header[0] != 20240328)
    detail::refuse_vocabulary(source, "its first word is " + std::to_string(header[0]) + ", not 20240328");
  if (header[1] != 1 && header[1] != 2)
    detail::refuse_vocabulary(source, "it has version " + std::to_string(header[1]) + "; versions 1 and 2 are read");
  if (header[2] < 1 || static_cast<std::size_t>(header[2]) > detail::most_vocabulary)
    detail::refuse_vocabulary(source, "it has " + std::to_string(header[2]) + " tokens");
  std::int32_t const end_of_text = header[1] == 1 ? 50256 : header[3];
  if (end_of_text < 0 || end_of_text >= header[2])
    detail::refuse_vocabulary(source, "its end of text " + std::to_string(end_of_text) + " is no token of it");
  file.remove_prefix(sizeof header);
  TokenizerParts parts;
  for (std::int32_t id = 0; id < header[2]; ++id) {
    std::size_t const length = file.empty() ? 0 : static_cast<unsigned char>(file[0]);
    if (length == 0 || file.size() < 1 + length)
      detail::refuse_vocabulary(source, "token " + std::to_string(id) + " is empty or cut off");
    parts.tokens.emplace_back(file.substr(1, length));
    file.remove_prefix(1 + length);
  }
  if (!file.empty()) detail::refuse_vocabulary(source, "bytes follow its last token");
  parts.tokens[static_cast<std::size_t>(end_of_text)].clear();
  add_rank_merges(parts);
  parts.specials = {{std::string(end_of_text_mark), end_of_text}};
  return detail::finish_vocabulary(std::move(parts), source);
}
/// Errors: io; format.
inline Tokenizer read_llmc_tokenizer(std::string const& path) {
  return parse_llmc_tokenizer(io::read_file(path), path);
}

}  // namespace tutti::data
