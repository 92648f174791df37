// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages that a probe has seen or come past and nobody has received. Backends can only match a message, which takes
/// it out of their queue; kept here, in the order in which they came, they look as if they had stayed in it: messages
/// of one source do not overtake each other, so that a receive of any tag gets the first, whatever a probe asked for.

#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/core/list.hpp>

#include <string>
#include <utility>

namespace tutti::comm {

template <Backend B>
class Inbox {
 public:
  using Match = typename B::Match;

  bool empty() const noexcept { return seen_.empty(); }
  /// Whether a message has come; it stays where receives find it.
  bool look(B& backend, int from, int tag, MessageInfo& info) {
    for (Seen const& seen : seen_)
      if (fits(seen.info, from, tag)) {
        info = seen.info;
        return true;
      }
    for (;;) {
      Seen seen;
      if (!match_next(backend, from, seen)) return false;
      info = seen.info;
      seen_.push_back(std::move(seen));
      if (fits(info, from, tag)) return true;
    }
  }
  /// Takes a message that was seen before.
  bool take(int from, int tag, Match& match, MessageInfo& info) {
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (fits(seen_[i].info, from, tag)) {
        match = std::move(seen_[i].match);
        info = seen_[i].info;
        seen_.erase(i);
        return true;
      }
    return false;
  }
  /// Takes a message, if there is one: of those that fit, the first that came.
  bool match(B& backend, int from, int tag, Match& match, MessageInfo& info) {
    return take(from, tag, match, info) || backend.try_match(from, tag, match, info);
  }

  /// What has come and nobody has received, for whoever waits in vain.
  std::string others(B const& backend) const {
    List<MessageInfo> found = infos();
    for (MessageInfo const& info : capability::unreceived(backend)) found.push_back(info);
    return messages_there(found);
  }

 private:
  struct Seen {
    Match match;
    MessageInfo info;
  };
  /// Who hears that nobody is left to send hears what it has come past.
  bool match_next(B& backend, int from, Seen& seen) {
    try {
      return backend.try_match(from, any_tag, seen.match, seen.info);
    } catch (Error const& error) {
      if (seen_.empty()) throw;
      capability::check_alive(backend, "probe");  // throws what it is
      throw Error(error.kind(), error.operation(), concat(error.message(), messages_there(infos())), error.where());
    }
  }
  List<MessageInfo> infos() const {
    List<MessageInfo> found;
    for (Seen const& seen : seen_) found.push_back(seen.info);
    return found;
  }
  static bool fits(MessageInfo const& info, int from, int tag) noexcept {
    return (from < 0 || info.source == from) && (tag < 0 || info.tag == tag);
  }

  List<Seen> seen_;
};

}  // namespace tutti::comm
