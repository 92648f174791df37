// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: constraint
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
using Place = int;
#else
using Place = tutti::Cpu;
#endif

tutti::Tensor<float, Place> x;
