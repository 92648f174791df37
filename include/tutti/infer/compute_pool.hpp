// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The threads that all models of a process compute with, one model at a time.

#include <tutti/exec/context.hpp>
#include <tutti/exec/processors.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace tutti::infer {

/// Two teams of as many threads as there are processors would wait for each other at every barrier, so models take the
/// whole team in turn. Thread-safe, but for the context, which is for who has the turn.
class ComputePool {
 public:
  /// `threads`: 0 for all processors of this process. Errors: those of exec::Context.
  explicit ComputePool(int threads = 0) : context_({.threads = threads}) {}
  ComputePool(ComputePool const&) = delete;
  ComputePool& operator=(ComputePool const&) = delete;

  /// The pool of so many threads that this process has: made by the first who asks, gone with the last who holds it.
  static std::shared_ptr<ComputePool> of_process(int threads = 0) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<ComputePool>> pools;
    std::lock_guard const guard(mutex);
    std::weak_ptr<ComputePool>& known = pools[threads == 0 ? exec::available_processors() : threads];
    std::shared_ptr<ComputePool> pool = known.lock();
    if (!pool) known = pool = std::make_shared<ComputePool>(threads);
    return pool;
  }

  exec::Context& context() noexcept { return context_; }

  /// How many wait for their turn.
  std::size_t waiting() const {
    std::lock_guard const guard(mutex_);
    return waiting_.size();
  }

  /// From its construction, which blocks, to its end the context is this one's. Of those who wait the highest priority
  /// comes first, of equals who has waited longest. Without a pool there is nobody to wait for. Errors: bad_alloc.
  class Turn {
   public:
    Turn(ComputePool* pool, int priority) : pool_(pool) {
      if (pool_ != nullptr) pool_->enter(priority);
    }
    Turn(Turn const&) = delete;
    Turn& operator=(Turn const&) = delete;
    ~Turn() { end(); }
    void end() noexcept {
      if (ComputePool* const pool = std::exchange(pool_, nullptr); pool != nullptr) pool->leave();
    }

   private:
    ComputePool* pool_;
  };

 private:
  void enter(int priority) {
    std::unique_lock lock(mutex_);
    auto const place = waiting_.emplace(-std::int64_t{priority}, arrived_++).first;
    turn_.wait(lock, [&] { return !taken_ && place == waiting_.begin(); });
    waiting_.erase(place);
    taken_ = true;
  }
  void leave() noexcept {
    {
      std::lock_guard const guard(mutex_);
      taken_ = false;
    }
    turn_.notify_all();
  }

  exec::Context context_;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  bool taken_ = false;
  std::set<std::pair<std::int64_t, std::uint64_t>> waiting_;
  std::uint64_t arrived_ = 0;
};

}  // namespace tutti::infer
