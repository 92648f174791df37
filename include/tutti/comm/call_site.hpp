// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where an operation of a communicator was called, and how long this one call may take.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <source_location>

namespace tutti {

/// The last argument of operations that wait, or whose request will: nothing, a place, or `within(seconds)`.
class CallSite {
 public:
  CallSite(std::source_location place) noexcept : place_(place) {}
  CallSite(std::source_location place, double deadline_seconds) noexcept
      : place_(place), deadline_seconds_(deadline_seconds) {}
  operator std::source_location const&() const noexcept { return place_; }
  /// 0 where the communicator's deadline holds.
  double deadline_seconds() const noexcept { return deadline_seconds_ < 0 ? 1e-6 : deadline_seconds_; }
  /// The same place after `seconds` that other waits have used up: one look is left, and errors tell the whole time.
  CallSite expired(double seconds) const noexcept { return {place_, -seconds}; }
  /// What errors say of the deadline. 0 where the communicator's holds.
  double whole_seconds() const noexcept { return deadline_seconds_ < 0 ? -deadline_seconds_ : deadline_seconds_; }

 private:
  std::source_location place_;
  double deadline_seconds_ = 0;  // negative: expired
};

/// A deadline of one call instead of the communicator's: `comm.barrier(within(0.5))`, `request.wait(within(2))`. Given
/// to an asynchronous operation, a plan's start or a group's message, it holds for their wait.
/// Errors     invalid_argument, unless 0 < seconds < 1e9.
template <class = void>
CallSite within(double seconds, std::source_location where = std::source_location::current()) {
  if (!(seconds > 0 && seconds < 1e9))
    throw Error(ErrorKind::invalid_argument, "within", concat(seconds, " s is no deadline. Pass a positive time"),
                where);
  return {where, seconds};
}

namespace comm {

/// Of anything that was moved from and is used. Not inlined: it stands behind every operation's first check.
template <class = void>
[[noreturn, gnu::noinline, gnu::cold]] void throw_moved(char const* what, std::source_location where) {
  throw Error(ErrorKind::invalid_argument, what, concat("this ", what, " was moved from. Use the one that it became"),
              where);
}

}  // namespace comm
}  // namespace tutti
