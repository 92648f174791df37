// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sums and maxima of contiguous rows, for the bodies of other kernels.

#define TUTTI_ISA_BODY <tutti/kernel/cpu/rows.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
