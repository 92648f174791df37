// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No tensor has more than eight axes.
// Expect: more indices than a tensor can have axes
// Lines: 15
#include <tutti/comm.hpp>

int main() {
  tutti::Tensor<float> t({1, 1, 1, 1, 1, 1, 1, 1});
  t(0, 0, 0, 0, 0, 0, 0, 0) = 1;
#ifdef TUTTI_BAD
  t(0, 0, 0, 0, 0, 0, 0, 0, 0) = 1;
#endif
  return t.size() == 1 ? 0 : 1;
}
