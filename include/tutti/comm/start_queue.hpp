// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The order in which a rank's collectives start.

#include <tutti/comm/request.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>

#include <exception>
#include <string>

namespace tutti::comm {

/// Collectives that do not start at once, because they are compared before or go in parts, must still start in the same
/// order on all ranks: they are in here from when they are called until they have started or are given up, and so are
/// those that are called after them.
class StartQueue {
 public:
  template <class = void>
  void add(Job& job) {
    jobs_.push_back(&job);
  }
  template <class = void>
  bool empty() const noexcept {
    return jobs_.empty();
  }
  template <class = void>
  bool is_first(Job const& job) const noexcept {
    return jobs_.front() == &job;
  }
  template <class = void>
  void remove(Job const& job) noexcept {
    jobs_.erase_if([&](Job const* other) { return other == &job; });
  }
  /// Those behind a call that has failed, which keeps its place until somebody takes its error, fail with it.
  template <class = void>
  void check() const {
    Job const& first = *jobs_.front();
    if (!first.failed()) return;
    try {
      std::rethrow_exception(first.failure());
    } catch (Error const& error) {
      throw Error(error.kind(), first.operation(),
                  concat("an earlier ", first.operation(), " failed: ", error.message()));
    }
  }
  /// What holds up those behind it.
  template <class = void>
  std::string awaiting() const {
    return concat("an earlier ", jobs_.front()->operation(), " must start first: ", jobs_.front()->awaiting());
  }

 private:
  List<Job*> jobs_;
};

}  // namespace tutti::comm
