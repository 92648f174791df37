// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What MPI_Finalize does first, also when the application calls it: it deletes the attributes of MPI_COMM_SELF
/// (MPI-4.1, section 11.2.4), before anything else of the library goes.

#include <tutti/backend/mpi/error.hpp>

#include <mpi.h>

namespace tutti::mpi {

/// MPI_Finalize calls `deleted` with `kept` as its third argument. MPI has to be initialised, and errors be returned.
inline void at_finalize(MPI_Comm_delete_attr_function* deleted, void* kept) {
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, nullptr), "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, kept), "MPI_Comm_set_attr");
  check(MPI_Comm_free_keyval(&key), "MPI_Comm_free_keyval");
}

/// MPI_Finalize frees the handle with the function of its kind, such as `MPI_Type_free`.
template <auto Free, class Handle>
void free_at_finalize(Handle handle) {
  auto const release = [](MPI_Comm, int, void* kept, void*) {
    auto* const owned = static_cast<Handle*>(kept);
    int const code = Free(owned);
    delete owned;
    return code;
  };
  at_finalize(release, new Handle(handle));
}

}  // namespace tutti::mpi
