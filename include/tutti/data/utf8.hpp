// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where valid UTF-8 ends.

#include <cstddef>
#include <string_view>

namespace tutti::data {

/// What stands at the front of some bytes.
struct Utf8Front {
  std::size_t length = 0;  ///< bytes of the character; 0 when they are not one
  bool truncated = false;  ///< with length 0: what is there could still become a character when bytes follow
};

/// Looks at the first character. Overlong forms, surrogates and code points above U+10FFFF are no characters.
constexpr Utf8Front utf8_front(std::string_view bytes) noexcept {
  if (bytes.empty()) return {0, true};
  auto const at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  unsigned const lead = at(0);
  if (lead < 0x80) return {1, false};
  std::size_t const length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : (lead & 0xF0u) == 0xE0u      ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0) return {};
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {0, true};
    unsigned const low = i == 1 && lead == 0xE0 ? 0xA0u : i == 1 && lead == 0xF0 ? 0x90u : 0x80u;
    unsigned const high = i == 1 && lead == 0xED ? 0x9Fu : i == 1 && lead == 0xF4 ? 0x8Fu : 0xBFu;
    if (at(i) < low || at(i) > high) return {};
  }
  return {length, false};
}

/// Length of the longest prefix that is valid UTF-8.
constexpr std::size_t utf8_prefix(std::string_view bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    if (static_cast<unsigned char>(bytes[done]) < 0x80) {
      ++done;
      continue;
    }
    std::size_t const length = utf8_front(bytes.substr(done)).length;
    if (length == 0) break;
    done += length;
  }
  return done;
}

}  // namespace tutti::data
