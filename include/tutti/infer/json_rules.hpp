// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The rules of a grammar (GBNF) of JSON texts: those of the JSON language, and those that are made for one schema.

#include <tutti/core/concat.hpp>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer::detail {

class JsonRules {
 public:
  /// A rule of the JSON language, which brings those that it needs.
  std::string base(std::string const& name) {
    static std::map<std::string, std::pair<char const*, std::vector<std::string>>> const known{
        {"ws", {R"(" "? | "\n" [ \t]{0,20})", {}}},
        {"boolean", {R"("true" | "false")", {}}},
        {"null", {R"("null")", {}}},
        {"integer", {R"("-"? ("0" | [1-9] [0-9]{0,17}))", {}}},
        {"number", {R"("-"? ("0" | [1-9] [0-9]{0,17}) ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?)", {}}},
        {"char", {R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))", {}}},
        {"string", {R"("\"" char* "\"")", {"char"}}},
        {"member", {R"(string ws ":" ws value)", {"string", "ws", "value"}}},
        {"object", {R"("{" ws (member ws ("," ws member ws)*)? "}")", {"member", "ws"}}},
        {"array", {R"("[" ws (value ws ("," ws value ws)*)? "]")", {"value", "ws"}}},
        {"value",
         {"object | array | string | number | boolean | null",
          {"object", "array", "string", "number", "boolean", "null"}}}};
    auto const& [body, needs] = known.at(name);
    if (rules_.emplace(name, body).second)
      for (std::string const& other : needs) static_cast<void>(base(other));
    return name;
  }
  /// A rule with a name that no other has, which is returned.
  std::string add(std::string const& hint, std::string body) {
    std::string const name = new_name(hint);
    define(name, std::move(body));
    return name;
  }
  std::string new_name(std::string const& hint) { return concat(hint, "-", ++made_); }
  void define(std::string const& name, std::string body) { rules_.emplace(name, std::move(body)); }
  static std::string literal(std::string const& text) {
    std::string quoted = "\"";
    for (char const c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (c == '\n') quoted += "\\n";
      else if (c == '\r') quoted += "\\r";
      else if (c == '\t') quoted += "\\t";
      else quoted += c;
    }
    return quoted + "\"";
  }

  /// What may stand between the quotes of a string that is none of `names`: characters without escapes, by which a name
  /// could be written in another way.
  std::string other_than(std::set<std::string> const& names) {
    std::map<std::string, std::set<std::string>> behind;  // by the first character, of one to four bytes
    for (std::string const& name : names) {
      if (name.empty()) continue;
      std::size_t end = 1;
      while (end < name.size() && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) ++end;
      behind[name.substr(0, end)].insert(name.substr(end));
    }
    std::string firsts, text;
    for (auto const& [first, rest] : behind) {
      if (first.size() == 1 && (first[0] < 0x20 || first[0] == 0x7f || first[0] == '"')) continue;  // only as escapes
      if (first == "\\") continue;
      firsts += first == "]" || first == "-" || first == "^" ? "\\" + first : first;
      text += concat(" | ", literal(first), " ", other_than(rest));
    }
    rules_.emplace("plain", R"([^"\\\x00-\x1F\x7F])");
    return add("other", concat(R"([^"\\\x00-\x1F\x7F)", firsts, "] plain*", text, names.contains("") ? "" : " | \"\""));
  }

  /// All of them, with `root` as the first.
  std::string grammar(std::string const& root) const {
    std::string text = concat("root ::= ", root, "\n");
    for (auto const& [name, body] : rules_) text += concat(name, " ::= ", body, "\n");
    return text;
  }

 private:
  std::map<std::string, std::string> rules_;
  int made_ = 0;
};

}  // namespace tutti::infer::detail
