// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bits of floating-point numbers are combined by nobody on purpose.
// Expect: this operator has no meaning for elements of this type
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#ifdef TUTTI_BAD
using Number = float;
#else
using Number = unsigned;
#endif

void reduce(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<Number>& x) {
  comm.all_reduce(x, tutti::bitwise_xor);
}
