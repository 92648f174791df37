// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: (use of deleted function|no matching constructor for initialization of).*TensorView<
// Lines: 15
#include <tutti/tutti.hpp>

#ifdef TUTTI_BAD
using Value = double;
#else
using Value = float;
#endif

std::int64_t size(tutti::TensorView<float> x) {
  tutti::TensorView<Value const> view(x);
  return view.size();
}
