// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: the second argument of Tensor is a device
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
using Place = int;
#else
using Place = tutti::Cpu;
#endif

tutti::Tensor<float, Place> x;
