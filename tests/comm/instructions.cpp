// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// `instructions in_place|out_of_place CALLS` reduces eight bytes so often on one rank, where nobody waits; what that
/// takes is counted by instructions.py. The first line names the compiler.
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
  auto const reduce = [&](auto& comm) {
    double x[1] = {1}, y[1] = {0};
    for (int i = 0; i < calls; ++i)
      if (in_place) comm.all_reduce(x, tutti::sum);
      else comm.all_reduce(x, y, tutti::sum);
    return (in_place ? x[0] : y[0]) == 1 ? 0 : 1;
  };
#if TUTTI_WITH_MPI
  return tutti::launch<tutti::Mpi>(1, argv, reduce);
#else
  int code = 1;
  tutti::threads::run(1, [&](auto& comm) { code = reduce(comm); });
  return code;
#endif
}
