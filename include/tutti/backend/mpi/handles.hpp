// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The MPI communicators behind one of tutti's.

#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/notices.hpp>

#include <mpi.h>

namespace tutti::mpi {

/// Messages of derived collectives travel on a communicator of their own, where no wildcard of a user can catch them.
struct Handles {
  MPI_Comm user = MPI_COMM_NULL;
  MPI_Comm internal = MPI_COMM_NULL;
  bool leaked = false;
  Handles() = default;
  Handles(Handles const&) = delete;
  Handles& operator=(Handles const&) = delete;
  ~Handles() {
    if (user == MPI_COMM_NULL || leaked || !Environment::usable()) return;
    int level = MPI_THREAD_MULTIPLE, permitted = 1;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&permitted);
    if (permitted == 0) return;  // stays until MPI ends
    if (internal != MPI_COMM_NULL) {
      Notices::drain(internal);
      MPI_Comm_free(&internal);
    }
    if (user != MPI_COMM_NULL) MPI_Comm_free(&user);
  }
};

}  // namespace tutti::mpi
