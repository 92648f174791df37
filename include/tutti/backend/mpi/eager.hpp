// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How MPICH sends to other nodes over TCP: UCX asks the receiver before a large message, and what it asks waits behind
/// the messages that are already on their way. Where several are, ranks then send by turns, each while the others wait.
/// Messages that are sent without asking cost one copy and have the cable busy in both directions.

#include <tutti/backend/mpi/tuning.hpp>
#include <tutti/comm/launcher.hpp>

#include <dirent.h>
#include <cstdio>
#include <string>

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

inline bool is_over_ucx(std::string const& library) noexcept { return library.find("ch4:ucx") != std::string::npos; }

/// MPICH before 4.2 over UCX closes its connections in MPI_Finalize and then waits for the other ranks without serving
/// them (pmodels/mpich#6596). To close one of TCP takes an answer, which a late rank then never gets: the job hangs at
/// its end.
inline bool strands_late_ranks(std::string const& library) noexcept {
  int major = 0;
  int minor = 0;
  return is_over_ucx(library) && std::sscanf(library.c_str(), "MPICH Version: %d.%d", &major, &minor) == 2 &&
         (major < 4 || (major == 4 && minor < 2));
}

/// Ranks of a job that can send so with an MPICH that strands late ranks (Process::close_together): each connects to
/// each.
inline constexpr int most_eager_ranks = 64;

/// The variable with which MPICH over UCX sends messages of up to 16 MiB without asking: buckets of gradients are
/// smaller, and a receiver that is late keeps what has come. `library`: its version text.
inline List<Variable> eager_variables(std::string const& library, bool tcp, int ranks) {
  if (!tcp || !is_over_ucx(library) || (strands_late_ranks(library) && ranks > most_eager_ranks)) return {};
  return {{"UCX_RNDV_THRESH", "16m"}};
}

}  // namespace tutti::mpi
