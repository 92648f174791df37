// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a report says of the machine and the compiler.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tutti::bench {

inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

inline char const* compiler_name() {
#ifdef __clang__
  return __VERSION__;
#else
  return "g++ " __VERSION__;
#endif
}

/// Processes that wanted to run in the last minute, on average; 0 where the system does not say.
inline double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace tutti::bench
