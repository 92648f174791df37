// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: contexts are described in a header of their own: #include <tutti/exec/context.hpp>
// Lines: 15
#include <tutti/tutti.hpp>

#ifndef TUTTI_BAD
#include <tutti/exec/context.hpp>
#endif

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) { auto options = comm.context_options(); });
}
