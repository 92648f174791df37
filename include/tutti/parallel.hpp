// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training on many ranks.

#include <tutti/parallel/data_parallel.hpp>
