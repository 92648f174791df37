// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// When and where: what is written for others to read is stamped with it.

#include <chrono>
#include <string>
#include <unistd.h>

namespace tutti::io {

/// Seconds since 1970, as the machine's clock has them.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
/// This machine's name; empty where it has none.
inline std::string host_name() {
  char name[256] = "";
  static_cast<void>(::gethostname(name, sizeof name - 1));
  return name;
}

}  // namespace tutti::io
