// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copying a tensor is said by name.
// Expect: (deleted|implicitly-deleted)
// Lines: 15
#include <tutti/tensor/tensor.hpp>

int main() {
  tutti::Tensor<float> a({1});
  tutti::Tensor<float> b = a.clone();
#ifdef TUTTI_BAD
  tutti::Tensor<float> c = a;
#endif
  return a.size() == b.size() ? 0 : 1;
}
