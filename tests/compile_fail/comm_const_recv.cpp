// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: the receive buffer of this operation is const
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <utility>

void f(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float>& x) {
#ifdef TUTTI_BAD
  comm.recv(std::as_const(x), 0);
#else
  comm.recv(x, 0);
#endif
}
