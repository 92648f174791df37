// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An owner of constant elements could never be filled.
// Expect: a tensor owns elements that can be written
// Lines: 15
#include <tutti/tensor/tensor.hpp>

int main() {
  tutti::TensorView<float const> good;
#ifdef TUTTI_BAD
  tutti::Tensor<float const> bad;
#endif
  return good.size() == 0 ? 0 : 1;
}
