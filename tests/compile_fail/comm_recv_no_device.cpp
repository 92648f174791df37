// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a type that models Device
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

void f(tutti::Communicator<tutti::Threads>& comm) {
#ifdef TUTTI_BAD
  auto x = comm.recv<float, int>(0);
#else
  auto x = comm.recv<float, tutti::Cpu>(0);
#endif
}
