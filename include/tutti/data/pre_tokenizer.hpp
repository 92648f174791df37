// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Cuts text into the pieces inside which a byte-pair tokenizer may merge, by published patterns: those that most
/// models use are scanned by hand-written code, others run through PCRE2 (compiled to machine code where PCRE2 can).

#include <tutti/core/error.hpp>
#include <tutti/data/compiled_pattern.hpp>
#include <tutti/data/piece_scanner.hpp>
#include <tutti/data/utf8.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// Whether the hand-written scanners may be used; without them, every pattern runs through PCRE2.
enum class Scanning : unsigned char { by_hand_if_known, by_engine };

/// Patterns, applied one after another: each cuts the pieces of the one before. Immutable: threads may share it.
class PreTokenizer {
 public:
  /// Errors: format, when PCRE2 refuses a pattern; unavailable, for one that is not scanned by hand in WebAssembly.
  explicit PreTokenizer(std::vector<std::string> patterns, Scanning scanning = Scanning::by_hand_if_known)
      : patterns_(std::move(patterns)) {
    if (scanning == Scanning::by_hand_if_known) scanner_ = detail::PieceScanner::of(patterns_);
    if (scanner_) return;
    for (std::string const& pattern : patterns_) compiled_.emplace_back(pattern);
  }
  explicit PreTokenizer(std::string_view pattern = gpt2_pattern)
      : PreTokenizer(std::vector<std::string>{std::string(pattern)}) {}

  std::vector<std::string> const& patterns() const noexcept { return patterns_; }

  /// Calls `piece` with consecutive views that together are `text`, byte for byte: every match of the pattern and every
  /// stretch between matches; without a pattern, the whole. Bytes that are not UTF-8 are preserved: each run of them is
  /// a piece of its own, and the patterns see the valid text before it and after it as separate texts.
  template <class Piece>
  void split(std::string_view text, Piece&& piece) const {
    std::vector<std::unique_ptr<Scratch>> scratch;
    if (!text.empty())
      for (auto const& compiled : compiled_) scratch.push_back(std::make_unique<Scratch>(compiled));
    while (!text.empty()) {
      std::size_t const valid = utf8_prefix(text);
      if (scanner_) scanner_->split(text.substr(0, valid), piece);
      else split_from(0, text.substr(0, valid), scratch, piece);
      text.remove_prefix(valid);
      std::size_t invalid = 0;
      while (invalid < text.size() && utf8_front(text.substr(invalid)).length == 0) ++invalid;
      if (invalid != 0) piece(text.substr(0, invalid));
      text.remove_prefix(invalid);
    }
  }

 private:
  using Scratch = detail::CompiledPattern::Scratch;

  template <class Piece>
  void split_from(std::size_t first, std::string_view text, std::vector<std::unique_ptr<Scratch>> const& scratch,
                  Piece& piece) const {
    if (text.empty()) return;
    if (first == compiled_.size()) return piece(text);
    compiled_[first].split(text, *scratch[first],
                           [&](std::string_view part) { split_from(first + 1, part, scratch, piece); });
  }

  std::vector<std::string> patterns_;
  std::vector<detail::CompiledPattern> compiled_;
  std::optional<detail::PieceScanner> scanner_;
};

/// Names of pre-tokenizers as GGUF files give them, with their patterns.
struct NamedPatterns {
  std::vector<std::string> patterns;
  bool whole_pieces = false;  ///< a piece that is a token is taken without merging
  bool begin = false;         ///< a text begins with the begin-of-text token unless the file says otherwise
};
/// Errors: format, for a name that is not known, with those that are.
inline NamedPatterns patterns_named(std::string_view name) {
  struct Row {
    char const* names;  // with a space before and behind each
    std::vector<std::string_view> patterns;
    bool whole_pieces = false, begin = false;
  };
  static constexpr std::string_view punctuation = R"([\p{P}\$\+<=>\^~\|]+)", digits = R"(\p{N}+)",
                                    triples = "[0-9][0-9][0-9]";
  static std::vector<Row> const rows = {
      {" gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum modern-bert roberta-bpe jina-es "
       "jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code ",
       {gpt2_pattern}},
      {" smollm starcoder refact command-r codeshell exaone minerva-7b ", {digit_pattern, gpt2_pattern}},
      {" qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan solar-open ", {qwen2_pattern}},
      {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral ", {llama3_pattern}, true, true},
      {" dbrx smaug-bpe chatglm-bpe ", {llama3_pattern}},
      {" glm4 ", {llama3_pattern}, true},
      {" default ", {punctuation, gpt2_pattern, digits, triples}}};
  std::string known;
  std::string const wanted = " " + std::string(name) + " ";
  for (Row const& row : rows) {
    std::string_view const names = row.names;
    if (name.find(' ') == std::string_view::npos && !name.empty() && names.find(wanted) != std::string_view::npos)
      return {{row.patterns.begin(), row.patterns.end()}, row.whole_pieces, row.begin};
    known += names.substr(known.empty() ? 1 : 0, names.size() - (known.empty() ? 2 : 1));
  }
  throw Error(ErrorKind::format, "patterns_named",
              "the pre-tokenizer '" + std::string(name.substr(0, 80)) + "' is not known. Known are " + known);
}

}  // namespace tutti::data
