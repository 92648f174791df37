// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A fork-join team of persistent threads. The caller is thread 0.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/thread.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>

namespace tutti::exec {

/// `run` hands one function to all threads and returns when all are done. One `run` at a time, from one thread.
class Team {
 public:
  /// `threads` at least 1. Errors: invalid_argument; unavailable, when the system refuses a thread.
  template <class = void>
  explicit Team(int threads, WaitPolicy policy = {}) : policy_(policy) {
    if (threads < 1 || threads > 4096)
      throw Error(ErrorKind::invalid_argument, "Team",
                  concat(threads, " threads: between 1 and 4096 are possible"));
    size_ = threads;
    failures_.resize(static_cast<std::size_t>(threads));
    workers_.resize(static_cast<std::size_t>(threads));  // all memory first: nothing throws once threads run
    for (int index = 1; index < threads; ++index) {
      Worker& worker = workers_[static_cast<std::size_t>(index)];
      worker.team = this;
      worker.index = index;
      int const code = worker.thread.start(&Team::main, &worker);
      if (code != 0) {
        workers_.resize(static_cast<std::size_t>(index));
        stop();
        throw Error(ErrorKind::unavailable, "Team",
                    concat("the system refused thread ", index, ". Use fewer threads"))
            .with_native(concat("pthread_create: ", std::strerror(code)));
      }
    }
  }
  Team(Team const&) = delete;
  Team& operator=(Team const&) = delete;
  ~Team() { stop(); }

  int size() const noexcept { return size_; }

  /// Calls f(thread) on every thread of the team, thread from 0. The exception of the lowest thread is rethrown after
  /// all have returned; a thread that has thrown is no longer awaited at barriers. A nested call throws
  /// Error(internal).
  template <class F>
  void run(F&& f) {
    using Function = std::remove_reference_t<F>;
    run_erased([](void* function, int thread) { (*static_cast<Function*>(function))(thread); },
               const_cast<void*>(static_cast<void const*>(&f)));
  }

  /// Inside `run`: returns when every thread has called it as often.
  void barrier() noexcept {
    if (size_ == 1) return;
    std::uint32_t const generation = barrier_generation_.load(std::memory_order_relaxed);
    std::uint64_t const state = barrier_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (arrived(state) == expected(state)) {
      open_barrier(state);
    } else {
      Backoff backoff(policy_);
      while (barrier_generation_.load(std::memory_order_acquire) == generation) backoff.step();
    }
  }

 private:
  using Call = void (*)(void*, int);
  struct Worker {
    Team* team = nullptr;
    int index = 0;
    Thread thread;
  };

  // The barrier is one word, so that arrivals and departures have one order: threads expected above, arrived below.
  static constexpr std::uint64_t one_expected = std::uint64_t{1} << 32;
  static constexpr std::uint32_t expected(std::uint64_t state) noexcept {
    return static_cast<std::uint32_t>(state >> 32);
  }
  static constexpr std::uint32_t arrived(std::uint64_t state) noexcept { return static_cast<std::uint32_t>(state); }
  /// Called by the only thread that is not waiting.
  void open_barrier(std::uint64_t state) noexcept {
    barrier_.fetch_sub(arrived(state), std::memory_order_relaxed);
    barrier_generation_.fetch_add(1, std::memory_order_release);
  }
  void leave_barrier() noexcept {
    std::uint64_t const state = barrier_.fetch_sub(one_expected, std::memory_order_acq_rel) - one_expected;
    if (arrived(state) != 0 && arrived(state) == expected(state)) open_barrier(state);
  }

  template <class = void>
  void run_erased(Call call, void* function) {
    if (running_) throw Error(ErrorKind::internal, "Team::run", "a parallel region was started inside another one");
    running_ = true;
    call_ = call;
    function_ = function;
    failed_.store(false, std::memory_order_relaxed);
    barrier_.store(static_cast<std::uint64_t>(size_) * one_expected, std::memory_order_relaxed);
    remaining_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
    if (size_ > 1) publish(generation_.load(std::memory_order_relaxed) + 1);
    execute(0);
    Backoff backoff(policy_);
    while (remaining_.load(std::memory_order_acquire) != 0) backoff.step();
    running_ = false;
    if (failed_.load(std::memory_order_relaxed)) rethrow();
  }
  template <class = void>
  void rethrow() {
    std::exception_ptr first;
    for (auto& failure : failures_) {
      if (failure && !first) first = failure;
      failure = nullptr;
    }
    std::rethrow_exception(first);
  }
  void publish(std::uint32_t generation) noexcept {
    generation_.store(generation, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(generation_);
  }
  void execute(int thread) noexcept {
    try {
      call_(function_, thread);
    } catch (...) {
      failures_[static_cast<std::size_t>(thread)] = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
      leave_barrier();
    }
  }
  static void* main(void* argument) {
    auto* const worker = static_cast<Worker*>(argument);
    worker->team->loop(worker->index);
    return nullptr;
  }
  void loop(int index) noexcept {
    std::uint32_t seen = 0;
    for (;;) {
      Backoff backoff(policy_);
      std::uint32_t generation;
      while ((generation = generation_.load(std::memory_order_acquire)) == seen) {
        if (backoff.should_sleep()) {
          sleepers_.fetch_add(1, std::memory_order_seq_cst);
          if (generation_.load(std::memory_order_seq_cst) == seen) futex_wait(generation_, seen);
          sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        } else {
          backoff.step();
        }
      }
      seen = generation;
      if (stopping_) return;
      execute(index);
      remaining_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  void stop() noexcept {
    stopping_ = true;
    publish(generation_.load(std::memory_order_relaxed) + 1);
    for (std::size_t index = 1; index < workers_.size(); ++index) workers_[index].thread.join();
    workers_.clear();
  }

  WaitPolicy policy_;
  int size_ = 1;
  bool running_ = false;
  bool stopping_ = false;
  Call call_ = nullptr;
  void* function_ = nullptr;
  List<Worker> workers_;  // the first is the caller, without a thread
  List<std::exception_ptr> failures_;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> remaining_{0};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint64_t> barrier_{0};
  alignas(64) std::atomic<std::uint32_t> barrier_generation_{0};
};

}  // namespace tutti::exec
