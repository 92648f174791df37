// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Ends a test process that hangs, after saying which rank, which test case and for how long. Meson's timeout would
/// end it as well, but without a word.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace tutti::test {

/// Watches the process from its construction to its destruction.
class Watchdog {
 public:
  /// `rank` is -1 outside a parallel job.
  Watchdog(std::chrono::seconds limit, int rank, int ranks)
      : limit_(limit), rank_(rank), ranks_(ranks), start_(std::chrono::steady_clock::now()), thread_([this] {
          watch();
        }) {}
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  /// Names what runs now; shown when the limit passes.
  void running(std::string what) {
    std::lock_guard lock(mutex_);
    what_ = std::move(what);
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (wake_.wait_until(lock, start_ + limit_, [this] { return done_; })) return;
    auto const elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (rank_ >= 0)
      std::fprintf(stderr, "watchdog: rank %d of %d hangs in \"%s\" after %.1f s\n", rank_, ranks_, what_.c_str(),
                   elapsed);
    else std::fprintf(stderr, "watchdog: hangs in \"%s\" after %.1f s\n", what_.c_str(), elapsed);
    std::fflush(nullptr);
    // The first process to leave takes the whole job with it: give the other ranks time to say where they are.
    if (ranks_ > 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::_Exit(124);
  }

  std::chrono::seconds limit_;
  int rank_;
  int ranks_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::string what_ = "start";
  std::thread thread_;
};

}  // namespace tutti::test
