// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tensor holds numbers, bytes and truth values, nothing else.
// Expect: (constraint|static assertion).*
// Expect: (std::string|basic_string|Element)
// Lines: 15
#include <tutti/tensor/tensor.hpp>

#include <string>

int main() {
  tutti::Tensor<float> good;
#ifdef TUTTI_BAD
  tutti::Tensor<std::string> bad;
#endif
  return good.size() == 0 ? 0 : 1;
}
