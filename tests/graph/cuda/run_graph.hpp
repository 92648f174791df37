// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What tests of graphs on a device share.

#include "cuda/support.hpp"
#include "graph/run_graph.hpp"

#include <tutti/graph/cuda/executor.hpp>

namespace tutti::test {

/// Made once per program.
kernel::cuda::Blas& cuda_blas();

}  // namespace tutti::test
