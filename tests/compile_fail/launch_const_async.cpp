// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: the receive buffer of this operation is const
// Lines: 15
#include <tutti/tutti.hpp>

#include <utility>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3});
#ifdef TUTTI_BAD
    auto request = comm.broadcast_async(std::as_const(x));
#else
    auto request = comm.broadcast_async(x);
#endif
  });
}
