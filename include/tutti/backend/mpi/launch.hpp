// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `launch<Mpi>`: main for a program that mpiexec starts.

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/core/concat.hpp>

#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <unistd.h>
#include <utility>

namespace tutti {

/// Without a launcher MPI works, with one rank: "auto" prefers threads then.
inline comm::BackendInfo Mpi::info() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0)
    return {.name = std::string(name),
            .available = false,
            .processes = true,
            .text = "MPI was finalised in this process, which can use it once. Keep one mpi::Environment alive"};
  return {.name = std::string(name),
          .priority = comm::announced_ranks().launched() ? 20 : 5,
          .processes = true,
          .text = "ranks are processes that mpiexec starts, on " + mpi::library()};
}

namespace mpi {

/// A program that calls exit inside of launch would end the job as if all had gone well: MPICH's launcher ends the
/// others then and reports success. A rank alone may; so may a child that was forked meanwhile.
class ExitWatch {
 public:
  explicit ExitWatch(Communicator<Mpi>& communicator) {
    static bool const registered = std::atexit(&ExitWatch::exits) == 0;
    static_cast<void>(registered);
    watched() = {&communicator, ::getpid()};
  }
  ExitWatch(ExitWatch const&) = delete;
  ExitWatch& operator=(ExitWatch const&) = delete;
  ~ExitWatch() { watched() = {}; }

 private:
  struct Watched {
    Communicator<Mpi>* communicator = nullptr;
    ::pid_t process = 0;
  };
  static Watched& watched() noexcept {
    static constinit Watched watched;
    return watched;
  }
  static void exits() {
    Watched const job = std::exchange(watched(), {});
    if (job.communicator == nullptr || job.process != ::getpid() || job.communicator->size() == 1) return;
    int const rank = job.communicator->rank();
    constexpr char const* what = "the process exits inside of launch, by exit or MPI_Abort. Return from the function";
    comm::report(rank, what);
    mpi::Environment::disagree();
    if (!job.communicator->backend().fail_job(concat("rank ", rank, " failed: ", what))) mpi::abort_job();
    mpi::Environment::end();
    std::_Exit(1);
  }
};

}  // namespace mpi

/// A rank that fails must not leave the others waiting. Where ranks share memory, they learn the cause from their next
/// call and end by themselves; where they do not, or one of them does not look within a moment, MPI_Abort ends the job.
/// A process may call launch again, one after the other: MPI is initialised by the first call and finalised when the
/// process exits.
template <class F>
int Mpi::launch(int argc, char** argv, F&& f, MpiConfig const& config, std::source_location where) {
  int rank = -1;
  int size = 1;
  try {
    mpi::Environment const environment(&argc, &argv, config, where);
    mpi::Environment::keep();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    Communicator<Mpi>* told = nullptr;
    auto const stop = [&](char const* what) {
      comm::report(rank, what);
      mpi::Environment::disagree();
      if (size == 1 || mpi::Environment::finalised().load()) return 1;
      if (told == nullptr || !told->backend().fail_job("rank " + std::to_string(rank) + " failed: " + what))
        mpi::abort_job();
      return 1;
    };
    try {
      Mpi world(MPI_COMM_WORLD, config, where);
      world.watch_job();
      Communicator<Mpi> communicator(std::move(world), {.deadline_seconds = environment.config().deadline_seconds});
      told = &communicator;
      try {
        int code = 1;
        try {
          mpi::ExitWatch const watch(communicator);
          code = comm::invoke_main(f, communicator);
        } catch (...) {
          communicator.core()->dump_first_failure(true);
          throw;
        }
        communicator.core()->drain();
        return communicator.backend().finish_job(code, communicator.deadline_seconds());
      } catch (Error const& error) {  // of launch itself: the cause has the user's line
        return stop(error.operation() == "launch" ? concat("tutti::launch: ", error.message()).c_str() : error.what());
      } catch (std::exception const& error) {
        return stop(error.what());  // before the communicator waits for operations that will never complete
      } catch (...) {
        return stop("an exception of unknown type");
      }
    } catch (std::exception const& error) {
      told = nullptr;
      return stop(error.what());
    }
  } catch (std::exception const& error) {
    comm::report(rank, error.what());
  }
  return 1;
}

}  // namespace tutti
