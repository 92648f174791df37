// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which thread is inside of something that takes one thread at a time, and in which call.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::comm {

/// Costs a call one exchange on entry and one store when it leaves. A thread that is inside enters again for nothing:
/// operators may call what they like. Entering and leaving order what the threads write, so that whoever hands
/// something over needs no other synchronisation for what is inside.
class Occupancy {
 public:
  enum class Entered : std::uint8_t { first, again, not_at_all };

  template <class = void>
  Entered try_enter(char const* operation, std::source_location where) noexcept {
    Thread const self = this_thread();
    if (thread_.load(std::memory_order_relaxed) == self) return Entered::again;
    Thread nobody = nullptr;
    if (!thread_.compare_exchange_strong(nobody, self, std::memory_order_acquire, std::memory_order_relaxed))
      return Entered::not_at_all;
    __atomic_store(&where_, &where, __ATOMIC_RELAXED);
    operation_.store(operation, std::memory_order_relaxed);
    return Entered::first;
  }
  /// For who has no call to tell of and may not throw: waits until the other thread's call is over, whose deadline ends
  /// it.
  template <class = void>
  bool enter_in_turn() noexcept {
    exec::Backoff backoff{exec::WaitPolicy{}};
    for (;; backoff.step()) {
      Entered const entered = try_enter(nullptr, {});
      if (entered != Entered::not_at_all) return entered == Entered::first;
    }
  }
  template <class = void>
  void leave() noexcept {
    operation_.store(nullptr, std::memory_order_relaxed);
    thread_.store(nullptr, std::memory_order_release);
  }
  /// "all_reduce at app.cpp:12": the call of the thread that is inside; empty of one that leaves or is about to.
  template <class = void>
  std::string call() const {
    char const* const operation = operation_.load(std::memory_order_relaxed);
    if (operation == nullptr) return {};
    std::source_location where;
    __atomic_load(&where_, &where, __ATOMIC_RELAXED);
    return concat(operation, " at ", place(where));
  }

 private:
  using Thread = char const*;
  static Thread this_thread() noexcept {
    static thread_local char const here = 0;  // its address is the thread's own
    return &here;
  }

  std::atomic<Thread> thread_{nullptr};
  std::atomic<char const*> operation_{nullptr};
  // By the compiler's atomic operations: std::atomic of it costs every include 6 million of the compiler's
  // instructions.
  std::source_location where_{};
};

/// A call that is inside. `refuse(text)` throws for a call that meets another thread's, which `text` names.
class Visit {
 public:
  Visit() = default;
  template <class Refuse>
  Visit(Occupancy& occupancy, char const* operation, std::source_location where, Refuse&& refuse) {
    Occupancy::Entered entered = occupancy.try_enter(operation, where);
    if (entered == Occupancy::Entered::not_at_all) [[unlikely]] entered = insist(occupancy, operation, where, refuse);
    if (entered == Occupancy::Entered::first) inside_ = &occupancy;
  }
  /// Waits for its turn.
  explicit Visit(Occupancy& occupancy) noexcept : inside_(occupancy.enter_in_turn() ? &occupancy : nullptr) {}
  Visit(Visit&& other) noexcept : inside_(other.inside_) { other.inside_ = nullptr; }
  Visit& operator=(Visit&&) = delete;
  ~Visit() {
    if (inside_ != nullptr) inside_->leave();
  }

 private:
  /// Who only moves on what is in flight, or drops it, is inside for a moment and without a name: that is no mistake.
  template <class Refuse>
  [[gnu::noinline, gnu::cold]] static Occupancy::Entered insist(Occupancy& occupancy, char const* operation,
                                                                 std::source_location where, Refuse&& refuse) {
    exec::Backoff backoff{exec::WaitPolicy{}};
    for (;; backoff.step()) {
      Occupancy::Entered const entered = occupancy.try_enter(operation, where);
      if (entered != Occupancy::Entered::not_at_all) return entered;
      if (std::string const other = occupancy.call(); !other.empty()) refuse(other);
    }
  }

  Occupancy* inside_ = nullptr;
};

/// Of a call that meets another thread's on `communicator`. `level`: what threads may do, where a backend says it.
template <class = void>
[[noreturn]] void throw_two_threads(char const* operation, std::string const& other, std::string const& communicator,
                                    std::string const& level, int rank, std::source_location where) {
  std::string text = concat("another thread is in ", other, " on this communicator (", communicator,
                            "), which takes one thread at a time");
  if (!level.empty()) text += concat(", whatever MPI grants (thread level ", level, ")");
  throw Error(ErrorKind::invalid_argument, operation,
              concat(text, ". Let the threads take turns, or give each one a communicator of its own: duplicate()"),
              where)
      .with_rank(rank);
}

}  // namespace tutti::comm
