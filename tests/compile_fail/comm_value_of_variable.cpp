// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: void
// Lines: 12
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

// A variable is changed in place: who asks for a value says so, or keeps it constant.
double f(tutti::Communicator<tutti::Threads>& comm, double local) {
#ifdef TUTTI_BAD
  double const total = comm.all_reduce(local, tutti::sum);
#else
  double const total = comm.all_reduce_value(local, tutti::sum);
#endif
  return total - local;
}
