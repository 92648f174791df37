// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What the other compiler reads (clang.py): the library whole, with the bodies that a program compiles once.

#include <tutti/source.hpp>

#include <tutti/infer.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>
#if __has_include(<mpi.h>)
#include <tutti/backend/mpi.hpp>
#endif
