// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What refers to read-only elements never becomes a reference to writable ones.
// Expect: (conversion from|no viable conversion from).*TensorView<(const float|float const).*TensorView<float
// Lines: 15
#include <tutti/comm.hpp>

int main() {
  tutti::Tensor<float> t({1});
  tutti::TensorView<float const> read = t;
#ifdef TUTTI_BAD
  tutti::TensorView<float> write = read;
#else
  tutti::TensorView<float> write = t;
#endif
  return read.size() == write.size() ? 0 : 1;
}
