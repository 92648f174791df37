// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What ranks get that do not make the same call: an Error on every rank, which names both calls and where they stand.
///
///     ./005_mistakes --ranks 3                    # on Threads; as 005_mistakes_mpi on Mpi:
///     mpiexec -n 3 ./005_mistakes_mpi
///     TUTTI_FLIGHT_RECORD=/tmp/run ./005_mistakes --ranks 3; tutti-doctor /tmp/run.*.json   # the last mistake

#include <tutti/comm.hpp>

#include <tutti/backend/any.hpp>

#include <cstdio>
#include <vector>

// mpiexec starts the ranks of Mpi, which stays until the process exits: so launch may be called again.
#if TUTTI_WITH_MPI
using Ranks = tutti::Mpi;
#else
using Ranks = tutti::Threads;
#endif

namespace {

void another_count(auto& comm) {
  std::vector<float> x(comm.rank() == 1 ? 4 : 8);
  comm.all_reduce(x, tutti::sum);
}

void another_operator(auto& comm) {
  std::vector<float> x(8);
  if (comm.rank() == 1) comm.all_reduce(x, tutti::max);
  else comm.all_reduce(x, tutti::sum);
}

void another_root(auto& comm) {
  std::vector<float> x(8);
  comm.broadcast(x, comm.rank() == 1 ? 1 : 0);
}

void another_kind(auto& comm) {
  std::vector<float> x(8);
  if (comm.rank() == 1) comm.barrier();
  else comm.all_reduce(x, tutti::sum);
}

}  // namespace

int main(int argc, char** argv) {
  auto const every_rank = [&](auto mistake) {
    return tutti::launch<Ranks>(argc, argv, [&](auto& comm) {
      try {
        mistake(comm);
        return comm.size() == 1 ? 0 : 1;  // a rank alone makes none
      } catch (tutti::Error const& error) {
        if (comm.rank() == 0) std::printf("%s\n\n", error.what());
        return 0;
      }
    });
  };
  return every_rank([](auto& comm) { another_count(comm); }) + every_rank([](auto& comm) { another_operator(comm); }) +
         every_rank([](auto& comm) { another_root(comm); }) + every_rank([](auto& comm) { another_kind(comm); });
}
