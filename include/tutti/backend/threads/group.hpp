// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the ranks of one process share: the world of a run with its failures, and per communicator a ring of slots for
/// collectives and a mailbox for each rank.

#include <tutti/comm/collective.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::threads {

using tutti::Guard, tutti::Mutex;

/// A word that every wait looks at, with the first cause behind it.
class Alarm {
 public:
  bool raised() const noexcept { return raised_.load(std::memory_order_seq_cst); }
  void raise(ErrorKind kind, std::string text) noexcept {
    Guard const guard(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return;
    kind_ = kind;
    text_ = std::move(text);
    raised_.store(true, std::memory_order_seq_cst);
  }
  /// Throws the cause if raised.
  void check(char const* operation, std::source_location where) {
    if (!raised_.load(std::memory_order_acquire)) return;
    Guard const guard(mutex_);
    throw Error(kind_, operation, text_, where);
  }

 private:
  std::atomic<bool> raised_{false};
  Mutex mutex_;
  ErrorKind kind_ = ErrorKind::communication;
  std::string text_;
};

/// One run of ranks.
class World {
 public:
  World(int size, exec::WaitPolicy policy)
      : policy_(policy), departed_(static_cast<std::size_t>(size)) {}

  exec::WaitPolicy policy() const noexcept { return policy_; }
  Alarm& alarm() noexcept { return alarm_; }
  /// The rank's function has returned or thrown.
  void depart(int rank) noexcept {
    departed_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
    any_departed_.store(true, std::memory_order_release);
  }
  bool any_departed() const noexcept { return any_departed_.load(std::memory_order_acquire); }
  bool departed(int rank) const noexcept {
    return departed_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

 private:
  exec::WaitPolicy policy_;
  Alarm alarm_;
  std::atomic<bool> any_departed_{false};
  Array<std::atomic<bool>> departed_;
};

/// A message between its sender and its receiver. Small ones carry a copy, large ones point to the sender's buffer.
struct Letter {
  enum State : std::uint32_t { posted, copying, delivered, withdrawn };
  int source = 0;
  int tag = 0;
  comm::Channel channel = comm::Channel::user;
  std::int64_t bytes = 0;
  void const* data = nullptr;
  Array<std::byte> copy;
  std::atomic<std::uint32_t> state{posted};
};

struct alignas(64) Mailbox {
  std::atomic<std::uint64_t> posts{0};
  Mutex mutex;
  List<Shared<Letter>> letters;
};

/// One rank's part of a slot. A contribution that fits is copied in beside the arrival word, so that small collectives
/// need one hand-over and small messages one cache line.
struct alignas(64) Entry {
  static constexpr std::int64_t inline_bytes = 1000;
  std::atomic<std::uint64_t> arrived{0};  ///< sequence number + 1
  std::uint64_t facts = 0;                ///< kind, operator, type and root
  std::int64_t count = 0;
  alignas(8) std::byte payload[inline_bytes];
  comm::Collective call;
  alignas(64) std::atomic<std::uint64_t> done{0};  ///< sequence number + 1: this rank's share of direct work is done
  std::atomic<std::uint64_t> working{0};           ///< sequence number + 1 while it touches other ranks' buffers
};

/// One communicator's shared part.
class Group {
 public:
  static constexpr std::uint64_t slots = 16;

  /// `members` are ranks of the world.
  Group(Shared<World> world, List<int> members)
      : world_(std::move(world)), members_(std::move(members)), size_(members_.size()),
        entries_(size_ * slots), mailboxes_(size_),
        completed_(size_) {}

  int size() const noexcept { return static_cast<int>(size_); }
  World& world() noexcept { return *world_; }
  Alarm& alarm() noexcept { return alarm_; }
  bool broken() const noexcept { return alarm_.raised() || world_->alarm().raised(); }
  void check(char const* operation, std::source_location where = std::source_location::current()) {
    alarm_.check(operation, where);
    world_->alarm().check(operation, where);
  }
  bool departed(int rank) const noexcept { return world_->departed(members_[static_cast<std::size_t>(rank)]); }
  bool any_departed() const noexcept { return world_->any_departed(); }

  Entry& entry(std::uint64_t sequence, int rank) noexcept {
    return entries_[sequence % slots * size_ + static_cast<std::size_t>(rank)];
  }
  Mailbox& mailbox(int rank) noexcept { return mailboxes_[static_cast<std::size_t>(rank)]; }

  /// How many collectives each rank has completely behind it: a slot is free again when everyone has.
  void complete(int rank, std::uint64_t count) noexcept {
    completed_[static_cast<std::size_t>(rank)].value.store(count, std::memory_order_release);
  }
  std::uint64_t completed_by_all() const noexcept {
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t r = 0; r < size_; ++r) {
      std::uint64_t const value = completed_[r].value.load(std::memory_order_acquire);
      if (value < least) least = value;
    }
    return least;
  }

  /// The group of the `turn`-th split with this color; whoever comes first makes it, whoever comes last forgets it.
  Shared<Group> child(std::uint64_t turn, int color, List<int> const& members) {
    Guard const guard(children_mutex_);
    std::size_t at = 0;
    while (at < children_.size() && !(children_[at].turn == turn && children_[at].color == color)) ++at;
    if (at == children_.size()) {
      List<int> ranks;
      for (int member : members) ranks.push_back(members_[static_cast<std::size_t>(member)]);
      children_.push_back({turn, color, members.size(), make_shared_owner<Group>(world_, std::move(ranks))});
    }
    Shared<Group> const group = children_[at].group;
    if (--children_[at].missing == 0) children_.erase(at);
    return group;
  }

 private:
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> value{0};
  };
  struct Child {
    std::uint64_t turn = 0;
    int color = 0;
    std::size_t missing = 0;
    Shared<Group> group;
  };

  Shared<World> world_;
  List<int> members_;
  std::size_t size_;
  Alarm alarm_;
  Array<Entry> entries_;
  Array<Mailbox> mailboxes_;
  Array<Counter> completed_;
  Mutex children_mutex_;
  List<Child> children_;
};

}  // namespace tutti::threads
