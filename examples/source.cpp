// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The one source of a program with TUTTI_SEPARATE_COMPILATION that compiles kernels and the compiler of graphs.
/// It is in Meson's tutti-compiled.

#include <tutti/source.hpp>
