// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: extents stand in braces|call to deleted constructor of 'tutti::Tensor<float>'
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
tutti::Tensor<float> x(3);
#else
tutti::Tensor<float> x({3}), y{3};
#endif
