// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a reduction needs an operator, such as tutti::sum, behind its buffers
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3});
    tutti::Tensor<float> y({3});
#ifdef TUTTI_BAD
    comm.all_reduce(x, y);
#else
    comm.all_reduce(x, y, tutti::sum);
#endif
  });
}
