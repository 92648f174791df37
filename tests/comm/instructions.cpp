// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// `instructions in_place|out_of_place CALLS` reduces eight bytes so often on one rank, where nobody waits; built with
/// TUTTI_COUNT_MESSAGES, `instructions message CALLS` sends them to itself and receives them. What that takes is
/// counted by instructions.py. Two programs, since what both call the compiler inlines in neither. The first line names
/// it.
// Covers: <tutti/comm/at_once.hpp>
// Covers: <tutti/comm/collectives.hpp>

#include <tutti/comm.hpp>

#if TUTTI_WITH_MPI
#include <tutti/backend/mpi.hpp>
#else
#include <tutti/backend/threads.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
#ifdef __clang__
  std::printf("clang %d\n", __clang_major__);
#else
  std::printf("gcc %d\n", __GNUC__);
#endif
  if (argc < 3) return 2;
  bool const in_place = std::string_view(argv[1]) == "in_place";
  int const calls = std::atoi(argv[2]);
  auto const run = [&](auto& comm) {
    double x[1] = {1}, y[1] = {in_place ? 1.0 : 0.0};
    for (int i = 0; i < calls; ++i) {
#ifdef TUTTI_COUNT_MESSAGES
      comm.send(x, 0);
      comm.recv(y, 0);
#else
      if (in_place) comm.all_reduce(x, tutti::sum);
      else comm.all_reduce(x, y, tutti::sum);
#endif
    }
    return x[0] == 1 && y[0] == 1 ? 0 : 1;
  };
#if TUTTI_WITH_MPI
  return tutti::launch<tutti::Mpi>(1, argv, run);
#else
  int code = 1;
  tutti::threads::run(1, [&](auto& comm) { code = run(comm); });
  return code;
#endif
}
