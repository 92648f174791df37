// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Cuts text into the pieces inside which a byte-pair tokenizer may merge, by published patterns: those that most
/// models use are scanned by hand-written code, others run through PCRE2 (compiled to machine code where PCRE2 can).
/// The only home of PCRE2.

#include <tutti/core/error.hpp>
#include <tutti/data/piece_scanner.hpp>
#include <tutti/data/utf8.hpp>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

namespace detail {

/// PCRE2 counts U+180E among the spaces, Unicode and the tokenizers' engines do not: \s and \S become explicit classes.
inline std::string with_unicode_spaces(std::string_view pattern) {
  static constexpr std::string_view spaces = R"(\p{Z}\x09-\x0d\x{85})";
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    char const character = pattern[i];
    if (character == '\\' && i + 1 < pattern.size()) {
      char const escaped = pattern[++i];
      if (escaped == 's') (result += in_class ? "" : "[") += std::string(spaces) + (in_class ? "" : "]");
      else if (escaped == 'S' && !in_class) result += "[^" + std::string(spaces) + "]";
      else (result += '\\') += escaped;
      continue;
    }
    if (character == '[' && !in_class) in_class = true;
    else if (character == ']' && in_class) in_class = false;
    result += character;
  }
  return result;
}

/// A pattern as PCRE2 compiled it. Immutable: threads may share it, copies share one compilation.
class CompiledPattern {
 public:
  explicit CompiledPattern(std::string_view pattern) : pattern_(pattern) {
    std::string const translated = detail::with_unicode_spaces(pattern);
    int code = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* const compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                               PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr);
    if (compiled == nullptr) {
      PCRE2_UCHAR text[256] = {};
      pcre2_get_error_message(code, text, sizeof text);
      throw Error(ErrorKind::format, "PreTokenizer",
                  "the pattern " + pattern_ + " is not a usable regular expression. Correct it")
          .with_native(reinterpret_cast<char const*>(text));
    }
    code_ = std::shared_ptr<pcre2_code const>(compiled, [](pcre2_code* c) { pcre2_code_free(c); });
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without machine code, pcre2_match interprets
  }

  /// What one thread needs while matching.
  struct Scratch {
    explicit Scratch(CompiledPattern const& pattern)
        : match(pcre2_match_data_create_from_pattern(pattern.code_.get(), nullptr)),
          context(pcre2_match_context_create(nullptr)),
          stack(pcre2_jit_stack_create(std::size_t{1} << 15, std::size_t{1} << 23, nullptr)) {
      if (match == nullptr || context == nullptr)
        throw Error(ErrorKind::out_of_memory, "PreTokenizer::split", "no memory for matching");
      if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    }
    Scratch(Scratch const&) = delete;
    Scratch& operator=(Scratch const&) = delete;
    ~Scratch() {
      pcre2_match_data_free(match);
      pcre2_match_context_free(context);
      if (stack != nullptr) pcre2_jit_stack_free(stack);
    }
    pcre2_match_data* match;
    pcre2_match_context* context;
    pcre2_jit_stack* stack;
  };

  /// Every match of the pattern in valid UTF-8 and every stretch between matches.
  template <class Piece>
  void split(std::string_view text, Scratch const& scratch, Piece&& piece) const {
    auto const* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    PCRE2_SIZE const* const found = pcre2_get_ovector_pointer(scratch.match);
    std::size_t given = 0, from = 0;
    while (from < text.size()) {
      int const result =
          pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) {
        PCRE2_UCHAR reason[256] = {};
        pcre2_get_error_message(result, reason, sizeof reason);
        throw Error(ErrorKind::unavailable, "PreTokenizer::split",
                    "the pattern " + pattern_ + " gave up at byte " + std::to_string(from) +
                        " of a text. Use a simpler pattern")
            .with_native(reinterpret_cast<char const*>(reason));
      }
      std::size_t const begin = found[0], end = found[1];
      if (end <= begin) {  // matched nothing: look again behind one character
        from = (begin > from ? begin : from);
        from += from < text.size() ? utf8_front(text.substr(from)).length : 1;
        continue;
      }
      if (begin > given) piece(text.substr(given, begin - given));
      piece(text.substr(begin, end - begin));
      given = from = end;
    }
    if (given < text.size()) piece(text.substr(given));
  }

 private:
  std::string pattern_;
  std::shared_ptr<pcre2_code const> code_;
};

}  // namespace detail

/// Whether the hand-written scanners may be used; without them, every pattern runs through PCRE2.
enum class Scanning : unsigned char { by_hand_if_known, by_engine };

/// Patterns, applied one after another: each cuts the pieces of the one before. Immutable: threads may share it.
class PreTokenizer {
 public:
  /// Errors: format, when PCRE2 refuses a pattern.
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
