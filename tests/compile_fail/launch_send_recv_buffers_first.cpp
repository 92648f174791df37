// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: send_recv takes \(out, to, in, from, tag\)
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3}), y({3});
#ifdef TUTTI_BAD
    comm.send_recv(x, y, 0, 0);
#else
    comm.send_recv(x, 0, y, 0);
#endif
  });
}
