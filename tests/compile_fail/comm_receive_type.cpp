// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a receive names what comes, recv<T>\(from, tag\)
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <string>

void f(tutti::Communicator<tutti::Threads>& comm) {
#ifdef TUTTI_BAD
  auto text = comm.recv<std::string>(0);
#else
  auto text = comm.recv<char>(0);
#endif
}
