// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// NCCL's error codes as `Error`, and the versions that tutti was built with and runs on.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <nccl.h>

#include <source_location>
#include <string>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
#error "tutti: the Nccl backend needs nccl.h of NCCL 2.19.1 or later: aborting a communicator is unreliable before"
#endif

namespace tutti::nccl {

/// "unhandled cuda error: ..." with the communicator's own last words, if it has any.
template <class = void>
std::string error_text(ncclResult_t code, ncclComm_t comm = nullptr) {
  std::string text = ncclGetErrorString(code);
  char const* const last = ncclGetLastError(comm);
  return last == nullptr || *last == 0 ? text : concat(text, ": ", last);
}

/// Errors     invalid_argument of what NCCL calls so, which has had no effect; communication of everything else.
template <class = void>
void check(ncclResult_t code, char const* call, ncclComm_t comm = nullptr,
           std::source_location where = std::source_location::current()) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  auto const kind = code == ncclInvalidArgument ? ErrorKind::invalid_argument : ErrorKind::communication;
  char const* const advice =
      code == ncclRemoteError   ? ". Another rank has failed or cannot be reached: look at its messages"
      : code == ncclSystemError ? ". Look at network and drivers; NCCL_DEBUG=INFO tells more"
                                : ". NCCL_DEBUG=INFO tells more";
  throw Error(kind, call, concat("NCCL failed: ", ncclGetErrorString(code), advice), where)
      .with_native(error_text(code, comm));
}

/// "2.28.9" of 22809, and "2.8.4" of 2804, as versions before 2.9 were counted.
template <class = void>
std::string version_text(int code) {
  int const base = code >= 10000 ? 10000 : 1000;
  return concat(code / base, ".", code % base / 100, ".", code % 100);
}

/// The library that the program runs on; it may be newer than the header.
/// Errors     unavailable: it is older than the header, whose functions it may lack.
template <class = void>
int library_version(std::source_location where = std::source_location::current()) {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion", nullptr, where);
  if (version / 100 < NCCL_VERSION_CODE / 100)
    throw Error(ErrorKind::unavailable, "Nccl",
                concat("this program was built with the header of NCCL ", version_text(NCCL_VERSION_CODE),
                       " and runs on NCCL ", version_text(version),
                       ", which lacks some of it. Put the newer library first in LD_LIBRARY_PATH, or build with the "
                       "header of the older one"),
                where);
  return version;
}

}  // namespace tutti::nccl
