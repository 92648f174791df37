// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: send_recv moves elements of one type
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

void f(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float>& x, tutti::Tensor<double>& y) {
#ifdef TUTTI_BAD
  comm.send_recv(x, 0, y, 0);
#else
  comm.send_recv(x, 0, x.clone(), 0);
#endif
}
