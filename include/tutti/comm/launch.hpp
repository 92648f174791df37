// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `launch<Backend>`: the same main function for every backend.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/flight_dump.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cstdio>
#include <cstring>
#include <exception>
#include <source_location>
#include <type_traits>
#include <utility>

namespace tutti {
namespace comm {

/// f(communicator) with its result as an exit code; 0 when it returns nothing.
template <class F, class Comm>
int invoke_main(F& f, Comm& communicator) {
  if constexpr (std::is_convertible_v<decltype(f(communicator)), int>) return static_cast<int>(f(communicator));
  else {
    f(communicator);
    return 0;
  }
}

/// "rank 2: tutti::all_reduce: ..." on the error stream, as one write. An Error that knows its rank begins with
/// "tutti::all_reduce [rank 2]: "; there the rank is left out, as it stands in front.
inline void report(int rank, char const* what) noexcept {
  char own[24];
  int const length = std::snprintf(own, sizeof(own), " [rank %d]", rank);
  char const* const head = std::strstr(what, ": ");
  if (rank < 0) std::fprintf(stderr, "%s\n", what);
  else if (head != nullptr && head - what >= length && std::memcmp(head - length, own, std::size_t(length)) == 0)
    std::fprintf(stderr, "rank %d: %.*s%s\n", rank, int(head - what) - length, what, head);
  else std::fprintf(stderr, "rank %d: %s\n", rank, what);
  std::fflush(stderr);
}

/// Errors     invalid_argument, unless argv has argc words.
template <class = void>
void check_arguments(char const* operation, int argc, char** argv, std::source_location where) {
  if (argc < 0 || (argc > 0 && argv == nullptr))
    throw Error(ErrorKind::invalid_argument, operation,
                concat("argc is ", argc, argv == nullptr ? " and argv null" : "",
                       ". Pass those of main, or 0 and nullptr for no words"),
                where);
  for (int i = 0; i < argc; ++i)
    if (argv[i] == nullptr)
      throw Error(
          ErrorKind::invalid_argument, operation,
          concat("argc is ", argc, " and argv[", i, "] null. Pass those of main, or 0 and nullptr for no words"),
          where);
}

}  // namespace comm

/// Calls f(communicator) on every rank and returns the exit code for main: the largest that a rank returned, 1 after an
/// exception, whose message goes to the error stream. `Threads` reads --ranks N (or TUTTI_RANKS, else one rank for each
/// processor), `Mpi` takes the ranks that mpiexec started.
/// Ranks      f runs once on each.
/// Errors     none are thrown; 2 where argv has no argc words, with a sentence. Under MPI an exception on one
///            rank ends the job.
template <class B, class F>
int launch(int argc, char** argv, F&& f, std::source_location where = std::source_location::current()) {
  constexpr bool is_backend = Backend<B>;
  static_assert(is_backend, "tutti: launch<Backend> needs a model of tutti::Backend, such as tutti::Threads");
  if constexpr (is_backend) {
    // The first use of f is a plain call, neither std::is_invocable nor a requires-expression: compilers would tell of
    // those for every mistake inside a generic lambda.
    using Result [[maybe_unused]] = decltype(f(std::declval<Communicator<B>&>()));  // f takes a Communicator<Backend>&
    if constexpr (requires(F& body, Communicator<B>& communicator) { body(communicator); }) {
      try {
        comm::check_arguments("launch", argc, argv, where);
      } catch (Error const& error) {
        comm::report(-1, error.what());
        return 2;
      }
      if (!comm::flight_record_prefix().empty()) comm::dump_on_signal();
      return comm::launch_at<B>(argc, argv, f, where);
    }
  }
  return 1;
}

}  // namespace tutti
