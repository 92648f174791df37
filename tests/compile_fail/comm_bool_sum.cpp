// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: bool is reduced by logical_and, logical_or, logical_xor or a callable
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

void reduce(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<bool>& x) {
#ifdef TUTTI_BAD
  comm.all_reduce(x, tutti::sum);
#else
  comm.all_reduce(x, tutti::logical_or);
#endif
}
