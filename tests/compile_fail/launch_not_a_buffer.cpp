// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a reduction takes \(x, op\) or \(from, to, op\)
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>
#include <vector>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = char;
#endif

int main(int argc, char** argv) {
  return tutti::launch<tutti::Threads>(argc, argv, [](auto& comm) {
    std::vector<Value> x(3);
    comm.all_reduce(x, tutti::max);
  });
}
