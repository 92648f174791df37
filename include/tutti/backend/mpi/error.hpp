// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// MPI's error codes as exceptions.

#include <tutti/core/error.hpp>

#include <mpi.h>

#include <string>

namespace tutti::mpi {

/// Text of a code; MPICH's is a call stack of several lines, of which all are kept.
inline std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error code " + std::to_string(code);
  return {text, static_cast<std::size_t>(length)};
}

/// Codes are not classes: only the class can be compared.
[[noreturn]] inline void throw_error(int code, char const* call, std::source_location where) {
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_TRUNCATE)
    throw Error(
        ErrorKind::shape, call,
        "a rank sent more than this rank's buffer holds. Make the same call, with the same counts, on every rank",
        where)
        .with_native(error_text(code));
  throw Error(ErrorKind::communication, call, std::string(call) + " failed. The communicator cannot be used any more",
              where)
      .with_native(error_text(code));
}

inline void check(int code, char const* call, std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) throw_error(code, call, where);
}

}  // namespace tutti::mpi
