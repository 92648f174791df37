// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: takes \(from, to, counts\)
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>
#include <vector>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = float;
#endif

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    tutti::Tensor<float> x({3});
    std::vector<Value> y(3);
    comm.all_gather_v(x, y, {1, 2});
  });
}
