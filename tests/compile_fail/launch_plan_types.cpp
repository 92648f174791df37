// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: the two buffers of this collective have different element types
// Lines: 15
#include <tutti/tutti.hpp>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3}), y({3});
    tutti::Tensor<double> z({3});
#ifdef TUTTI_BAD
    auto plan = comm.all_reduce_plan(x, z, tutti::sum);
#else
    auto plan = comm.all_reduce_plan(x, y, tutti::sum);
#endif
  });
}
