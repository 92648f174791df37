// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mistake inside a generic function that is handed to launch is told like one elsewhere.
// Expect: a reduction needs an operator, such as tutti::sum
// Lines: 15
#include <tutti/tutti.hpp>

#include <vector>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    std::vector<float> x(8);
#ifdef TUTTI_BAD
    comm.all_reduce(x);
#else
    comm.all_reduce(x, tutti::sum);
#endif
  });
}
