// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The connections of a program, which end one by one and never from within themselves; and the bytes of all, ended
/// ones too.

#include <tutti/federate/rpc/link.hpp>

#include <kj/async.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tutti::federate {

/// Whether connections to this name stay on this machine.
inline bool is_loopback(std::string const& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

class Links final : private kj::TaskSet::ErrorHandler {
 public:
  Links() : tasks_(*this) {}

  void put(std::uint64_t id, kj::Own<Link> link) { links_.emplace(id, kj::mv(link)); }
  bool empty() const noexcept { return links_.empty(); }
  std::size_t size() const noexcept { return links_.size(); }
  /// Those that came before `then` and have not proved the key, nor said anything else.
  void drop_strangers(Instant then) {
    for (auto const& [id, link] : links_)
      if (!link->opened() && link->since() < then) drop(id);
  }
  Link* find(std::uint64_t id) {
    auto const at = links_.find(id);
    return at == links_.end() ? nullptr : at->second.get();
  }
  /// Once what was sent has arrived, or soon.
  void close(std::uint64_t id) {
    if (Link* const link = find(id)) link->close([this, id] { drop(id); });
  }
  void drop(std::uint64_t id) {
    tasks_.add(kj::evalLater([this, id] {
      auto const at = links_.find(id);
      if (at == links_.end()) return;
      sent_ += at->second->sent();
      received_ += at->second->received();
      links_.erase(at);
    }));
  }
  std::int64_t sent() const noexcept {
    std::int64_t total = sent_;
    for (auto const& [id, link] : links_) total += link->sent();
    return total;
  }
  std::int64_t received() const noexcept {
    std::int64_t total = received_;
    for (auto const& [id, link] : links_) total += link->received();
    return total;
  }

 private:
  void taskFailed(kj::Exception&&) override {}  // nothing that is added can fail

  std::map<std::uint64_t, kj::Own<Link>> links_;
  std::int64_t sent_ = 0, received_ = 0;
  kj::TaskSet tasks_;
};

}  // namespace tutti::federate
