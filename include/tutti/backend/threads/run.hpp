// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `threads::run`: a function on n ranks of this process, and `launch<Threads>`.

#include <tutti/core/concat.hpp>
#include <tutti/backend/threads/backend.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/processors.hpp>

#include <cstdlib>
#include <exception>
#include <pthread.h>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti {
namespace threads {

inline constexpr int max_ranks = 1024;

namespace detail {

/// What one run shares, with the failure that came first.
class Run {
 public:
  template <class = void>
  explicit Run(int ranks, CommunicatorOptions options)
      : world_(make_shared_owner<World>(policy(ranks))),
        group_(make_shared_owner<Group>(world_, ranks)),
        options_(options) {}

  template <class F, class Ranks = Threads>  // dependent, for the same reason
  void body(F& f, int rank) noexcept {
    try {
      Communicator<Ranks> communicator(Ranks(group_, rank), options_);
      try {
        f(communicator);
      } catch (...) {
        communicator.core()->dump_first_failure(true);
        note(rank, std::current_exception());  // before the communicator drains what others will never complete
      }
    } catch (...) {
      note(rank, std::current_exception());
    }
  }
  template <class = void>  // instantiated where ranks are run, not by every includer
  void rethrow() {
    if (!failure_) return;
    try {
      std::rethrow_exception(failure_);
    } catch (Error& error) {
      if (error.rank() < 0) error.with_rank(failed_rank_);
      throw;
    } catch (std::exception const& error) {
      std::throw_with_nested(Error(ErrorKind::communication, "threads::run", concat("threw ", error.what()), {})
                                 .with_rank(failed_rank_));
    } catch (...) {
      std::throw_with_nested(
          Error(ErrorKind::communication, "threads::run", "threw something that is no std::exception", {})
              .with_rank(failed_rank_));
    }
  }

 private:
  template <class = void>
  void note(int rank, std::exception_ptr failure) noexcept {
    std::string text = concat("rank ", rank, " failed: ");
    try {
      std::rethrow_exception(failure);
    } catch (std::exception const& error) {
      text += error.what();
    } catch (...) {
      text = concat(text, "an exception of unknown type");
    }
    {
      Guard const guard(mutex_);
      if (!failure_) {
        failure_ = failure;
        failed_rank_ = rank;
      }
    }
    world_->alarm().raise(ErrorKind::communication, text);
  }
  template <class = void>
  static exec::WaitPolicy policy(int ranks) {
    exec::WaitPolicy policy;
    // Spinning for long would keep the processor from the very rank that is awaited, where something else runs too.
    policy.spins = 200;
    policy.yields = 50'000;
    // Nor would yielding: ranks that yield in turn take most of the processors' time (docs/guides/mpi.md).
    if (ranks > exec::available_processors()) {
      policy.spins = 0;
      policy.yields = 100;
    }
    return policy;
  }

  Shared<World> world_;
  Shared<Group> group_;
  CommunicatorOptions options_;
  Mutex mutex_;
  std::exception_ptr failure_;
  int failed_rank_ = -1;
};

}  // namespace detail

/// Calls f(communicator) on `ranks` threads, rank 0 on the caller's, and returns when all have returned.
/// Errors     what a rank threw first, when it is an Error with the rank set; another exception comes nested in an
///            Error that names the rank. invalid_argument for a number of ranks outside 1 to 1024; unavailable when the
///            system refuses a thread.
template <class F>
void run(int ranks, F&& f, CommunicatorOptions options = {}) {
  using Function = std::remove_reference_t<F>;
  if (ranks < 1 || ranks > max_ranks)
    throw Error(ErrorKind::invalid_argument, "threads::run",
                concat(ranks, " ranks: between 1 and 1024 are possible"));
  detail::Run shared(ranks, options);
  struct Start {
    detail::Run* run;
    Function* f;
    int rank;
    pthread_t handle;
    std::atomic<int>* go;
  };
  std::atomic<int> go{0};  // no rank begins before all threads exist: 1 run, -1 return
  List<Start> starts(static_cast<std::size_t>(ranks));
  std::size_t started = 1;
  int code = 0;
  for (; started < starts.size() && code == 0; ++started) {
    starts[started] = {&shared, &f, static_cast<int>(started), {}, &go};
    code = ::pthread_create(
        &starts[started].handle, nullptr,
        [](void* argument) -> void* {
          auto const& start = *static_cast<Start*>(argument);
          exec::Backoff backoff{exec::WaitPolicy{}};
          while (start.go->load(std::memory_order_acquire) == 0) backoff.step();
          if (start.go->load(std::memory_order_relaxed) > 0) start.run->body(*start.f, start.rank);
          return nullptr;
        },
        &starts[started]);
    if (code != 0) break;
  }
  go.store(code == 0 ? 1 : -1, std::memory_order_release);
  if (code == 0) shared.body(f, 0);
  for (std::size_t r = 1; r < started; ++r) ::pthread_join(starts[r].handle, nullptr);
  if (code != 0)
    throw Error(ErrorKind::unavailable, "threads::run",
                concat("the system refused thread ", started, ". Use fewer ranks"))
        .with_native(concat("pthread_create: ", code));
  shared.rethrow();
}

/// Ranks that --ranks N, --ranks=N or TUTTI_RANKS ask for, else one for each processor. Errors: configuration.
template <class = void>
int ranks_from(int argc, char** argv, std::source_location where = std::source_location::current()) {
  auto const parse = [where](std::string_view text, char const* origin) {
    char* end = nullptr;
    std::string const copy(text);
    long const ranks = std::strtol(copy.c_str(), &end, 10);
    if (copy.empty() || *end != 0 || ranks < 1 || ranks > max_ranks)
      throw Error(ErrorKind::configuration, "launch",
                  concat(origin, " is '", copy, "'. Give a number from 1 to 1024"), where);
    return static_cast<int>(ranks);
  };
  for (int i = 1; i < argc; ++i) {
    std::string_view const argument = argv[i];
    if (argument.substr(0, 8) == "--ranks=") return parse(argument.substr(8), "--ranks");
    if (argument == "--ranks") return parse(i + 1 < argc ? argv[i + 1] : "", "--ranks");
  }
  if (char const* const value = std::getenv("TUTTI_RANKS"); value != nullptr && *value != 0)
    return parse(value, "TUTTI_RANKS");
  return exec::available_processors();
}

}  // namespace threads

template <class F>
int Threads::launch(int argc, char** argv, F& f, std::source_location where) {
  try {
    int const ranks = threads::ranks_from(argc, argv, where);
    List<int> codes(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& communicator) {
      codes[static_cast<std::size_t>(communicator.rank())] = comm::invoke_main(f, communicator);
    });
    int result = 0;  // a failure of any rank, the largest where they differ
    for (int code : codes)
      if (code != 0 && (result == 0 || code > result)) result = code;
    return result;
  } catch (Error const& error) {
    comm::report(error.rank(), error.what());
  } catch (std::exception const& error) {
    comm::report(-1, error.what());
  }
  return 1;
}

}  // namespace tutti
