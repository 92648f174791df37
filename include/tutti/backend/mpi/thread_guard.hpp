// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which threads may call MPI, and when.

#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/occupancy.hpp>
#include <tutti/core/concat.hpp>

#include <mpi.h>
#include <pthread.h>

#include <atomic>
#include <source_location>
#include <string>

namespace tutti::mpi {

/// Of a communicator. MPI says once which thread level it grants.
class ThreadGuard {
 public:
  void ask() { check(MPI_Query_thread(&level_), "MPI_Query_thread"); }

  /// A call of this thread, where MPI grants threads less than all: before anything is called.
  /// Errors     invalid_argument: a thread that may not call MPI, or not now. communication: MPI was finalised.
  comm::Visit visit(char const* operation, std::source_location where, int rank) const {
    if (level_ == MPI_THREAD_MULTIPLE && !finalised_->load(std::memory_order_relaxed)) [[likely]] return {};
    return visit_narrowly(operation, where, rank);
  }
  comm::Visit visit() const noexcept {
    return level_ == MPI_THREAD_SERIALIZED ? comm::Visit(Environment::threads()) : comm::Visit();
  }
  /// What a thread drops that may not call is handed over to the one that may.
  bool may_call() const noexcept {
    return level_ >= MPI_THREAD_SERIALIZED || ::pthread_equal(maker_, ::pthread_self()) != 0;
  }
  char const* level_name() const noexcept {
    return level_ == MPI_THREAD_MULTIPLE     ? "multiple"
           : level_ == MPI_THREAD_SERIALIZED ? "serialized"
           : level_ == MPI_THREAD_FUNNELED   ? "funneled"
                                                    : "single";
  }

 private:
  [[gnu::noinline]] comm::Visit visit_narrowly(char const* operation, std::source_location where, int rank) const {
    if (finalised_->load()) Environment::check_open(operation, where);
    if (level_ == MPI_THREAD_SERIALIZED)
      return comm::Visit(Environment::threads(), operation, where, [&](std::string const& other) {
        throw Error(ErrorKind::invalid_argument, operation,
                    concat("another thread is in ", other,
                           ", and MPI grants thread level serialized: one thread at a time, whatever the communicator. "
                           "Let the threads take turns, or ask for multiple (MpiConfig::thread_level), where threads "
                           "that have a communicator each, by duplicate(), may call at once"),
                    where)
            .with_rank(rank);
      });
    int permitted = 1;
    if (level_ < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&permitted);
    if (permitted == 0)
      throw Error(ErrorKind::invalid_argument, operation,
                  concat("MPI grants thread level ", level_name(),
                         ": only the thread that initialised it may call, and this is another one. Call from there, or "
                         "ask for serialized or multiple (MpiConfig::thread_level); with multiple threads may call at "
                         "once that have a communicator each, by duplicate()"),
                  where)
          .with_rank(rank);
    return {};
  }

  int level_ = MPI_THREAD_MULTIPLE;
  pthread_t maker_ = ::pthread_self();  // with one thread that may call, that one: `visit` lets no other make it
  std::atomic<bool> const* finalised_ = &Environment::finalised();
};

}  // namespace tutti::mpi
