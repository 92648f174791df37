// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives of tutti beside raw MPI, a naive version over std::barrier and plain copies, in one run and in turn,
/// with the flags and the table of nccl-tests.
///
///   tutti-perf --backend threads --ranks 2 -C all_reduce -b 8 -e 64M -f 2
///   mpiexec -n 2 tutti-perf --backend mpi ...       (--backend threads there: against that MPI too)

#include "binding.hpp"
#include "messages.hpp"
#include "remote.hpp"
#include "run.hpp"
#include "suites.hpp"

#include <tutti/exec/processors.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace {

using namespace tutti::bench;

/// On one process, with the crews that there are.
int report(Options const& o, int processors, Processes const& processes) {
  Stage stage;
  Head head;
  head.processors = processors;
  stage.processes = processes.crew;
  stage.ranks = head.ranks = processes.crew != nullptr ? processes.ranks : o.ranks != 0 ? o.ranks : 2;
  if (o.root < 0 || o.root >= stage.ranks)
    throw std::runtime_error("--root " + std::to_string(o.root) + ": there are ranks 0 to " +
                             std::to_string(stage.ranks - 1));
  head.library = processes.library;
  stage.library = short_name(processes.library);
  head.arena = processes.crew != nullptr ? processes.arena_bytes : arena_bytes(o, stage.ranks, largest(o));
  bool const both = o.suite != "sweep";
  head.backend = both ? "mpi, then threads" : o.backend;
  head.shared_heap = o.backend == "threads" || processes.shared_heap;
  stage.shares_memory = processes.crew == nullptr || processes.shared_heap;
  std::unique_ptr<RemoteCrew> other;
  if (!o.other_commands.empty()) {
    other = std::make_unique<RemoteCrew>(o.other_commands, o.other_answers, head.arena);
    if (other->ranks() != stage.ranks)
      throw std::runtime_error("the other MPI's job sees " + std::to_string(other->ranks()) + " ranks, this one " +
                               std::to_string(stage.ranks) +
                               ": its mpiexec belongs to another library than its program");
    stage.other = other.get();
    head.other = other->library();
    stage.other_library = short_name(head.other);
  }
  std::unique_ptr<Crew> threads;
  if (o.backend == "threads" || o.suite == "messages" || (o.suite == "goals" && stage.ranks <= 2)) {
    threads = make_threads_crew(stage.ranks, head.arena, o.private_memory);
    stage.threads = threads.get();
  }
  print_head(o, head);
  if (stage.processes == nullptr)
    fmt::print("# SKIPPED: raw MPI, because this is no job of MPI: start it with mpiexec -n {}\n", stage.ranks);
  Json json(o.json);
  bool const right = o.suite == "goals"      ? goals(o, stage, json)
                     : o.suite == "messages" ? messages(o, stage, json)
                                             : sweep(o, stage, json);
  if (!right) std::fprintf(stderr, "tutti-perf: wrong answers, see #wrong; they were not timed\n");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Both before a rank is bound.
  static_cast<void>(processors_at_start());
  int const processors = tutti::exec::available_processors();
  CLI::App app("Collectives of tutti beside their rivals.", "tutti-perf");
  Options options;
  Words words;
  declare(app, options, words);
  try {
    app.parse(argc, argv);
    read(options, words);
  } catch (CLI::ParseError const& error) {
    return app.exit(error);
  }
  try {
#if TUTTI_PERF_MPI
    if (options.backend == "mpi" || launched_by_mpi())
      return run_processes(argc, argv, options, largest(options),
                           [&](Processes const& processes) { return report(options, processors, processes); });
#else
    if (options.backend == "mpi")
      throw std::runtime_error(
          "--backend mpi: tutti-perf was built without MPI. Install one (Debian: libmpich-dev) and "
          "configure again");
#endif
    return report(options, processors, {});
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tutti-perf: %s\n", error.what());
    return 1;
  }
}
