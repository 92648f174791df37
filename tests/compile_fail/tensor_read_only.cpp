// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view of a constant tensor cannot be written.
// Expect: (read-only|assignment of read-only|not assignable|cannot assign)
// Lines: 15
#include <tutti/tensor/tensor.hpp>

int main() {
  tutti::Tensor<float> const constant({1});
  tutti::Tensor<float> variable({1});
  variable(0) = 1;
#ifdef TUTTI_BAD
  constant(0) = 1;
#endif
  return constant.size() == variable.size() ? 0 : 1;
}
