// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Compiles the collectives of `Communicator<Mpi>` for every type and operator, and starts the job.

#include "binding.hpp"
#include "copies.hpp"
#include "ours.hpp"
#include "processes.hpp"
#include "report.hpp"
#include "run.hpp"

#include <tutti/backend/mpi.hpp>

namespace tutti::bench {

bool launched_by_mpi() { return comm::announced_ranks().ranks > 0; }

int run_processes(int argc, char** argv, Options const& o, std::int64_t largest,
                  std::function<int(Processes const&)> master) {
  return launch<Mpi>(argc, argv, [&](Communicator<Mpi>& comm) {
    int const rank = comm.rank();
    ProcessTeam team;
    bind_rank(rank, comm.size());
    Processes all{nullptr, comm.size(), arena_bytes(o, comm.size(), largest), comm.heap().shared(),
                  mpi::Environment::library()};
    if (o.ranks != 0 && o.ranks != all.ranks)
      throw std::runtime_error("--ranks " + std::to_string(o.ranks) + ", but MPI sees " + std::to_string(all.ranks) +
                               ": start the program with mpiexec -n " + std::to_string(o.ranks));
    Shape const whole{Arena::allocation(all.arena_bytes)};
    Tensor<std::byte> memory = o.private_memory ? Tensor<std::byte>(whole) : tensor<std::byte>(comm, whole);
    Find const find = [&](Contender contender, Case const& c) -> Call {
      switch (contender) {
        case Contender::ours: return ours(comm, c);
        case Contender::raw:
        case Contender::raw_sum: return raw_call(contender, c, rank);
        case Contender::copy: return memcpy_call(c);
        case Contender::stream: return streamed_copy_call(c);
        case Contender::naive: break;
      }
      return {};
    };
    ProcessesCrew crew(team, Arena(memory.data(), all.arena_bytes), find);
    if (rank != 0) {
      crew.serve();
      return 0;
    }
    all.crew = &crew;
    int const code = master(all);
    crew.stop();
    return code;
  });
}

}  // namespace tutti::bench
