// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A fork-join team of persistent threads. The caller is thread 0.

#include <tutti/core/error.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <pthread.h>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti::exec {

/// `run` hands one function to all threads and returns when all are done. One `run` at a time, from one thread.
class Team {
 public:
  /// `threads` at least 1. Errors: invalid_argument; unavailable, when the system refuses a thread.
  explicit Team(int threads, WaitPolicy policy = {}) : policy_(policy) {
    if (threads < 1 || threads > 4096)
      throw Error(ErrorKind::invalid_argument, "Team", std::to_string(threads) + " threads: between 1 and 4096 are possible");
    size_ = threads;
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int index = 1; index < threads; ++index) {
      auto worker = std::make_unique<Worker>(Worker{this, index, {}});
      int const code = ::pthread_create(&worker->handle, nullptr, &Team::main, worker.get());
      if (code != 0) {
        stop();
        throw Error(ErrorKind::unavailable, "Team", "the system refused thread " + std::to_string(index) + ". Use fewer threads")
            .with_native("pthread_create: " + std::to_string(code));
      }
      workers_.push_back(std::move(worker));
    }
  }
  Team(Team const&) = delete;
  Team& operator=(Team const&) = delete;
  ~Team() { stop(); }

  int size() const noexcept { return size_; }

  /// Calls f(thread) on every thread of the team, thread from 0. The exception of the lowest thread is rethrown after all
  /// have returned. A nested call throws Error(internal).
  template <class F>
  void run(F&& f) {
    using Function = std::remove_reference_t<F>;
    if (size_ == 1) {
      f(0);
      return;
    }
    run_erased([](void* function, int thread) { (*static_cast<Function*>(function))(thread); },
               const_cast<void*>(static_cast<void const*>(&f)));
  }

  /// Inside `run`: returns when every thread has called it as often.
  void barrier() noexcept {
    if (size_ == 1) return;
    std::uint32_t const generation = barrier_generation_.load(std::memory_order_relaxed);
    if (barrier_arrived_.fetch_add(1, std::memory_order_acq_rel) == static_cast<std::uint32_t>(size_ - 1)) {
      barrier_arrived_.store(0, std::memory_order_relaxed);
      barrier_generation_.store(generation + 1, std::memory_order_release);
    } else {
      Backoff backoff(policy_);
      while (barrier_generation_.load(std::memory_order_acquire) == generation) backoff.step();
    }
  }

 private:
  using Call = void (*)(void*, int);
  struct Worker {
    Team* team;
    int index;
    pthread_t handle;
  };

  void run_erased(Call call, void* function) {
    if (running_) throw Error(ErrorKind::internal, "Team::run", "a parallel region was started inside another one");
    running_ = true;
    call_ = call;
    function_ = function;
    failures_.assign(static_cast<std::size_t>(size_), nullptr);
    remaining_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
    publish(generation_.load(std::memory_order_relaxed) + 1);
    execute(0);
    Backoff backoff(policy_);
    while (remaining_.load(std::memory_order_acquire) != 0) backoff.step();
    running_ = false;
    for (auto& failure : failures_)
      if (failure) std::rethrow_exception(failure);
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
    for (auto& worker : workers_) ::pthread_join(worker->handle, nullptr);
    workers_.clear();
  }

  WaitPolicy policy_;
  int size_ = 1;
  bool running_ = false;
  bool stopping_ = false;
  Call call_ = nullptr;
  void* function_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::exception_ptr> failures_;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> remaining_{0};
  alignas(64) std::atomic<std::uint32_t> barrier_arrived_{0};
  alignas(64) std::atomic<std::uint32_t> barrier_generation_{0};
};

}  // namespace tutti::exec
