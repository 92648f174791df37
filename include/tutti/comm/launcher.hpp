// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the launcher of a parallel job left in the environment, read before any library is started.

#include <cstdlib>

namespace tutti::comm {

/// Ranks that the launcher announced, with the variable that says so; 0 ranks when none did or the number is not said,
/// and no variable when nothing points to a launcher.
struct Announced {
  int ranks = 0;
  char const* variable = "";
  bool launched() const noexcept { return *variable != 0; }
};

inline Announced announced_ranks() noexcept {
  for (char const* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (char const* const value = std::getenv(variable); value != nullptr)
      if (int const ranks = std::atoi(value); ranks > 0) return {ranks, variable};
  for (char const* variable : {"PMIX_RANK", "PMI_RANK"})
    if (std::getenv(variable) != nullptr) return {0, variable};
  return {};
}

/// This process's number among those that the launcher started; -1 where none says so.
inline int announced_rank() noexcept {
  for (char const* variable : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"})
    if (char const* const value = std::getenv(variable); value != nullptr) return std::atoi(value);
  return -1;
}

}  // namespace tutti::comm
