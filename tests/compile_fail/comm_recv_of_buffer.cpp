// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: recv\(x, from, tag\)
// Lines: 15
#include <tutti/tutti.hpp>

void f(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float>& x) {
#ifdef TUTTI_BAD
  static_cast<void>(comm.recv<float>(x));
#else
  comm.recv(x, 0);
#endif
}
