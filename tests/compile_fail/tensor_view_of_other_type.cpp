// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: (conversion from|no viable conversion from).*Tensor<float.*TensorView<double
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
using Value = double;
#else
using Value = float;
#endif

std::int64_t size(tutti::Tensor<float>& x) {
  tutti::TensorView<Value> view = x;
  return view.size();
}
