// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How MPICH sends to other nodes over TCP: UCX asks the receiver before a large message, and what it asks waits behind
/// the messages that are already on their way. Where several are, ranks then send by turns, each while the others wait.
/// Messages that are sent without asking cost one copy and have the cable busy in both directions.

#include <tutti/backend/mpi/tuning.hpp>
#include <tutti/comm/launcher.hpp>

#include <dirent.h>
#include <string_view>

namespace tutti::mpi {

/// Whether a folder of /sys lists a device.
inline bool has_entries(char const* folder) noexcept {
  DIR* const listing = ::opendir(folder);
  if (listing == nullptr) return false;
  bool found = false;
  while (dirent const* const entry = ::readdir(listing)) found |= entry->d_name[0] != '.';
  ::closedir(listing);
  return found;
}

/// Whether messages to other nodes go over TCP: the launcher says that there are other nodes, and this one has no
/// network whose devices read and write memory themselves.
inline bool reaches_nodes_by_tcp() noexcept {
  int const here = comm::announced_ranks_on_node();
  return here > 0 && comm::announced_ranks().ranks > here && !has_entries("/sys/class/infiniband");
}

/// Ranks of a job that can send so with an MPICH that leaves late ranks alone at the end (Process::close_together):
/// each connects to each.
inline constexpr int most_eager_ranks = 64;

/// The variable with which MPICH over UCX sends messages of up to 16 MiB without asking: buckets of gradients are
/// smaller, and a receiver that is late keeps what has come.
inline List<Variable> eager_variables(std::string_view library, bool tcp, int ranks, bool strands_late_ranks) {
  if (!tcp || library.find("ch4:ucx") == std::string_view::npos) return {};
  if (strands_late_ranks && ranks > most_eager_ranks) return {};
  return {{"UCX_RNDV_THRESH", "16m"}};
}

}  // namespace tutti::mpi
