// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// JSON from files that nobody vouches for: damaged text, doubled keys and absurd nesting end in a sentence that names
/// the file.

#include <tutti/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tutti::io {

/// Parses `text`, which came from `source` (a path, for messages). At most 64 levels deep; keys of an object differ.
/// Errors: format.
inline nlohmann::json parse_json(std::string_view text, std::string const& source,
                                 char const* operation = "parse_json") {
  std::vector<std::unordered_set<std::string>> keys;
  auto const refuse = [&](std::string const& why) -> Error {
    return Error(ErrorKind::format, operation,
                 "'" + source + "' is not usable: " + why + ". Restore or rewrite the file");
  };
  auto const watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > 64) throw refuse("its JSON is nested more than 64 levels deep");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get_ref<std::string const&>()).second)
      throw refuse("its JSON has the key " + parsed.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                   " twice in one object");
    return true;
  };
  // The parser takes a zero byte for the end of the text and would not see what follows.
  if (text.find('\0') != std::string_view::npos) throw refuse("its JSON is damaged: there is a zero byte in it");
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (nlohmann::json::exception const& error) {
    throw refuse("its JSON is damaged").with_native(error.what());
  }
}

/// Calls f(line, number) for every line of JSON lines that is not blank, counted from 1, until it returns false.
template <class F>
void for_each_json_line(std::string_view text, F&& f) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (std::int64_t number = 1; !text.empty(); ++number) {
    std::size_t const end = text.find('\n');
    std::string_view const line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos && !f(line, number)) return;
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// Empties a document at its end, from the inside out: the library's destructor needs memory for what is nested, and
/// ends the process where there is none.
class JsonEnd {
 public:
  explicit JsonEnd(nlohmann::json& document) noexcept : document_(document) {}
  JsonEnd(JsonEnd const&) = delete;
  JsonEnd& operator=(JsonEnd const&) = delete;
  ~JsonEnd() { empty(document_); }

 private:
  static void empty(nlohmann::json& value) noexcept {
    if (!value.is_structured()) return;
    for (nlohmann::json& inner : value) empty(inner);
    value.clear();
  }

  nlohmann::json& document_;
};

/// Whether it is this string. Compared with ==, the library's makes a value of the text, and ends the process where
/// there is no memory for it.
inline bool is_text(nlohmann::json const& value, std::string_view text) noexcept {
  auto const* const own = value.get_ptr<std::string const*>();
  return own != nullptr && *own == text;
}

/// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
inline std::string quote_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tutti::io
