// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a reduction takes \(x, op\) or \(from, to, op\)
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3});
#ifdef TUTTI_BAD
    comm.all_reduce(tutti::sum, x);
#else
    comm.all_reduce(x, tutti::sum);
#endif
  });
}
