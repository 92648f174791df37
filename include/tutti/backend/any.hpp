// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `with_backend`: main for a program that takes its backend by name. Includes the backends that the program is built
/// with: Threads always, Mpi where TUTTI_WITH_MPI is 1, Nccl where TUTTI_WITH_NCCL is.

#include <tutti/backend/threads.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/config.hpp>
#if TUTTI_WITH_MPI
#include <tutti/backend/mpi.hpp>
#endif
#if TUTTI_WITH_NCCL
#include <tutti/backend/nccl.hpp>
#endif

#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {

template <class... Backends>
struct BackendSet {
  /// Of these backends and of the library's others.
  static List<comm::BackendInfo> infos() {
    List<comm::BackendInfo> list{Backends::info()...};
    for (auto const& [name, text] : absent)
      if (((Backends::name != name) && ...))
        list.push_back({.name = std::string(name), .available = false, .text = std::string(text)});
    return list;
  }
  template <class F>
  static int launch(std::string_view name, int argc, char** argv, F& f,
                    std::source_location where = std::source_location::current()) {
    return comm::launch_named<Backends...>(name, argc, argv, f, where);
  }

 private:
  struct Absent {
    std::string_view name;
    std::string_view text;
  };
  static constexpr Absent absent[2] = {
      {"mpi",
       "this program is built without MPI. Install one (Debian: mpich libmpich-dev) and build with tutti-mpi (Meson, "
       "pkg-config) or tutti::mpi (CMake), or with -DTUTTI_WITH_MPI=1 and the MPI's compiler wrapper"},
      {"nccl",
       "this program is built without NCCL. Install CUDA and NCCL (Debian: libnccl-dev of NVIDIA's repository) and "
       "build "
       "with tutti-nccl (Meson), or with -DTUTTI_WITH_NCCL=1, their include folder, -lnccl and -lcudart"},
  };
};

/// The backends of this program. A default argument below, so that programs that are built with different sets do not
/// share one instance of a function.
#if TUTTI_WITH_NCCL && TUTTI_WITH_MPI
using Nccl = NcclOn<Mpi>;  ///< ranks are processes with a GPU each
using Backends = BackendSet<Threads, Mpi, Nccl>;
#elif TUTTI_WITH_NCCL
using Nccl = NcclOn<Threads>;  ///< ranks are threads with a GPU each
using Backends = BackendSet<Threads, Nccl>;
#elif TUTTI_WITH_MPI
using Backends = BackendSet<Threads, Mpi>;
#else
using Backends = BackendSet<Threads>;
#endif

/// Which backends there are, which of them are available, and why not. Starts nothing.
template <class Set = Backends>
List<comm::BackendInfo> backends() {
  return Set::infos();
}

/// A backend's name as programs have it; a null one, as std::getenv gives, is no backend's.
class BackendName {
 public:
  BackendName(char const* text) noexcept : text_(text != nullptr ? text : "(null)") {}
  template <class S>
    requires std::is_convertible_v<S const&, std::string_view>
  BackendName(S const& text) noexcept : text_(text) {}
  operator std::string_view() const noexcept { return text_; }

 private:
  std::string_view text_;
};

/// The name of the backend that `wanted` stands for: itself when it is available, the one of the highest priority for
/// "auto", which is nccl under a launcher whose ranks have a GPU each, mpi under any other, and threads elsewhere.
/// Starts nothing.
/// Errors     see comm::choose_backend.
template <class Set = Backends>
std::string choose_backend(BackendName wanted, std::source_location where = std::source_location::current()) {
  return comm::choose_backend(Set::infos(), wanted, where);
}

/// Calls f(communicator) on every rank of the named backend, "auto", "mpi", "threads" or "nccl", and returns the exit
/// code for main, as tutti::launch does. f is called with another type of communicator for each backend: a lambda takes
/// `auto& communicator`.
/// Errors     none are thrown. A backend that is not there: a sentence on the error stream, and 2. So are
///            argc and argv that do not go together: a null argv is for argc 0.
template <class Set = Backends, class F>
int with_backend(BackendName wanted, int argc, char** argv, F&& f,
                 std::source_location where = std::source_location::current()) {
  std::string name;
  try {
    comm::check_arguments("with_backend", argc, argv, where);
    name = choose_backend<Set>(wanted, where);
  } catch (Error const& error) {
    comm::report(-1, error.what());
    return 2;
  }
  return Set::launch(name, argc, argv, f, where);
}

/// The same for a program whose words are not its own to pass: `ranks` are those of threads, 0 for as many as without
/// --ranks; where a launcher starts the ranks they must be as many, or 0. Without one, ranks that are processes are
/// one: more are refused.
struct BackendOptions {
  int ranks = 0;
};
template <class Set = Backends, class F>
int with_backend(BackendName wanted, BackendOptions const& options, F&& f,
                 std::source_location where = std::source_location::current()) {
  comm::Announced const announced = comm::announced_ranks();
  try {
    if (options.ranks < 0)
      throw Error(ErrorKind::configuration, "with_backend",
                  concat("BackendOptions::ranks is ", options.ranks, ". Give a number from 1, or 0 for the default"),
                  where);
    if (options.ranks > 0 && announced.ranks > 0 && announced.ranks != options.ranks)
      throw Error(ErrorKind::configuration, "with_backend",
                  concat("BackendOptions::ranks is ", options.ranks, ", and the launcher started ", announced.ranks,
                         " (", announced.variable, "). Give it this number, or 0"),
                  where);
    if (options.ranks > 1 && !announced.launched()) {
      std::string const name = choose_backend<Set>(wanted, where);
      for (comm::BackendInfo const& info : Set::infos())
        if (info.name == name && info.processes)
          throw Error(ErrorKind::configuration, "with_backend",
                      concat("BackendOptions::ranks is ", options.ranks, ", and ranks of ", name,
                             " are processes, of which no launcher started more than this one. Start the program by "
                             "mpiexec -n ", options.ranks, ", or take threads"),
                      where);
    }
  } catch (Error const& error) {
    comm::report(-1, error.what());
    return 2;
  }
  std::string words[] = {"program", concat("--ranks=", options.ranks)};
  char* arguments[] = {words[0].data(), words[1].data(), nullptr};
  if (options.ranks == 0) arguments[1] = nullptr;
  return with_backend<Set>(wanted, options.ranks > 0 ? 2 : 1, arguments, f, where);
}

}  // namespace tutti
