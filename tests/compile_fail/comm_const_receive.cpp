// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: the receive buffer of this operation is const
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

void receive(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float>& x) {
#ifdef TUTTI_BAD
  auto const& target = x;
#else
  auto& target = x;
#endif
  comm.broadcast(target);
}
