// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Umbrella of the backend on MPI: `tutti::Mpi`, `tutti::mpi::Environment`, `launch<Mpi>`.

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/backend/mpi/calls.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/backend/mpi/launch.hpp>
