// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: broadcast takes \(x, root\)
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3}), y({3});
#ifdef TUTTI_BAD
    comm.broadcast(x, y);
#else
    comm.broadcast(x, 0), comm.broadcast(y);
#endif
  });
}
