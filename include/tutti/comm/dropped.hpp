// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a communicator says of operations that end without their requests: those that were dropped, and those that
/// are given up while an exception passes.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cstdio>
#include <exception>
#include <string>

namespace tutti::comm {

/// Operations that were dropped and never completed; told at the end, in one line.
class Dropped {
 public:
  template <class = void>
  void note(std::string const& awaited) noexcept {
    if (number_++ == 0) first_ = awaited;
  }
  template <class = void>
  void tell(int rank) const noexcept {
    if (number_ == 0) return;
    std::fprintf(stderr,
                 "tutti: warning: rank %d dropped %d %s before completion, the first with: %s. Wait for requests\n",
                 rank, number_, number_ == 1 ? "operation" : "operations", first_.c_str());
  }

 private:
  int number_ = 0;
  std::string first_;
};

/// Of an Error; empty of none, or of another type.
template <class = void>
std::string error_text(std::exception_ptr const& failure) noexcept {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (Error const& error) {
    return error.message();
  } catch (...) {
    return {};
  }
}
/// Of the Error that passes, with its place, else of the one that is being handled.
template <class = void>
std::string passing_error() noexcept {
  if (std::uncaught_exceptions() == 0) return error_text(std::current_exception());
  return tutti::detail::latest_error.error == nullptr ? "" : tutti::detail::latest_error.text;
}

/// What others are told of a rank on which something stays unfinished while an exception passes. Of one that is no
/// Error nobody can say more before it is caught.
template <class = void>
std::string failure_of(int rank, std::string const& when) {
  std::string const why = passing_error();
  return why.empty() ? concat("rank ", rank, " failed ", when, ", by an exception of its program")
                     : concat("rank ", rank, " failed: ", why);
}

}  // namespace tutti::comm
