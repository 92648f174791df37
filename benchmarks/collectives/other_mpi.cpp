// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Raw MPI of another library than tutti-perf's own, as a job of its own that takes tutti-perf's commands. Built with
/// the other library's compiler wrapper and started by collectives.py:
///
///   mpiexec -n RANKS other_mpi COMMANDS ANSWERS      (two named pipes, used by rank 0)

#include "binding.hpp"
#include "processes.hpp"
#include "remote.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

namespace {

using namespace tutti::bench;

/// Rank 0's ends of the pipes.
struct Link {
  Pipe commands, answers;
};

std::int64_t greet(Link& link, int ranks) {
  Greeting greeting;
  greeting.ranks = ranks;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, "\n,")] = 0;
  for (char& letter : text)
    if (letter == '\t') letter = ' ';
  std::snprintf(greeting.library, sizeof(greeting.library), "%.255s", text);
  link.answers.write(&greeting, sizeof(greeting));
  std::int64_t bytes = 0;
  link.commands.read(&bytes, sizeof(bytes), -1);
  return bytes;
}

void answer(Link& link, ProcessesCrew& crew) {
  for (;;) {
    Command command;
    link.commands.read(&command, sizeof(command), -1);
    if (command.action == Action::stop) return crew.stop();
    Result const result = crew.run(command);
    Answer const head{result.exists, static_cast<std::int32_t>(result.seconds.size()), result.wrong, result.plan};
    link.answers.write(&head, sizeof(head));
    link.answers.write(result.seconds.data(), result.seconds.size() * sizeof(double));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: mpiexec -n RANKS other_mpi COMMANDS ANSWERS\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  try {
    ProcessTeam team;
    bind_rank(team.rank(), team.size());
    std::unique_ptr<Link> link;
    std::int64_t bytes = 0;
    if (team.rank() == 0) {
      link.reset(new Link{Pipe(argv[1]), Pipe(argv[2])});
      bytes = greet(*link, team.size());
    }
    must(MPI_Bcast(&bytes, 1, MPI_INT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
    std::unique_ptr<std::byte[]> const memory(new std::byte[static_cast<std::size_t>(Arena::allocation(bytes))]);
    Find const find = [&](Contender contender, Case const& c) -> Call {
      bool const known = contender == Contender::raw || contender == Contender::raw_sum;
      return known ? raw_call(contender, c, team.rank()) : Call{};
    };
    ProcessesCrew crew(team, Arena(memory.get(), bytes), find);
    if (team.rank() == 0) answer(*link, crew);
    else crew.serve();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "other MPI: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
