// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Pieces of an answer between who writes them and the connection that sends them.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

namespace tutti::infer::detail {

/// Text on its way from the service's thread to a connection's.
class TextStream {
 public:
  void push(std::string_view text) {
    {
      std::lock_guard const guard(mutex_);
      texts_.emplace_back(text);
    }
    changed_.notify_one();
  }
  /// The next text; empty where none came within a moment.
  std::string next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !texts_.empty(); });
    if (texts_.empty()) return {};
    std::string text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> texts_;
};

}  // namespace tutti::infer::detail
