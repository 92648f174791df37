// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy keeps the element type.
// Expect: a copy keeps the element type; use convert_elements to change it
// Lines: 15
#include <tutti/tensor/copy.hpp>

int main() {
  tutti::Tensor<float> a({0});
  tutti::Tensor<double> b({0});
  tutti::copy(a, a);
#ifdef TUTTI_BAD
  tutti::copy_to_host(a, b);
#endif
  return a.size() == b.size() ? 0 : 1;
}
