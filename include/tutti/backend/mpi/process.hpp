// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a process has of MPI: which library it is, and one state for all environments, behind one lock.

#include <tutti/backend/mpi/at_finalize.hpp>
#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/eager.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/backend/mpi/tags.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/comm/occupancy.hpp>
#include <tutti/core/mutex.hpp>

#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <source_location>
#include <string>
#include <unistd.h>
#include <utility>

namespace tutti::mpi {

/// The family of the library that the program was compiled for.
inline constexpr Family family =
#if defined(OPEN_MPI)
    Family::open_mpi;
#elif defined(MPICH_VERSION)
    Family::mpich;
#else
    Family::other;
#endif

/// The library's own version text. Needs no environment.
inline std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}
/// Its first line.
inline std::string library() {
  std::string line = version();
  if (auto const end = line.find('\n'); end != std::string::npos) line.resize(end);
  for (char& letter : line)
    if (letter == '\t') letter = ' ';
  return line;
}

/// Whether MPI may be handed device memory. auto asks the library and needs MPI to be initialised; it says no where the
/// library cannot be asked.
inline bool cuda_aware(Switch wanted) {
  if (wanted != Switch::automatic) return wanted == Switch::on;
#if defined(MPIX_GPU_SUPPORT_CUDA)
  int answer = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &answer) == MPI_SUCCESS && answer != 0;
#elif defined(OMPI_HAVE_MPI_EXT_CUDA) && OMPI_HAVE_MPI_EXT_CUDA
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

/// Ends the whole job with code 1. Ranks that give up in the same moment do so a tenth of a second apart: launchers
/// that hear of two aborts at once may leave other ranks alive (MPICH 4.0's Hydra does).
inline void abort_job() noexcept {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int const tenths = rank < 20 ? rank : 20;
  timespec turn{tenths / 10, tenths % 10 * 100'000'000L};
  while (::nanosleep(&turn, &turn) != 0 && errno == EINTR) {
  }
  MPI_Abort(MPI_COMM_WORLD, 1);
}

namespace detail {

/// MPI as the environments of this process share it.
class Process {
 public:
  static Process& get() {
    static Process process;
    return process;
  }

  /// Returns the configuration with what the environment variables say. They are read under the lock as well: another
  /// thread's initialisation sets some, and reading them meanwhile is a race.
  MpiConfig enter(int* argc, char*** argv, MpiConfig const& given, std::source_location where) {
    try {
      return enter(argc, argv, given);
    } catch (Error const& error) {
      throw error.at(where);
    }
  }
  void leave() noexcept {
    Guard const guard(mutex_);
    if (--environments_ == 0) finalise(false);
  }
  /// MPI stays until the process exits. A handler that is registered after MPI's own runs before them.
  void keep() {
    Guard const guard(mutex_);
    agreed_code.store(-1);
    if (kept_by_ != 0 || std::atexit(&Process::exits) != 0) return;
    kept_by_ = ::getpid();
    ++environments_;
  }
  void end() noexcept {
    Guard const guard(mutex_);
    finalise(true);
  }
  int thread_level() noexcept {
    Guard const guard(mutex_);
    return thread_level_;
  }
  /// From now on what finalises MPI is seen, whoever does it.
  void watch() {
    Guard const guard(mutex_);
    watch_finalise();
  }
  bool owns() noexcept {
    Guard const guard(mutex_);
    return owns_;
  }
  void close(std::string const& cause) noexcept {
    Guard const guard(mutex_);
    if (closed.load()) return;
    closing_cause_ = cause;
    abandoned.store(true);
    closed.store(true, std::memory_order_release);
  }
  [[noreturn]] void refuse(char const* operation, std::source_location where) {
    if (finalised.load())
      throw Error(ErrorKind::communication, operation,
                  "MPI was finalised before this call. Call MPI_Finalize when all communicators have made their last "
                  "call",
                  where);
    Guard const guard(mutex_);
    throw Error(ErrorKind::revoked, operation,
                closing_cause_ +
                    " and left a buffer of the caller to MPI, which is therefore not called any more in this process. "
                    "To go on after errors raise copy_bytes (MpiConfig), or move tensors in",
                where);
  }
  std::atomic<bool> abandoned{false};
  std::atomic<bool> closed{false};
  std::atomic<bool> finalised{false};
  comm::Occupancy threads;  // where MPI grants one thread at a time
  std::atomic<int> agreed_code{-1};

