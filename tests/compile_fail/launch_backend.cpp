// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: needs a model of tutti::Backend, such as tutti::Threads
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

int main(int argc, char** argv) {
#ifdef TUTTI_BAD
  return tutti::launch<tutti::Cpu>(argc, argv, [](auto&) {});
#else
  return tutti::launch<tutti::Threads>(argc, argv, [](auto&) {});
#endif
}
