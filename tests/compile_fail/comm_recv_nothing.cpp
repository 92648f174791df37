// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a receive names what comes
// Lines: 15
#include <tutti/tutti.hpp>

void f(tutti::Communicator<tutti::Threads>& comm) {
#ifdef TUTTI_BAD
  comm.recv();
#else
  static_cast<void>(comm.recv<float>());
#endif
}
