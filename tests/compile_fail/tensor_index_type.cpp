// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elements are addressed by integers.
// Expect: an index of an element that is no integer
// Lines: 15
#include <tutti/comm.hpp>

int main() {
  tutti::Tensor<float> t({1});
  t(0) = 1;
#ifdef TUTTI_BAD
  t("0") = 1;
#endif
  return t.size() == 1 ? 0 : 1;
}
