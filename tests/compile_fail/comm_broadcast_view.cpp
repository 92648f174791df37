// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view that repeats elements is for reading.
// Expect: the receive buffer of this operation is const
// Lines: 15
#include <tutti/tutti.hpp>

void f(tutti::Communicator<tutti::Threads>& comm, tutti::TensorView<float> x) {
#ifdef TUTTI_BAD
  comm.recv(x.broadcast({2, 3}), 1);
#else
  comm.send(x.broadcast({2, 3}), 1);
#endif
}
