// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The second translation unit.

#include <tutti/graph.hpp>
#include <tutti/tutti.hpp>

void const* other_dtype_size() { return reinterpret_cast<void const*>(&tutti::size_of); }
void const* other_alignment() { return &tutti::storage_alignment; }
tutti::Tensor<float, tutti::Cpu> other_tensor() { return tutti::Tensor<float, tutti::Cpu>(tutti::Shape{2, 3}); }
