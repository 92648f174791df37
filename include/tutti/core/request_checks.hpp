// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a server on this machine asks of a request before it believes it.

#include <cstddef>
#include <string_view>

namespace tutti {

/// Equal without telling by the time it takes where they differ.
inline bool same_secret(std::string_view given, std::string_view key) noexcept {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < key.size(); ++i)
    difference |= static_cast<unsigned char>(key[i]) ^ static_cast<unsigned char>(i < given.size() ? given[i] : 0);
  return difference == 0;
}

/// Whether a Host header names this machine by a name that no stranger's page can have. Ports may be forwarded ones.
inline bool names_this_machine(std::string_view host) noexcept {
  std::size_t const colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {
    for (char const digit : host.substr(colon + 1))
      if (digit < '0' || digit > '9') return false;
    host = host.substr(0, colon);
  }
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

}  // namespace tutti
