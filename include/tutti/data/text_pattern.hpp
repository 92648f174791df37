// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Regular expressions from unknown hands, looked for in text as it grows.

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>

#if !TUTTI_WASM
#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::data {

#if TUTTI_WASM

/// There is no PCRE2 there: every pattern is refused.
class TextPattern {
 public:
  explicit TextPattern(std::string_view pattern) {
    throw Error(ErrorKind::unavailable, "TextPattern",
                "the pattern '" + std::string(pattern.substr(0, 60)) +
                    "' needs a library of regular expressions, which WebAssembly has not. Give texts instead");
  }
  std::string const& text() const noexcept { return text_; }
  std::optional<std::size_t> find(std::string_view) const { return std::nullopt; }

 private:
  std::string text_;
};

#else

/// A pattern as PCRE2 reads it, by code points. Immutable: threads may share it, copies share one compilation.
/// Cost  at most 100,000 steps of the matcher and 1 MiB of its memory a search: what needs more is not found
class TextPattern {
 public:
  static constexpr std::size_t longest = 4096;  ///< bytes of a pattern

  /// Errors: invalid_argument, with PCRE2's reason.
  explicit TextPattern(std::string_view pattern) : text_(pattern) {
    auto const refuse = [&](std::string const& why) {
      return Error(ErrorKind::invalid_argument, "TextPattern",
                   "the pattern '" + text_.substr(0, 60) + "' is not usable: " + why);
    };
    if (pattern.size() > longest) throw refuse("it has more than " + std::to_string(longest) + " bytes");
    std::unique_ptr<pcre2_compile_context, Free> const limits(pcre2_compile_context_create(nullptr));
    if (limits) pcre2_set_parens_nest_limit(limits.get(), 100);
    int code = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* const compiled = pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, limits.get());
    if (compiled == nullptr) {
      PCRE2_UCHAR reason[256] = {};
      pcre2_get_error_message(code, reason, sizeof reason);
      throw refuse(std::string(reinterpret_cast<char const*>(reason)) + ", at byte " + std::to_string(offset));
    }
    code_ = std::shared_ptr<pcre2_code const>(compiled, [](pcre2_code* c) { pcre2_code_free(c); });
  }

  std::string const& text() const noexcept { return text_; }

  /// Where the first match begins (its first group's where it has one), counted in bytes; what is no UTF-8 fits
  /// nothing.
  std::optional<std::size_t> find(std::string_view text) const {
    std::unique_ptr<pcre2_match_data, Free> const match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    std::unique_ptr<pcre2_match_context, Free> const context(pcre2_match_context_create(nullptr));
    if (!match || !context) throw Error(ErrorKind::out_of_memory, "TextPattern::find", "no memory for matching");
    pcre2_set_match_limit(context.get(), 100'000);
    pcre2_set_heap_limit(context.get(), 1024);
    int const groups = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                   match.get(), context.get());
    if (groups < 1) return std::nullopt;
    PCRE2_SIZE const* const found = pcre2_get_ovector_pointer(match.get());
    return groups > 1 && found[2] != PCRE2_UNSET ? found[2] : found[0];
  }

 private:
  struct Free {
    void operator()(pcre2_compile_context* c) const { pcre2_compile_context_free(c); }
    void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
    void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
  };
  std::string text_;
  std::shared_ptr<pcre2_code const> code_;
};

#endif

}  // namespace tutti::data
