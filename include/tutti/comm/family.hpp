// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The communicators of one rank that come from one another by split and duplicate. While one of them waits, what is in
/// flight on the others moves on too: a rank that waits for a barrier of its row may owe its column its share of a
/// reduction.

#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>

#include <pthread.h>

#include <string>

namespace tutti::comm {

/// A communicator as its relatives see it.
class Relative {
 public:
  virtual ~Relative() = default;
  /// Moves on what this thread has in flight. Operations of another thread are that thread's business.
  virtual void move_on(pthread_t thread) noexcept = 0;
  /// This thread waits on another communicator, as `text` tells; empty when it goes on.
  virtual void announce_elsewhere(pthread_t thread, std::string const& text) noexcept = 0;
  /// What this thread has announced is left to this one: to be taken back when it is used next.
  virtual void inherit_place(pthread_t thread) noexcept = 0;
};

class Family {
 public:
  template <class = void>
  void join(Relative& one) {
    Guard const guard(mutex_);
    members_.push_back(&one);
  }
  template <class = void>
  void leave(Relative& one) noexcept {
    Guard const guard(mutex_);
    members_.erase_if([&](Relative const* member) { return member == &one; });
  }
  /// Called now and then by whoever waits. Operations that finish meanwhile may hold the last handle on their
  /// communicator, hence no member is destroyed here: results stay with their requests.
  template <class = void>
  void move_others_on(Relative const& waiting) noexcept {
    Guard const guard(mutex_);
    for (Relative* member : members_)
      if (member != &waiting) member->move_on(::pthread_self());
  }
  /// So that who waits for this rank on another communicator learns where it is.
  template <class = void>
  void announce(Relative const& waiting, std::string const& text) noexcept {
    Guard const guard(mutex_);
    for (Relative* member : members_)
      if (member != &waiting) member->announce_elsewhere(::pthread_self(), text);
  }
  /// For one that goes away after a wait that failed.
  template <class = void>
  void leave_place(Relative const& waiting) noexcept {
    Guard const guard(mutex_);
    for (Relative* member : members_)
      if (member != &waiting) member->inherit_place(::pthread_self());
  }

 private:
  Mutex mutex_;
  List<Relative*> members_;
};

}  // namespace tutti::comm
