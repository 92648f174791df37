// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A thread that does one thing after another for one that must not wait.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::federate {

/// What is posted must not throw. Its end waits for what is being done, and drops what was not begun.
class Bench {
 public:
  Bench() : thread_([this] { work(); }) {}
  Bench(Bench const&) = delete;
  Bench& operator=(Bench const&) = delete;
  ~Bench() { finish(); }

  void post(std::function<void()> what) {
    {
      std::lock_guard const guard(mutex_);
      waiting_.push_back(std::move(what));
    }
    changed_.notify_one();
  }
  /// Blocking. Nothing is done afterwards.
  void finish() {
    {
      std::lock_guard const guard(mutex_);
      finished_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return finished_ || !waiting_.empty(); });
      if (finished_) return;
      std::function<void()> const what = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      what();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool finished_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tutti::federate
