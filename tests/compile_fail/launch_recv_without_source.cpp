// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: recv\(x, from, tag\)
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3});
#ifdef TUTTI_BAD
    comm.recv(x);
#else
    comm.recv(x, tutti::any_source);
#endif
  });
}
