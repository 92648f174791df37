// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Text for the inside of a JSON string.

#include <string>
#include <string_view>

namespace tutti {

/// With quotes and backslashes escaped; control characters become question marks.
inline std::string json_text(std::string_view text) {
  std::string result;
  for (char const c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return result;
}

}  // namespace tutti
