// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: f takes a Communicator
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

int main(int argc, char** argv) {
#ifdef TUTTI_BAD
  return tutti::launch<tutti::Threads>(argc, argv, [] {});
#else
  return tutti::launch<tutti::Threads>(argc, argv, [](auto&) {});
#endif
}
