// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Names of ranges of a program, which its nodes, steps and traces know.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::graph {

/// Those that are open while a graph is built: "decoder/*/attention". A * stands for the iterations of a loop.
class Scopes {
 public:
  constexpr Scopes() = default;
  /// Of the body of a loop that is traced inside of these.
  constexpr Scopes(Scopes const& around, int) : path_(around.path_) {
    if (!path_.empty()) enter("*");
  }

  /// Ends what was opened, in the reverse order.
  class Range {
   public:
    constexpr Range(Scopes& scopes, std::size_t length) : scopes_(scopes), length_(length) {}
    Range(Range const&) = delete;
    Range& operator=(Range const&) = delete;
    constexpr ~Range() { scopes_.path_.resize(length_); }

   private:
    Scopes& scopes_;
    std::size_t length_;
  };
  /// Errors: invalid_argument, for an empty name, "*", " @ " in it, and control characters.
  [[nodiscard]] constexpr Range open(std::string_view name, bool in_loop, std::source_location where) {
    bool good = !name.empty() && name != "*" && name.find(Graph::scope_end) == name.npos;
    for (char const c : name) good = good && static_cast<unsigned char>(c) >= 0x20;
    if (!good)
      throw Error(ErrorKind::invalid_argument, "scope",
                  "'" + std::string(name) + "' is no name of a range; give one such as \"attention\"", where);
    std::size_t const length = path_.size();
    if (length == 0 && in_loop) enter("*");
    enter(name);
    return {*this, length};
  }
  constexpr bool empty() const noexcept { return path_.empty(); }
  /// What nodes keep in the place of the file, see Graph::source.
  constexpr List<char> source(std::string_view file) const {
    List<char> text = path_;
    text.append(Graph::scope_end.begin(), Graph::scope_end.end());
    text.append(file.begin(), file.end());
    return text;
  }

 private:
  constexpr void enter(std::string_view name) {
    if (!path_.empty()) path_.push_back('/');
    path_.append(name.begin(), name.end());
  }

  List<char> path_;
};

}  // namespace tutti::graph
