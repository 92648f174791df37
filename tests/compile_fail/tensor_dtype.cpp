// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tensor holds numbers, bytes and truth values, nothing else.
// Expect: (constraint|static assertion).*
// Expect: (std::string|basic_string|Element)
// Lines: 15
#include <tutti/tensor/tensor.hpp>

#include <string>

using Good = tutti::Tensor<float, tutti::Cpu>;
#ifdef TUTTI_BAD
using Bad = tutti::Tensor<std::string, tutti::Cpu>;
#endif
int main() { return Good{}.size() == 0 ? 0 : 1; }
