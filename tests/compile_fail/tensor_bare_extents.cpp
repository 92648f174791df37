// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: tutti: extents and axes stand in braces
// Lines: 15
#include <tutti/tutti.hpp>

void f(tutti::Tensor<float>& x) {
#ifdef TUTTI_BAD
  x.reshape(2, 3);
#else
  x.reshape({2, 3});
#endif
}
