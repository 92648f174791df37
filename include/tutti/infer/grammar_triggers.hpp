// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// When a grammar begins to rule what a model writes.

#include <tutti/data/text_pattern.hpp>
#include <tutti/infer/grammar_matcher.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::infer {

/// What wakes a grammar that sleeps until then; without any it is awake from the first token on.
struct GrammarTriggers {
  std::vector<std::string> texts{};           ///< the grammar's sentence begins with the text
  std::vector<std::int32_t> tokens{};         ///< or with the token
  std::vector<data::TextPattern> patterns{};  ///< or where the match, or its first group, begins
  bool empty() const noexcept { return texts.empty() && tokens.empty() && patterns.empty(); }

  /// Looks at a text that `token` has just ended. The grammar wakes at the first trigger from which on the text fits
  /// it, and has read that part then. Whether it has woken.
  bool wake(GrammarMatcher& grammar, std::string_view written, std::int32_t token) const {
    bool awake = false;
    auto const read_from = [&](std::size_t from) {
      grammar.reset();
      awake = grammar.accept(written.substr(from));
    };
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) {
      grammar.reset();
      awake = grammar.accept(token);
    }
    for (std::string const& text : texts)
      if (auto const at = awake ? std::string::npos : written.rfind(text); at != std::string::npos) read_from(at);
    for (data::TextPattern const& pattern : patterns)
      if (auto const at = awake ? std::nullopt : pattern.find(written)) read_from(*at);
    return awake;
  }
};

}  // namespace tutti::infer
