// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a view refers to numbers, std::byte, char, bool, complex numbers or plain structs
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = char;
#endif

void read(tutti::TensorView<Value const> const& view) { static_cast<void>(view.shape()); }
