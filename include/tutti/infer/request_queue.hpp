// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Requests that wait: bounded, by priority, fair among sessions.

#include <tutti/infer/generation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

struct QueueOptions {
  std::size_t most = 50;   ///< requests that wait; further ones are refused
  std::size_t warn = 0;    ///< `on_warning` is called when so many wait; 0: never
  bool priorities = true;  ///< false: Request::priority counts for nothing
  bool fair = true;        ///< of equals first the session that was served longest ago; false: the oldest request
  bool cleanup = true;     ///< those that ended while they waited leave at once; false: when their turn comes
  /// Called with the number that wait, under the queue's lock: it must not call back.
  std::function<void(std::size_t)> on_warning{};
};

/// Not thread-safe.
class RequestQueue {
 public:
  explicit RequestQueue(QueueOptions options) : options_(std::move(options)) {}

  std::size_t size() const noexcept { return waiting_.size(); }
  bool empty() const noexcept { return waiting_.empty(); }

  /// `begins`: so many of those that are here need not wait, but that nobody has taken them yet.
  /// Errors: busy, when as many wait as may.
  void push(std::shared_ptr<Generation> generation, std::size_t begins) {
    if (waiting_.size() >= options_.most + begins)
      throw Error(ErrorKind::busy, "Service::submit",
                  concat(options_.most, " requests wait already, as many as may. Come again later"));
    if (waiting_.empty()) served_.clear();
    waiting_.push_back(std::move(generation));
    if (options_.warn > 0 && waiting_.size() == options_.warn && options_.on_warning) options_.on_warning(size());
  }

  /// Takes out those that ended while they waited, and calls f(generation, why) for each.
  template <class F>
  void drop_ended(F&& f) {
    std::erase_if(waiting_, [&](std::shared_ptr<Generation> const& generation) {
      auto const reason = generation->ended();
      if (reason) f(generation, *reason);
      return reason.has_value();
    });
  }

  /// Takes out the one whose turn it is. Precondition: not empty.
  std::shared_ptr<Generation> take() {
    auto const served = [&](Generation const& g) {
      auto const found = served_.find(g.request().session);
      return found == served_.end() ? std::uint64_t{0} : found->second;
    };
    auto const first = std::min_element(waiting_.begin(), waiting_.end(), [&](auto const& a, auto const& b) {
      int const x = a->request().priority, y = b->request().priority;
      if (options_.priorities && x != y) return x > y;
      return options_.fair && served(*a) < served(*b);  // the first of equals is the oldest
    });
    std::shared_ptr<Generation> taken = std::move(*first);
    waiting_.erase(first);
    try {
      served_[taken->request().session] = ++turns_;
    } catch (std::bad_alloc const&) {  // its turn is forgotten, not the request
    }
    return taken;
  }
  /// Takes out all.
  std::vector<std::shared_ptr<Generation>> clear() { return std::exchange(waiting_, {}); }

 private:
  QueueOptions options_;
  std::vector<std::shared_ptr<Generation>> waiting_;  // by age
  std::map<std::string, std::uint64_t> served_;       // the turn at which a session's last request was taken
  std::uint64_t turns_ = 0;
};

}  // namespace tutti::infer
