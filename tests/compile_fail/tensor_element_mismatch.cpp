// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view of float is not a view of double.
// Expect: TensorView<(const )?float
// Expect: TensorView<(const )?double
// Lines: 15
#include <tutti/tensor/tensor.hpp>

double total(tutti::TensorView<double const> values) { return static_cast<double>(values.size()); }

int main() {
  tutti::Tensor<double> good({2});
  tutti::Tensor<float> other({2});
#ifdef TUTTI_BAD
  return total(other.view()) == 2 ? 0 : 1;
#endif
  return total(good) == 2 && other.size() == 2 ? 0 : 1;
}
