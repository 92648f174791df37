// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A backend that can only pass messages: Threads with every collective taken away. Everything is derived.

#include <tutti/backend/threads.hpp>

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti::test {

class MessagesOnly {
 public:
  using Device = Threads::Device;
  using Operation = Threads::Operation;
  using Match = Threads::Match;
  static constexpr bool provides(comm::Kind, DType, Operator) noexcept { return false; }
  static constexpr bool scatters_in_place() noexcept { return true; }

  explicit MessagesOnly(Threads inner, comm::CheckLevel level = comm::CheckLevel::cheap)
      : inner_(std::move(inner)), level_(level) {}
  comm::CheckLevel check_level() const noexcept { return level_; }
  int rank() const noexcept { return inner_.rank(); }
  int size() const noexcept { return inner_.size(); }
  int node() const noexcept { return inner_.node(); }
  int local_rank() const noexcept { return inner_.local_rank(); }
  int local_size() const noexcept { return inner_.local_size(); }
  exec::WaitPolicy wait_policy() const noexcept { return inner_.wait_policy(); }
  Operation start(comm::Collective const& call) {
    throw Error(ErrorKind::internal, "MessagesOnly", "asked for " + comm::describe(call));
  }
  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    return inner_.start_send(from, bytes, dtype, to, tag, channel);
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    return inner_.start_recv(to, bytes, dtype, from, tag, channel);
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) { return inner_.start_recv(match, to, bytes); }
  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    return inner_.try_match(from, tag, match, info);
  }
  bool test(Operation& operation) { return inner_.test(operation); }
  MessageInfo received(Operation const& operation) const noexcept { return inner_.received(operation); }
  bool abandon(Operation& operation) noexcept { return inner_.abandon(operation); }
  std::string awaiting(Operation const& operation) const { return inner_.awaiting(operation); }
  void revoke(ErrorKind kind, std::string text) noexcept { inner_.revoke(kind, std::move(text)); }
  MessagesOnly split(int color, int key, tutti::List<int> const& members) {
    return MessagesOnly(inner_.split(color, key, members), level_);
  }

 private:
  Threads inner_;
  comm::CheckLevel level_;
};

static_assert(Backend<MessagesOnly>);

/// f(communicator) on `ranks` ranks that can only pass messages. Without comparisons small calls are derived too.
template <class F>
void run_messages_only(int ranks, F&& f, comm::CheckLevel level = comm::CheckLevel::cheap) {
  threads::run(ranks, [&](Communicator<Threads>& outer) {
    List<int> members;
    for (int r = 0; r < ranks; ++r) members.push_back(r);
    Communicator<MessagesOnly> comm(MessagesOnly(outer.backend().split(0, 0, members), level));
    f(comm);
  });
}

}  // namespace tutti::test
