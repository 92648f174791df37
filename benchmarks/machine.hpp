// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a report says of the machine and the compiler.

#include <tutti/exec/processors.hpp>

#include <cstdlib>

namespace tutti::bench {

using exec::processor_name;

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
