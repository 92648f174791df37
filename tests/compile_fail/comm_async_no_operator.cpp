// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a reduction needs an operator, such as tutti::sum
// Lines: 15
#include <tutti/tutti.hpp>

void f(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float>& x) {
#ifdef TUTTI_BAD
  comm.all_reduce_async(x).wait();
#else
  comm.all_reduce_async(x, tutti::sum).wait();
#endif
}
