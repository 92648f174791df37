// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Patterns of pre-tokenizers as PCRE2 runs them, compiled to machine code where it can. WebAssembly has no PCRE2:
/// there these patterns are refused.

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/utf8.hpp>

#if !TUTTI_WASM
#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>
#endif

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::data::detail {

#if TUTTI_WASM

class CompiledPattern {
 public:
  explicit CompiledPattern(std::string_view pattern) {
    throw Error(ErrorKind::unavailable, "PreTokenizer",
                "the pattern " + std::string(pattern) +
                    " needs a library of regular expressions, which WebAssembly has not. Use a model whose "
                    "pre-tokenizer is that of GPT-2, Llama 3, Qwen 2 or SmolLM");
  }
  struct Scratch {
    explicit Scratch(CompiledPattern const&) {}
  };
  template <class Piece>
  void split(std::string_view text, Scratch const&, Piece&& piece) const {
    piece(text);
  }
};

#else

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
    std::string const translated = with_unicode_spaces(pattern);
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

#endif

}  // namespace tutti::data::detail
