// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a receive names what comes
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = char;
#endif

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) { auto x = comm.template recv<Value>(0); });
}
