// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: an asynchronous operation cannot borrow a temporary array
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <array>

void start(tutti::Communicator<tutti::Threads>& comm, std::array<float, 3>& x) {
#ifdef TUTTI_BAD
  comm.broadcast_async(std::array<float, 3>(x)).wait();
#else
  comm.broadcast_async(x).wait();
#endif
}
