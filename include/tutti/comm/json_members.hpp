// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Members of JSON objects, without memory of their own, so that a signal handler can write them.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::comm {

/// Members of JSON objects, passed to `sink(text)` piece by piece.
template <class Sink>
class JsonMembers {
 public:
  explicit JsonMembers(Sink& sink) noexcept : sink_(sink) {}

  /// The next member is the first of an object.
  void begin() noexcept { first_ = true; }
  void member(std::string_view name, std::int64_t value) {
    key(name);
    char digits[24];
    char* at = digits + sizeof digits;
    std::uint64_t rest = value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    do *--at = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0) *--at = '-';
    sink_(std::string_view(at, static_cast<std::size_t>(digits + sizeof digits - at)));
  }
  void member(std::string_view name, std::string_view value) {
    key(name);
    sink_("\"");
    std::size_t plain = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      auto const c = static_cast<unsigned char>(value[i]);
      if (c >= 0x20 && c != '"' && c != '\\') continue;
      sink_(value.substr(plain, i - plain));
      char const escape[] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
      sink_(std::string_view(escape, sizeof escape));
      plain = i + 1;
    }
    sink_(value.substr(plain));
    sink_("\"");
  }

 private:
  void key(std::string_view text) {
    sink_(first_ ? "\"" : ", \"");
    first_ = false;
    sink_(text);
    sink_("\": ");
  }

  Sink& sink_;
  bool first_ = true;
};

}  // namespace tutti::comm