 private:
  MpiConfig enter(int* argc, char*** argv, MpiConfig const& given) {
    Guard const guard(mutex_);
    MpiConfig config = given.resolved();
    int flag = 0;
    MPI_Finalized(&flag);
    if (flag != 0)
      throw Error(ErrorKind::communication, "mpi::Environment",
                  "MPI was finalised before. A process can use MPI once: keep one environment alive");
    MPI_Initialized(&flag);
    if (flag != 0) adopt(config);
    else initialise(argc, argv, config);
    if (environments_ == 0) begin(config);
    ++environments_;
    return config;
  }
  /// After an error that the program caught, messages may be under way that nobody will take, and MPI_Finalize wait for
  /// them. To leave without it is no way out: launchers kill the other ranks then. So it gets two seconds.
  void limit_finalise() noexcept {
    pthread_t thread;
    auto const leave = [](void* process) -> void* {
      timespec patience{2, 0};
      ::nanosleep(&patience, nullptr);
      std::fflush(nullptr);
      int const code = static_cast<Process*>(process)->agreed_code.load();
      if (code >= 0) std::_Exit(code);
      abort_job();
      patience.tv_sec = 1;
      ::nanosleep(&patience, nullptr);
      std::_Exit(1);
    };
    if (::pthread_create(&thread, nullptr, leave, this) == 0) ::pthread_detach(thread);
  }

  /// Where MPI runs already.
  void adopt(MpiConfig const& config) {
    if (config.tuning.source() != Source::preset && !(config.tuning.get() == tuning_))
      throw Error(ErrorKind::configuration, "mpi::Environment",
                  "tuning is " + config.tuning->text() + ", but MPI was initialised " +
                      (owns_ ? "with tuning " + tuning_.text() : "by the application") +
                      ", and the library reads its variables then. Construct an environment with this tuning first");
    check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
  }

