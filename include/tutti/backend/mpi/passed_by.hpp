// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages that a probe came past on its way to one with another tag.

#include <tutti/backend/mpi/match.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/list.hpp>

#include <cstddef>
#include <utility>

namespace tutti::mpi {

/// MPI finds one tag or any, where a user's tag with any type is wanted: a probe takes what comes first until that is
/// it. What is kept here came before what the library still has.
class PassedBy {
 public:
  bool empty() const noexcept { return messages_.size() == 0; }
  bool take(int from, int tag, Match& match, MessageInfo& info) {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      MessageInfo const& has = messages_[i].info;
      if ((from >= 0 && has.source != from) || (tag >= 0 && has.tag != tag)) continue;
      match = std::move(messages_[i].match);
      info = has;
      messages_.erase(i);
      return true;
    }
    return false;
  }
  void put(Match match, MessageInfo info) { messages_.push_back({std::move(match), info}); }
  void list(List<MessageInfo>& found) const {
    for (Waiting const& waiting : messages_) found.push_back(waiting.info);
  }

 private:
  struct Waiting {
    Match match;
    MessageInfo info;
  };
  List<Waiting> messages_;
};

}  // namespace tutti::mpi
