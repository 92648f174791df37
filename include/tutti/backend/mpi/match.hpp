// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A message that a probe took out of the queue: MPI's, or that of ranks which share memory.

#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/segment.hpp>
#include <tutti/comm/shared/messages.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::mpi {

/// A small one that is dropped unreceived is taken off MPI's hands; a large one stays there.
struct Match {
  Match() = default;
  Match(Match&& other) noexcept
      : message(std::exchange(other.message, MPI_MESSAGE_NULL)),
        bytes(other.bytes),
        memory(std::move(other.memory)),
        letter(std::move(other.letter)) {}
  Match& operator=(Match&& other) noexcept {
    std::swap(message, other.message);
    std::swap(bytes, other.bytes);
    std::swap(memory, other.memory);
    std::swap(letter, other.letter);
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
  Shared<Segment> memory;  ///< where the letter may be; outlives it
  Owner<tutti::comm::shared::Letter> letter;
};

}  // namespace tutti::mpi
