// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Umbrella of the backend between GPUs: `tutti::NcclOn<Host>`, `launch<NcclOn<Mpi>>`.

#include <tutti/backend/nccl/backend.hpp>
#include <tutti/backend/nccl/config.hpp>
#include <tutti/backend/nccl/error.hpp>