  void initialise(int* argc, char*** argv, MpiConfig const& config) {
    constexpr int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    tune(config);
    check(MPI_Init_thread(argc, argv, levels[static_cast<int>(config.thread_level.get())], &thread_level_),
          "MPI_Init_thread");
    owns_ = true;
    tuning_ = config.tuning;
    // MPICH reports what it finds on completion to the world's handler, not to the operation's communicator.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }

  /// Sets the variables that the library reads when it is initialised.
  void tune(MpiConfig const& config) {
    Tuning const& tuning = config.tuning;
    if (family == Family::other && !tuning.keeps_algorithms())
      throw Error(ErrorKind::configuration, "mpi::Environment",
                  "tuning is " + tuning.text() +
                      ", but only the variables of MPICH and Open MPI are known, and this is " + library() +
                      ". Set its own variables in the environment");
    List<Variable> const variables = tuning.variables(family);
    for (Variable const& variable : variables)
      if (!tuning.is_named() && Tuning::reader(variable.name) != family)
        throw Error(ErrorKind::configuration, "mpi::Environment",
                    "tuning sets " + variable.name + ", which " + library() + " does not read");
    if (tuning.suits_network())
      eager_ = eager_variables(version(), reaches_nodes_by_tcp(), comm::announced_ranks().ranks);
    List<char const*> set;  // what the user has set stays
    for (List<Variable> const* const list : {&variables, &std::as_const(eager_)})
      for (Variable const& variable : *list)
        if (std::getenv(variable.name.c_str()) == nullptr) {
          ::setenv(variable.name.c_str(), variable.value.c_str(), 0);
          set.push_back(variable.name.c_str());
        }
    if (config.cuda_aware != Switch::automatic && family == Family::mpich)
      ::setenv("MPIR_CVAR_ENABLE_GPU", config.cuda_aware == Switch::on ? "1" : "0", 0);
    if (config.cuda_aware == Switch::off && family == Family::open_mpi)  // which ends the job at 1 when built without
      ::setenv("OMPI_MCA_opal_cuda_support", "0", 0);
    try {
      if (family == Family::mpich) check_known(variables);
    } catch (...) {
      for (char const* name : set) ::unsetenv(name);
      throw;
    }
  }
  /// MPICH knows all its variables before it is initialised, and ignores others. Its tool interface does not survive
  /// being finalised and initialised again, so it stays until the end.
  void check_known(List<Variable> const& variables) {
    if (variables.empty()) return;
    int provided = 0;
    if (int const code = tools_ ? MPI_SUCCESS : MPI_T_init_thread(MPI_THREAD_SINGLE, &provided); code != MPI_SUCCESS)
      throw Error(ErrorKind::configuration, "mpi::Environment",
                  "tuning has a value that " + library() + " refuses: " + error_text(code));
    tools_ = true;
    for (Variable const& variable : variables)
      if (int index = -1; MPI_T_cvar_get_index(variable.name.c_str(), &index) != MPI_SUCCESS)
        throw Error(ErrorKind::configuration, "mpi::Environment",
                    "tuning sets " + variable.name + ", which " + library() + " does not know");
  }

  /// What the first environment does once MPI runs.
  void begin(MpiConfig const& config) {
    int size = 1;
    int rank = 0;
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    comm::Announced const announced = comm::announced_ranks();
    if (size == 1 && announced.ranks > 1) {
      finalise(false);
      throw Error(ErrorKind::communication, "mpi::Environment",
                  "the launcher started " + std::to_string(announced.ranks) + " ranks (" + announced.variable +
                      "), but MPI sees one: the program was linked with another MPI than the launcher's. Start it with "
                      "the mpiexec of " +
                      library());
    }
    watch_finalise();
    if (config.profiling != Profiling::library) MPI_Pcontrol(static_cast<int>(config.profiling.get()) - 1);
    if (config.print_config && rank == 0) {
      constexpr int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
      std::string text = "tutti on " + library() + ", " + std::to_string(size) + (size == 1 ? " rank\n" : " ranks\n") +
                         to_string(config);
      for (int i = 0; i < 4; ++i)
        if (levels[i] == thread_level_)
          text += "thread level granted: " + text_of(static_cast<ThreadLevel>(i)) + "\n";
      if (config.check_level == CheckLevel::cheap && !tags_hold_types())
        text += "element types of messages are compared with check_level full only: this library's tags end before " +
                std::to_string(greatest_tag) + "\n";
      for (Variable const& variable : eager_)
        text += variable.name + " = " + std::getenv(variable.name.c_str()) + ", for messages over TCP\n";
      std::fputs(text.c_str(), stderr);
      std::fflush(stderr);
    }
  }

  /// Once all ranks have left the barrier none answers before it closes its own connections, so that all requests to
  /// close are out before the first answer. The pause is for the last to leave: of 20 jobs of four ranks on two cores 7
  /// hung after 2 ms, none after 20. On one node too, where UCX may be told to use TCP, or find nothing else. A rank
  /// that has sent nothing to another does not wait for it when it closes, and would be gone before that one asks:
  /// first each sends to each. Where messages are asked for they have, in practice.
  static void close_together() noexcept {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) return;
    if (size <= most_eager_ranks) {
      int counts[most_eager_ranks], places[most_eager_ranks], first[most_eager_ranks] = {};
      char const mine = 0;
      char theirs[most_eager_ranks];
      for (int i = 0; i < size; ++i) counts[i] = 1, places[i] = i;
      MPI_Alltoallv(&mine, counts, first, MPI_CHAR, theirs, counts, places, MPI_CHAR, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    timespec const pause{0, 50'000'000};
    ::nanosleep(&pause, nullptr);
  }

  /// From MPI_Finalize on, also the application's, a look at a flag keeps every call out of the library.
  void watch_finalise() {
    if (watches_) return;
    at_finalize(&Process::finalises, this);
    watches_ = true;
  }
  static int finalises(MPI_Comm, int, void* process, void*) {
    static_cast<Process*>(process)->finalised.store(true);
    static_cast<Process*>(process)->closed.store(true, std::memory_order_release);
    return MPI_SUCCESS;
  }
  static void exits() {
    Process& process = get();
    if (process.kept_by_ != ::getpid()) return;  // a child that was forked
    Guard const guard(process.mutex_);
    if (--process.environments_ == 0) process.finalise(true);
  }

  /// After a failure MPI_Finalize may wait for good, and without it the process lives on, unless it `exits`. There a
  /// rank that leaves without a word has the launcher kill the others, and the job's code is at times that of the
  /// signal: so all ranks finalise, within the limit, or end the job with the failure's code.
  void finalise(bool exits) noexcept {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (exits && owns_ && finalized == 0 && closed.load()) {
      int size = 1;
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      if (size > 1) abort_job();
    }
    if (owns_ && finalized == 0 && !closed.load() && (!abandoned.load() || exits || agreed_code.load() >= 0)) {
      if (abandoned.load()) limit_finalise();
      if (strands_late_ranks(version())) close_together();
      MPI_Finalize();
      if (tools_) MPI_T_finalize();
      tools_ = false;
    }
    owns_ = false;
  }

  Mutex mutex_;
  int environments_ = 0;
  int thread_level_ = MPI_THREAD_SINGLE;
  bool owns_ = false;
  bool tools_ = false;
  bool watches_ = false;
  ::pid_t kept_by_ = 0;
  Tuning tuning_;
  List<Variable> eager_;
  std::string closing_cause_;
};

}  // namespace detail

}  // namespace tutti::mpi
