// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Plain text as documents, and which of them are held out.

#include <tutti/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

/// Documents of a text; together, in order, they are the text, byte for byte. A document begins at a line that follows
/// a blank line and does not begin with a space or tab: an entry of a dictionary whose bodies are indented, a speech of
/// a play, a paragraph of prose.
inline std::vector<std::string_view> split_documents(std::string_view text) {
  std::vector<std::string_view> documents;
  std::size_t begin = 0;
  bool after_blank = false;
  for (std::size_t line = 0; line < text.size();) {
    std::size_t const end = text.find('\n', line);
    std::size_t const next = end == std::string_view::npos ? text.size() : end + 1;
    std::string_view const content = text.substr(line, next - line);
    bool const blank = content.find_first_not_of("\r\n") == std::string_view::npos;
    if (!blank && after_blank && content[0] != ' ' && content[0] != '\t' && line > begin) {
      // Blank lines alone at the front of the text belong to the first document.
      if (text.substr(begin, line - begin).find_first_not_of("\r\n") != std::string_view::npos) {
        documents.push_back(text.substr(begin, line - begin));
        begin = line;
      }
    }
    after_blank = blank;
    line = next;
  }
  if (begin < text.size()) documents.push_back(text.substr(begin));
  return documents;
}

/// Documents to learn from and documents to be judged by.
struct HeldOut {
  std::vector<std::string_view> train, validation;
};

/// Holds out `fraction` of the bytes in ten contiguous blocks spread evenly: the text is cut into ten equal stretches,
/// and documents that begin in the last `fraction` of a stretch are held out. With fewer than 40 documents the end of
/// the text is held out instead, cut at the start of a line where there is one, else between characters. `documents`
/// must lie one after another in one text. Errors: invalid_argument, for a fraction outside [0, 0.5].
inline HeldOut hold_out(std::vector<std::string_view> const& documents, double fraction) {
  if (!(fraction >= 0 && fraction <= 0.5))
    throw Error(ErrorKind::invalid_argument, "hold_out",
                "a validation fraction of " + std::to_string(fraction) + " is outside [0, 0.5]. Use 0.1, for example");
  HeldOut result;
  if (documents.empty()) return result;
  char const* const front = documents.front().data();
  auto const total = static_cast<double>(documents.back().data() + documents.back().size() - front);
  if (documents.size() < 40) {
    std::string_view const text(front, static_cast<std::size_t>(total));
    auto cut = static_cast<std::size_t>(total * (1 - fraction));
    if (auto const line = text.rfind('\n', cut); line != std::string_view::npos && line + 1 > cut / 2) cut = line + 1;
    while (cut < text.size() && cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0u) == 0x80u) --cut;
    for (std::string_view const document : documents) {
      auto const begin = static_cast<std::size_t>(document.data() - front), size = document.size();
      std::size_t const before = begin + size <= cut ? size : begin >= cut ? 0 : cut - begin;
      if (before != 0) result.train.push_back(document.substr(0, before));
      if (before != size) result.validation.push_back(document.substr(before));
    }
    return result;
  }
  for (std::string_view const document : documents) {
    double const place = static_cast<double>(document.data() - front) / total * 10;
    (place - static_cast<double>(static_cast<int>(place)) >= 1 - fraction ? result.validation : result.train)
        .push_back(document);
  }
  return result;
}

/// Which of `count` documents are held out, whole and evenly spread: as many as `fraction` of them, rounded down, but
/// one at least of two or more. Errors: as above.
inline std::vector<bool> hold_out_whole(std::size_t count, double fraction) {
  if (!(fraction >= 0 && fraction <= 0.5)) static_cast<void>(hold_out({}, fraction));
  std::vector<bool> held(count);
  if (fraction == 0 || count < 2) return held;
  auto const wanted = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(count) * fraction));
  for (std::size_t i = 0; i < count; ++i) held[i] = (i + 1) * wanted / count > i * wanted / count;
  return held;
}

}  // namespace tutti::data
