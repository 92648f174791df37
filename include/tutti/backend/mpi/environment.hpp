// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// MPI's life: initialised only if nobody has, finalised only by who initialised, and the world checked against the
/// launcher.

#include <tutti/backend/mpi/error.hpp>

#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace tutti::mpi {

/// Ranks that the launcher announced in the environment, with the variable's name; 0 when none did.
struct Announced {
  int ranks = 0;
  char const* variable = "";
};
inline Announced announced_ranks() noexcept {
  for (char const* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (char const* const value = std::getenv(variable); value != nullptr)
      if (int const ranks = std::atoi(value); ranks > 0) return {ranks, variable};
  return {};
}

/// Keep one alive while communicators of MPI are in use; main's first object is the place. Cheap when MPI runs already:
/// then the application's error handlers stay, and a fatal one on MPI_COMM_WORLD can end the job before an Error is
/// thrown.
/// Errors   communication: MPI was finalised before, or fails to start, or sees one rank where the launcher started
///          several.
class Environment {
 public:
  Environment() : Environment(nullptr, nullptr) {}
  Environment(int* argc, char*** argv) {
    int flag = 0;
    MPI_Finalized(&flag);
    if (flag != 0)
      throw Error(ErrorKind::communication, "mpi::Environment",
                  "MPI was finalised before. A process can use MPI once: keep one environment alive");
    MPI_Initialized(&flag);
    if (flag != 0) {
      check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    } else {
      check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &thread_level_), "MPI_Init_thread");
      owns_ = true;
      // MPICH reports what it finds on completion to the world's handler, not to the operation's communicator.
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    int size = 1;
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    Announced const announced = announced_ranks();
    if (size == 1 && announced.ranks > 1) {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      if (owns_) MPI_Finalize();
      throw Error(ErrorKind::communication, "mpi::Environment",
                  "the launcher started " + std::to_string(announced.ranks) + " ranks (" + announced.variable +
                      "), but MPI sees one: the program was linked with another MPI than the launcher's. Start it with "
                      "the mpiexec of " +
                      library());
    }
  }
  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;
  ~Environment() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owns_ && finalized == 0 && !abandoned().load()) MPI_Finalize();
  }

  /// What MPI grants: MPI_THREAD_SINGLE ... MPI_THREAD_MULTIPLE.
  int thread_level() const noexcept { return thread_level_; }
  /// Whether this object initialised MPI and will finalise it.
  bool owns() const noexcept { return owns_; }
  /// First line of the library's own version text.
  static std::string library() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string line(text);
    if (auto const end = line.find('\n'); end != std::string::npos) line.resize(end);
    for (char& letter : line)
      if (letter == '\t') letter = ' ';
    return line;
  }
  /// Set after a revoke: MPI_Finalize could then wait for operations that will never complete, so it is skipped.
  static std::atomic<bool>& abandoned() noexcept {
    static std::atomic<bool> flag{false};
    return flag;
  }

 private:
  int thread_level_ = MPI_THREAD_SINGLE;
  bool owns_ = false;
};

}  // namespace tutti::mpi
