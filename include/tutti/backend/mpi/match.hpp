// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A message that a probe took out of MPI's queue.

#include <tutti/backend/mpi/environment.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::mpi {

/// A small one that is dropped unreceived is taken off MPI's hands; a large one stays there.
struct Match {
  Match() = default;
  Match(Match&& other) noexcept : message(std::exchange(other.message, MPI_MESSAGE_NULL)), bytes(other.bytes) {}
  Match& operator=(Match&& other) noexcept {
    std::swap(message, other.message);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Match() {
    if (message == MPI_MESSAGE_NULL || bytes > small) return;
    std::byte nowhere[small];
    if (Environment::usable()) MPI_Mrecv(nowhere, small, MPI_BYTE, &message, MPI_STATUS_IGNORE);  // arrived: no wait
  }

  static constexpr int small = 1024;
  MPI_Message message = MPI_MESSAGE_NULL;
  std::int64_t bytes = 0;
};

}  // namespace tutti::mpi
