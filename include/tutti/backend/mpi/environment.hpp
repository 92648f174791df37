// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// MPI's life: initialised only if nobody has, finalised only by who initialised, and the world checked against the
/// launcher.

#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/process.hpp>
#include <tutti/comm/occupancy.hpp>

#include <mpi.h>

#include <atomic>
#include <source_location>
#include <string>

namespace tutti::mpi {

/// Keep one alive while communicators of MPI are in use; main's first object is the place (`launch<Mpi>` keeps MPI
/// until the process exits, so that it can be called again). The first one initialises MPI unless the application has,
/// and the last one to go finalises what the first one initialised; threads may construct and destroy them at the same
/// time. Where the application has initialised MPI its error handlers stay, and a fatal one on MPI_COMM_WORLD can end
/// the job before an Error is thrown.
/// Ranks    all, like MPI_Init and MPI_Finalize. MPI wants both on one thread: let main's be the first and the last.
/// Errors   communication: MPI was finalised before, or fails to start, or sees one rank where the launcher started
///          several. configuration: see MpiConfig; a tuning that comes too late or that this library does not know.
class Environment {
 public:
  explicit Environment(MpiConfig const& config = {}, std::source_location where = std::source_location::current())
      : Environment(nullptr, nullptr, config, where) {}
  Environment(int* argc, char*** argv, MpiConfig const& config = {},
              std::source_location where = std::source_location::current())
      : config_(detail::Process::get().enter(argc, argv, config, where)) {}
  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;
  ~Environment() { detail::Process::get().leave(); }

  /// With what the environment variables say.
  MpiConfig const& config() const noexcept { return config_; }
  /// What MPI grants: MPI_THREAD_SINGLE ... MPI_THREAD_MULTIPLE. The same for all environments of a process.
  int thread_level() const noexcept { return detail::Process::get().thread_level(); }
  /// Whether an environment initialised MPI, so that the last one will finalise it.
  bool owns() const noexcept { return detail::Process::get().owns(); }
  static std::string library() { return mpi::library(); }
  /// Set after a revoke: MPI_Finalize could then wait for operations that will never complete, so it is skipped, unless
  /// all ranks agree to end (`agree`).
  static std::atomic<bool>& abandoned() noexcept { return detail::Process::get().abandoned; }
  /// From now on the library is not called any more, MPI_Finalize included: it would go on with memory that is not its
  /// own, and writes nothing while nobody calls it. The first cause counts.
  static void close(std::string const& cause) noexcept { detail::Process::get().close(cause); }
  static bool closed() noexcept { return detail::Process::get().closed.load(std::memory_order_acquire); }
  /// MPI stays until the process exits: so `launch` can be called again.
  static void keep() { detail::Process::get().keep(); }
  /// Ends MPI in a process that is about to exit because its job has failed.
  static void end() noexcept { detail::Process::get().end(); }
  /// From now on calls after the application's MPI_Finalize are errors, where no environment is alive.
  static void watch() { detail::Process::get().watch(); }
  /// All ranks have agreed on no code.
  static void disagree() noexcept { detail::Process::get().agreed_code.store(-1); }
  /// Set by the beginning of MPI_Finalize, whoever calls it.
  static std::atomic<bool> const& finalised() noexcept { return detail::Process::get().finalised; }
  /// Who is in MPI, where it grants one thread at a time.
  static comm::Occupancy& threads() noexcept { return detail::Process::get().threads; }
  /// Whether MPI was initialised, by whomever, and not finalised.
  static bool alive() noexcept {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
  }
  /// For destructors: whether MPI may still be called.
  static bool usable() noexcept {
    int finalized = 0;
    if (closed()) return false;
    MPI_Finalized(&finalized);
    return finalized == 0;
  }
  /// Errors   revoked, with the cause, once closed; communication, once MPI was finalised.
  static void check_open(char const* operation, std::source_location where = std::source_location::current()) {
    if (closed()) detail::Process::get().refuse(operation, where);
  }
  /// All ranks are about to end with this code, 0 to 255.
  static void agree(int code) noexcept { detail::Process::get().agreed_code.store(code & 0xff); }

 private:
  MpiConfig config_;
};

}  // namespace tutti::mpi
