// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the ranks of a communicator that are all on one node have beside MPI: shared memory, the engine of collectives
/// on it, and their messages.

#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/segment.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/comm/shared/holders.hpp>
#include <tutti/comm/shared/messages.hpp>

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace tutti::mpi {

class NodeMemory {
 public:
  using Messages = tutti::comm::shared::Messages<Segment>;

  /// Collective over `comm`, all of whose ranks are on one node. `segment`: of the parent, whose ranks share memory
  /// already; or null. Null where they cannot share memory, with a warning.
  /// Errors     unavailable, on all ranks, where they cannot and the configuration says that they must.
  static std::unique_ptr<NodeMemory> create(MPI_Comm comm, Shared<Segment> segment, MpiConfig const& config) {
    int rank = 0, size = 1;
    check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    std::int64_t const stage_bytes = config.staging_bytes->bytes;
    std::string reason;
    bool const whole = segment == nullptr;
    if (whole) segment = Segment::create(comm, reason);
    std::int64_t place = -1;
    if (segment != nullptr && rank == 0) {
      if (std::byte* const memory = segment->allocate(bytes(size, stage_bytes)); memory != nullptr) {
        Board::create(memory, size);
        for (int r = 0; r < size; ++r) ::new (mailboxes(memory, size, stage_bytes) + r) Mailbox();
        place = memory - segment->base();
      } else {
        reason = "no space in /dev/shm";
      }
    }
    check(MPI_Bcast(&place, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
    if (place < 0 && config.node_shared == Switch::on)
      throw Error(ErrorKind::unavailable, "Mpi",
                  "node_shared is on, but the ranks of this node cannot share memory" +
                      (reason.empty() ? std::string() : " (" + reason + ")") +
                      ". Enlarge /dev/shm, or leave it at auto");
    if (place < 0) {
      if (rank == 0)
        std::fprintf(stderr,
                     "tutti: warning: the ranks of this node cannot share memory (%s); collectives go through MPI, and "
                     "are slower\n",
                     reason.c_str());
      return nullptr;
    }
    std::byte* const board = segment->base() + place;
    auto node = std::make_unique<NodeMemory>(std::move(segment), board, size, rank, stage_bytes);
    check(MPI_Barrier(comm), "MPI_Barrier");  // all have written their tokens
    bool const readable = node->segment_->readable() || node->all_read_all(comm);
    if (whole) node->segment_->set_readable(readable);  // else of some of its ranks only
    node->engine_.allow_reading(readable);
    return node;
  }

  NodeMemory(Shared<Segment> memory, std::byte* board, int size, int rank, std::int64_t stage_bytes)
      : segment_(std::move(memory)),
        board_(board),
        rank_(rank),
        engine_(Board(board, size, stage_bytes, reinterpret_cast<std::uintptr_t>(segment_->base()),
                                           segment_->reach()),
                rank, &segment_->alarm()) {
    auto& status = engine_.board().status(rank);
    auto const here = segment_->origin();
    status.process.store(here.process);
    status.token = here.token;
    status.token_address = here.token_address;
  }
  NodeMemory(NodeMemory const&) = delete;
  NodeMemory& operator=(NodeMemory const&) = delete;
  ~NodeMemory() {
    engine_.leave();
    messages_.reset();
    auto const& board = engine_.board();
    if (rank_ == 0) segment_->retire(board, board_, bytes(board.size(), board.stage_bytes()));
    board.status(rank_).detached.store(1, std::memory_order_release);
  }

  Shared<Segment> const& segment() const noexcept { return segment_; }
  tutti::comm::shared::Engine& engine() noexcept { return engine_; }
  tutti::comm::shared::Engine const& engine() const noexcept { return engine_; }
  /// See Engine; behind `open_messages`.
  void wake_others(bool wakes) noexcept {
    wakes_ = wakes;
    engine_.wake_others(wakes);
    if (messages_) messages_->wake_others(wakes);
  }
  /// Null where others do not wake this rank.
  tutti::comm::shared::Engine* sleeper() noexcept { return wakes_ ? &engine_ : nullptr; }
  /// For ranks that exchange their messages here, called once.
  Messages* open_messages() {
    Board const& board = engine_.board();
    messages_ = std::make_unique<Messages>(*segment_, board, mailboxes(board_, board.size(), board.stage_bytes()),
                                           rank_);
    return messages_.get();
  }

  /// 64-byte aligned and in every rank's reach; when the system has no pages left, private memory, with one warning.
  Storage<Cpu> allocate(std::size_t bytes) {
    if (std::byte* const memory = segment_->allocate(bytes); memory != nullptr)
      return Storage<Cpu>(Cpu{}, memory, bytes, &give_back, new Shared<Segment>(segment_));
    if (!std::exchange(warned_, true))
      std::fprintf(stderr,
                   "tutti: warning: rank %d: the node's shared memory is full; its tensors are private now, and their "
                   "collectives slower. Enlarge /dev/shm\n",
                   rank_);
    return Storage<Cpu>(Cpu{}, bytes);
  }

  /// See comm::SharesBlocks. The handle is an offset: the memory has an address of its own in every process.
  Storage<Cpu> share(std::size_t bytes, std::uint64_t& handle) {
    std::byte* const memory = segment_->allocate(Holders::total_bytes(bytes));
    if (memory == nullptr) return {};
    Holders::create(memory, bytes, engine_.board().size());
    handle = static_cast<std::uint64_t>(memory - segment_->base());
    return Storage<Cpu>(Cpu{}, memory, bytes, &retire, new Shared<Segment>(segment_));
  }
  Storage<Cpu> adopt(std::uint64_t handle, std::size_t bytes) {
    return Storage<Cpu>(Cpu{}, segment_->base() + handle, bytes, &let_go, new Shared<Segment>(segment_));
  }

 private:
  /// Collective. Whether every rank can read the memory of every other one: containers and ptrace's settings may forbid
  /// it.
  bool all_read_all(MPI_Comm comm) const {
    int readable = reads_all() ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &readable, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
    return readable == 1;
  }
  bool reads_all() const noexcept {
    auto const& board = engine_.board();
    std::uint64_t word = 0;
    for (int r = 0; r < board.size(); ++r)
      if (!tutti::comm::shared::read_remote(board.origin(r), board.status(r).token_address, &word, sizeof word) ||
          word != board.status(r).token)
        return false;
    return true;
  }

  using Holders = tutti::comm::shared::Holders;
  using Board = tutti::comm::shared::Board;
  using Mailbox = tutti::comm::shared::Mailbox;

  /// Of the board, and behind it a mailbox for each rank.
  static std::size_t bytes(int size, std::int64_t stage_bytes) noexcept {
    return Board::bytes(size, stage_bytes) + static_cast<std::size_t>(size) * sizeof(Mailbox);
  }
  static Mailbox* mailboxes(std::byte* board, int size, std::int64_t stage_bytes) noexcept {
    return std::launder(reinterpret_cast<Mailbox*>(board + Board::bytes(size, stage_bytes)));
  }

  static void retire(void* owner, Cpu const&, void* memory, std::size_t bytes) noexcept {
    auto* const segment = static_cast<Shared<Segment>*>(owner);
    auto* const block = static_cast<std::byte*>(memory);
    Holders* const holders = Holders::of(memory, bytes);
    if (holders->let_go()) (*segment)->release(block, Holders::total_bytes(bytes));
    else (*segment)->retire(holders, block, Holders::total_bytes(bytes));
    delete segment;
  }
  static void let_go(void* owner, Cpu const&, void* memory, std::size_t bytes) noexcept {
    Holders::of(memory, bytes)->let_go();
    delete static_cast<Shared<Segment>*>(owner);
  }
  static void give_back(void* owner, Cpu const&, void* memory, std::size_t bytes) noexcept {
    auto* const segment = static_cast<Shared<Segment>*>(owner);
    (*segment)->release(static_cast<std::byte*>(memory), bytes);
    delete segment;
  }

  Shared<Segment> segment_;
  std::byte* board_;
  int rank_;
  tutti::comm::shared::Engine engine_;
  bool wakes_ = false;
  std::unique_ptr<Messages> messages_;
  bool warned_ = false;
};

}  // namespace tutti::mpi
