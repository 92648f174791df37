// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: convert_elements changes the type
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
using Value = double;
#else
using Value = float;
#endif

tutti::Tensor<Value> moved(tutti::Tensor<float> x) { return tutti::Tensor<Value>(std::move(x)); }
