// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the launcher of a parallel job left in the environment, read before any library is started.

#include <cstdlib>
#include <source_location>

namespace tutti::comm {

/// Ranks that the launcher announced, with the variable that says so; 0 ranks when none did or the number is not said,
/// and no variable when nothing points to a launcher.
struct Announced {
  int ranks = 0;
  char const* variable = "";
  bool launched() const noexcept { return *variable != 0; }
};

inline Announced announced_ranks() noexcept {
  constexpr char const* with_ranks[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"};
  for (char const* variable : with_ranks)
    if (char const* const value = std::getenv(variable); value != nullptr)
      if (int const ranks = std::atoi(value); ranks > 0) return {ranks, variable};
  constexpr char const* without_ranks[] = {"PMIX_RANK", "PMI_RANK"};
  for (char const* variable : without_ranks)
    if (std::getenv(variable) != nullptr) return {0, variable};
  return {};
}

/// Ranks that the launcher put on this node; all of them, where it does not say; 0 where nobody says.
inline int announced_ranks_on_node() noexcept {
  constexpr char const* variables[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"};
  for (char const* variable : variables)
    if (char const* const value = std::getenv(variable); value != nullptr)
      if (int const ranks = std::atoi(value); ranks > 0) return ranks;
  return announced_ranks().ranks;
}

/// This process's number among those that the launcher started; -1 where none says so.
inline int announced_rank() noexcept {
  constexpr char const* variables[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"};
  for (char const* variable : variables)
    if (char const* const value = std::getenv(variable); value != nullptr) return std::atoi(value);
  return -1;
}

/// B::launch, for whom the errors of the launch itself name the line that launched, where it can say so.
template <class B, class F>
int launch_at(int argc, char** argv, F& f, std::source_location where) {
  if constexpr (requires { B::launch(argc, argv, f, where); }) return B::launch(argc, argv, f, where);
  else if constexpr (requires { B::launch(argc, argv, f, {}, where); }) return B::launch(argc, argv, f, {}, where);
  else return B::launch(argc, argv, f);
}

}  // namespace tutti::comm
