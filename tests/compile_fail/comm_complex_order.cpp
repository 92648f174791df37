// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Complex numbers have no order.
// Expect: this operator has no meaning for elements of this type
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <complex>

#ifdef TUTTI_BAD
using Op = tutti::Max;
#else
using Op = tutti::Prod;
#endif

void reduce(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<std::complex<float>>& x) {
  comm.all_reduce(x, Op{});
}
