// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: broadcast takes \(x, root\)
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

void f(tutti::Communicator<tutti::Threads>& comm) {
#ifdef TUTTI_BAD
  static_cast<void>(comm.broadcast(3.0L));
#else
  static_cast<void>(comm.broadcast(3.0));
#endif
}
