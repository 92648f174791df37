// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: an asynchronous operation cannot borrow a temporary container
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <vector>

void start(tutti::Communicator<tutti::Threads>& comm, std::vector<float>& x) {
#ifdef TUTTI_BAD
  comm.broadcast_async(std::vector<float>(x)).wait();
#else
  comm.broadcast_async(x).wait();
#endif
}
