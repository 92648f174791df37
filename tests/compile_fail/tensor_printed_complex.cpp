// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: complex numbers and structs are not printed
// Lines: 15
#include <tutti/tutti.hpp>

#include <complex>
#include <iostream>

#ifdef TUTTI_BAD
using Value = std::complex<float>;
#else
using Value = float;
#endif

void f(tutti::Tensor<Value> const& x) { std::cout << x; }
