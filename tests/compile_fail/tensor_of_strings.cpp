// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a tensor holds numbers, std::byte, char, bool, complex numbers or plain structs
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = char;
#endif

void f() { tutti::Tensor<Value> x({4}); }
