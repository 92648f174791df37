// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the ranks of one process share: the world of a run with its failures, and per communicator a board for
/// collectives and a mailbox for each rank.

#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/holders.hpp>
#include <tutti/comm/shared/message_ring.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/tensor/storage.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::threads {

using tutti::Guard, tutti::Mutex;

/// One run of ranks.
class World {
 public:
  explicit World(exec::WaitPolicy policy) : policy_(policy) {}

  exec::WaitPolicy policy() const noexcept { return policy_; }
  /// Raised when a rank's function throws: it fails all communicators.
  comm::shared::Alarm& alarm() noexcept { return alarm_; }

 private:
  exec::WaitPolicy policy_;
  comm::shared::Alarm alarm_;
};

/// A message that waits for its receiver, or does not fit a slot of the ring by which it came. It carries a copy,
/// unless it is large: then it points to the sender's buffer.
struct Letter {
  enum State : std::uint32_t { posted, copying, delivered, withdrawn };
  int source = 0;
  int tag = 0;
  comm::Channel channel = comm::Channel::user;
  std::int64_t bytes = 0;
  DType dtype = DType::byte;
  void const* data = nullptr;
  Array<std::byte> copy;
  std::atomic<std::uint32_t> state{posted};

  /// Has it carry what it tells of.
  template <class = void>
  void keep(void const* from) {
    if (bytes == 0) return;
    copy = Array<std::byte>(static_cast<std::size_t>(bytes));
    std::memcpy(copy.data(), from, static_cast<std::size_t>(bytes));
    data = copy.data();
  }
};

/// What came for one rank. Messages arrive in the ring, and in a list beside it while the ring is full: a rank that
/// does not look for messages must not hold up those that send some.
struct Mailbox {
  comm::shared::MessageRing ring;

  /// A letter that came when so many messages had been claimed in the ring: those of its source among them are before
  /// it, and while one is left here its source adds to this list.
  struct Late {
    Shared<Letter> letter;
    std::uint64_t after = 0;
  };
  alignas(64) std::atomic<std::uint32_t> late_count{0};
  Mutex mutex;
  List<Late> late;

  alignas(64) List<Shared<Letter>> waiting;  ///< came before their receives were started; the owner's
};

/// One rank's hold on a block that the ranks have together; whoever lets go last frees it.
template <class = void>
Storage<Cpu> hold(void* memory, std::size_t bytes) {
  auto const release = [](void*, Cpu const& device, void* block, std::size_t size) noexcept {
    if (comm::shared::Holders::of(block, size)->let_go())
      device.deallocate(block, comm::shared::Holders::total_bytes(size));
  };
  return Storage<Cpu>(Cpu{}, memory, bytes, release, nullptr);
}

/// One communicator's shared part.
class Group {
 public:
  template <class = void>
  Group(Shared<World> world, int size)
      : world_(std::move(world)),
        size_(size),
        memory_(Cpu{}, comm::shared::Board::bytes(size, 0)),
        mailboxes_(static_cast<std::size_t>(size)) {
    comm::shared::Board::create(memory_.data(), size);
  }

  int size() const noexcept { return size_; }
  World& world() noexcept { return *world_; }
  /// All of memory is in every rank's reach: nothing is staged.
  comm::shared::Board board() noexcept {
    return comm::shared::Board(memory_.data(), size_, 0, 0, ~std::uint64_t{0});
  }
  Mailbox& mailbox(int rank) noexcept { return mailboxes_[static_cast<std::size_t>(rank)]; }

  /// The group of the `turn`-th split with this color; whoever comes first makes it, whoever comes last forgets it.
  template <class = void>
  Shared<Group> child(std::uint64_t turn, int color, int size) {
    Guard const guard(children_mutex_);
    std::size_t at = 0;
    while (at < children_.size() && !(children_[at].turn == turn && children_[at].color == color)) ++at;
    if (at == children_.size())
      children_.push_back({turn, color, size, make_shared_owner<Group>(world_, size)});
    Shared<Group> const group = children_[at].group;
    if (group->size() != size)  // a rank of the larger group would look beyond the smaller one's memory
      throw Error(ErrorKind::communication, "split",
                  concat("ranks disagree: the group of color ", color, " has ", group->size(),
                         " members on one rank and ", size, " on another. The transport damages what it carries"));
    if (--children_[at].missing == 0) children_.erase(at);
    return group;
  }

 private:
  struct Child {
    std::uint64_t turn = 0;
    int color = 0;
    int missing = 0;
    Shared<Group> group;
  };

  Shared<World> world_;
  int size_;
  Storage<Cpu> memory_;
  Array<Mailbox> mailboxes_;
  Mutex children_mutex_;
  List<Child> children_;
};

}  // namespace tutti::threads
