// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The part of CUDA's runtime header that tutti uses, for a machine without CUDA: a kernel's threads are fibers on one
/// thread of this process, device memory is host memory that the host cannot touch, streams do their work as late as
/// they may. docs/adr/0013 says what this finds and what it cannot.
///
/// Names and meanings are CUDA's; what differs is said where it is declared. The environment variable
/// TUTTI_CUDA_SEED permutes every order that CUDA leaves open: of blocks, warps, lanes, streams and captured work.

#include "emulated/block.hpp"
#include "emulated/intrinsics.hpp"
#include "emulated/runtime.hpp"
#include "emulated/vectors.hpp"
#include "emulated/warp.hpp"
