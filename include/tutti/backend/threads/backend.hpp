// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Threads`: ranks are threads of one process and work on each other's memory. A large reduction is one pass: each
/// rank combines its slice of all inputs, in rank order, and writes it to all outputs. Other collectives pull from the
/// source. Above 400 lines because messages and collectives share one progress engine.

#include <tutti/backend/threads/group.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tutti {

class Threads {
  struct State;

 public:
  using Device = Cpu;

  class Operation {
   public:
    Operation() = default;
    Operation(Operation&& other) noexcept : state_(other.state_), info_(other.info_) { other.state_ = nullptr; }
    Operation& operator=(Operation&& other) noexcept {
      State* const state = state_;
      state_ = other.state_;
      other.state_ = state;
      info_ = other.info_;
      return *this;
    }

   private:
    friend Threads;
    explicit Operation(State* state) noexcept : state_(state) {}
    State* state_ = nullptr;
    MessageInfo info_;
  };
  using Match = Shared<threads::Letter>;

  static constexpr bool provides(comm::Kind kind, DType, Operator op) noexcept {
    return kind <= comm::Kind::all_to_all && op <= Operator::callable;
  }
  static constexpr bool scatters_in_place = true;

  Threads(Shared<threads::Group> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(group_->size()), inputs_(static_cast<std::size_t>(size_)) {}
  Threads(Threads&&) noexcept = default;
  Threads& operator=(Threads&&) noexcept = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int node() const noexcept { return 0; }
  int local_rank() const noexcept { return rank_; }
  int local_size() const noexcept { return size_; }
  exec::WaitPolicy wait_policy() const noexcept { return group_->world().policy(); }

  Operation start(comm::Collective const& call) {
    group_->check(comm::name(call.kind).data(), call.where);
    State& state = take(State::collective);
    state.call = call;
    state.sequence = sequence_++;
    state.contributed = contributed(call);
    state.inlined = contribution_bound(call) <= threads::Entry::inline_bytes;
    return Operation(&state);
  }

  Operation start_send(void const* from, std::int64_t bytes, int to, int tag, comm::Channel channel) {
    auto letter = make_shared_owner<threads::Letter>();
    letter->source = rank_;
    letter->tag = tag;
    letter->channel = channel;
    letter->bytes = bytes;
    letter->data = from;
    bool const eager = bytes <= eager_bytes;
    if (eager && bytes != 0) {
      letter->copy = Array<std::byte>(static_cast<std::size_t>(bytes));
      std::memcpy(letter->copy.data(), from, static_cast<std::size_t>(bytes));
      letter->data = letter->copy.data();
    }
    threads::Mailbox& box = group_->mailbox(to);
    {
      threads::Guard const guard(box.mutex);
      box.letters.push_back(letter);
    }
    box.posts.fetch_add(1, std::memory_order_release);
    if (eager) return {};
    State& state = take(State::send);
    state.letter = std::move(letter);
    state.peer = to;
    return Operation(&state);
  }
  Operation start_recv(void* to, std::int64_t bytes, int from, int tag, comm::Channel channel) {
    State& state = take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = from;
    state.info = {from, tag, 0};
    state.channel = channel;
    seen_posts_ = ~std::uint64_t{0};  // letters that came before this receive was started are looked at again
    return Operation(&state);
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    State& state = take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = match->source;
    state.letter = std::move(match);
    return Operation(&state);
  }
  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    match_receives();  // receives that were started earlier come first
    bool const gone = alone(from);
    {
      threads::Mailbox& box = group_->mailbox(rank_);
      threads::Guard const guard(box.mutex);
      match = find(box, from, tag, comm::Channel::user);
    }
    if (match == nullptr) {
      group_->check("probe");
      if (gone) throw_departed("probe", from);
      return false;
    }
    info = {match->source, match->tag, match->bytes};
    return true;
  }

  bool test(Operation& operation) {
    if (operation.state_ == nullptr) return true;
    progress();
    if (operation.state_->complete) {
      operation.info_ = operation.state_->info;
      recycle(operation);
      return true;
    }
    group_->check("test");
    check_departed(*operation.state_);
    return false;
  }
  MessageInfo received(Operation const& operation) const noexcept { return operation.info_; }

  /// Waits for peers that are copying at this moment; none begins after the group was revoked.
  bool abandon(Operation& operation) noexcept {
    State* const state = operation.state_;
    if (state == nullptr) return true;
    if (!state->complete) {
      exec::Backoff backoff(wait_policy());
      if (state->type == State::collective) {
        group_->alarm().raise(ErrorKind::revoked,
                              "rank " + std::to_string(rank_) + " gave up " + comm::describe(state->call));
        for (int r = 0; r < size_; ++r)
          while (group_->entry(state->sequence, r).working.load(std::memory_order_seq_cst) == state->sequence + 1)
            backoff.step();
      } else if (state->type == State::send) {
        std::uint32_t expected = threads::Letter::posted;
        if (!state->letter->state.compare_exchange_strong(expected, threads::Letter::withdrawn))
          while (state->letter->state.load(std::memory_order_acquire) == threads::Letter::copying) backoff.step();
      }
      active_.erase_if([&](State const* other) { return other == state; });
    }
    recycle(operation);
    return true;
  }

  std::string awaiting(Operation const& operation) const {
    State const* const state = operation.state_;
    if (state == nullptr) return {};
    if (state->type == State::send) return "rank " + std::to_string(state->peer) + " has not received the message";
    if (state->type == State::receive)
      return "no message from " + (state->peer < 0 ? "any rank" : "rank " + std::to_string(state->peer)) +
             " with " + (state->info.tag < 0 ? "any tag" : "tag " + std::to_string(state->info.tag));
    std::string here;
    std::string missing;
    for (int r = 0; r < size_; ++r) {
      bool const arrived = group_->entry(state->sequence, r).arrived.load(std::memory_order_acquire) > state->sequence;
      std::string& list = arrived ? here : missing;
      list += (list.empty() ? "" : ", ") + std::to_string(r);
    }
    if (missing.empty()) return "all ranks have arrived, not all have finished";
    return "ranks that have arrived: " + (here.empty() ? "none" : here) + "; missing: " + missing;
  }

  void revoke(ErrorKind kind, std::string text) noexcept { group_->alarm().raise(kind, std::move(text)); }

  Threads split(int color, int, List<int> const& members) {
    int own = 0;
    while (members[static_cast<std::size_t>(own)] != rank_) ++own;
    return Threads(group_->child(splits_++, color, members), own);
  }

  /// See tutti::launch; defined in run.hpp.
  template <class F>
  static int launch(int argc, char** argv, F& f);

 private:
  static constexpr std::int64_t eager_bytes = 4096;

  struct State {
    enum Type : std::uint8_t { collective, send, receive };
    Type type = collective;
    bool complete = false;
    bool inlined = false;
    std::uint8_t phase = 0;  // collectives: 0 unpublished, 1 waiting for arrivals, 2 waiting for the others' shares
    int next = 0;            // the first rank not yet seen in this phase
    std::uint64_t sequence = 0;
    std::int64_t contributed = 0;
    comm::Collective call;
    Shared<threads::Letter> letter;
    void* to = nullptr;
    std::int64_t bytes = 0;
    int peer = 0;
    comm::Channel channel = comm::Channel::user;
    MessageInfo info;
  };

  State& take(State::Type type) {
    if (free_.empty()) {
      states_.push_back(make_owner<State>());
      free_.push_back(states_.back().get());
      active_.reserve(states_.size());
    }
    State& state = *free_.back();
    free_.pop_back();
    state.type = type;
    state.complete = false;
    state.phase = 0;
    state.next = 0;
    active_.push_back(&state);
    return state;
  }
  void recycle(Operation& operation) noexcept {
    operation.state_->letter = nullptr;
    free_.push_back(operation.state_);
    operation.state_ = nullptr;
  }

  /// Moves on everything in flight, in the order in which it was started.
  void progress() {
    match_receives();
    bool changed = false;
    for (State* state : active_) {
      if (state->type == State::collective) state->complete = advance(*state);
      else if (state->letter != nullptr)
        state->complete = state->type == State::send
                              ? state->letter->state.load(std::memory_order_acquire) == threads::Letter::delivered
                              : deliver(*state);
      changed |= state->complete;
    }
    if (!changed) return;
    active_.erase_if([](State const* state) { return state->complete; });
    std::uint64_t behind = sequence_;
    for (State const* state : active_)
      if (state->type == State::collective) {
        behind = state->sequence;
        break;
      }
    group_->complete(rank_, behind);
  }

  // --- Messages ---

  Shared<threads::Letter> find(threads::Mailbox& box, int from, int tag, comm::Channel channel) {
    Shared<threads::Letter> found;
    for (std::size_t i = 0; i < box.letters.size();) {
      threads::Letter const& letter = *box.letters[i];
      bool const withdrawn = letter.state.load(std::memory_order_relaxed) == threads::Letter::withdrawn;
      bool const wanted = !withdrawn && letter.channel == channel && (from < 0 || letter.source == from) &&
                          (tag < 0 || letter.tag == tag);
      if (wanted) found = box.letters[i];
      if (wanted || withdrawn) box.letters.erase(i);
      else ++i;
      if (wanted) break;
    }
    return found;
  }
  void match_receives() {
    threads::Mailbox& box = group_->mailbox(rank_);
    std::uint64_t const posts = box.posts.load(std::memory_order_acquire);
    if (posts == seen_posts_) return;
    threads::Guard const guard(box.mutex);
    for (State* state : active_)
      if (state->type == State::receive && state->letter == nullptr)
        state->letter = find(box, state->peer, state->info.tag, state->channel);
    seen_posts_ = posts;
  }
  /// Copies a matched letter. True also for one of another size, which the caller learns from the info.
  bool deliver(State& state) {
    threads::Letter& letter = *state.letter;
    std::uint32_t expected = threads::Letter::posted;
    if (!letter.state.compare_exchange_strong(expected, threads::Letter::copying))
      throw Error(ErrorKind::communication, "recv", "rank " + std::to_string(letter.source) + " gave up its send");
    if (std::int64_t const bytes = std::min(letter.bytes, state.bytes); bytes != 0)
      std::memcpy(state.to, letter.data, static_cast<std::size_t>(bytes));
    state.info = {letter.source, letter.tag, letter.bytes};
    letter.state.store(threads::Letter::delivered, std::memory_order_release);
    return true;
  }
  /// Whether nobody is left who could send.
  bool alone(int from) const noexcept {
    if (!group_->any_departed()) return false;
    if (from >= 0) return group_->departed(from);
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && !group_->departed(r)) return false;
    return size_ > 1;
  }
  [[noreturn]] void throw_departed(char const* operation, int rank) {
    group_->check(operation);
    throw Error(
        ErrorKind::communication, operation,
        (rank < 0 ? "all other ranks have" : "rank " + std::to_string(rank) + " has") +
            " returned from the function of the run without taking part. Every rank must make the matching call");
  }
  void check_departed(State& state) {
    if (!group_->any_departed()) return;
    if (state.type == State::collective) {
      for (int r = 0; r < size_; ++r)
        if (group_->departed(r) && state.phase < 2 &&
            group_->entry(state.sequence, r).arrived.load(std::memory_order_acquire) <= state.sequence)
          throw_departed(comm::name(state.call.kind).data(), r);
    } else if (state.type == State::send) {
      if (group_->departed(state.peer) &&
          state.letter->state.load(std::memory_order_acquire) == threads::Letter::posted)
        throw_departed("send", state.peer);
    } else if (state.letter == nullptr && alone(state.peer)) {
      match_receives();  // its last letter may have come in between
      if (state.letter == nullptr) throw_departed("recv", state.peer);
    }
  }

  // --- Collectives ---

  static std::uint64_t facts_of(comm::Collective const& call) noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(call.kind)} |
           std::uint64_t{static_cast<std::uint8_t>(call.reduction.op)} << 8 |
           std::uint64_t{static_cast<std::uint8_t>(call.dtype)} << 16 |
           std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32;
  }
  /// The most that any rank contributes: the same number on all ranks, which decides whether contributions are inlined.
  std::int64_t contribution_bound(comm::Collective const& call) const noexcept {
    bool const blocks = call.kind == comm::Kind::scatter || call.kind == comm::Kind::reduce_scatter ||
                        call.kind == comm::Kind::all_to_all;
    return call.block_bytes() * (blocks ? size_ : 1);
  }
  std::int64_t contributed(comm::Collective const& call) const noexcept {
    bool const from_root = call.kind == comm::Kind::broadcast || call.kind == comm::Kind::scatter;
    return from_root && rank_ != call.root ? 0 : contribution_bound(call);
  }

  void publish(State const& state) noexcept {
    threads::Entry& own = group_->entry(state.sequence, rank_);
    own.facts = facts_of(state.call);
    own.count = state.call.count;
    if (state.inlined && state.contributed != 0)
      std::memcpy(own.payload, state.call.from, static_cast<std::size_t>(state.contributed));
    own.call = state.call;
    own.arrived.store(state.sequence + 1, std::memory_order_release);
  }

  bool advance(State& state) {
    std::uint64_t const ticket = state.sequence + 1;
    if (state.phase == 0) {
      if (state.sequence >= free_slots_until_) free_slots_until_ = group_->completed_by_all() + threads::Group::slots;
      if (state.sequence >= free_slots_until_) return false;
      publish(state);
      state.phase = 1;
    }
    if (state.phase == 1) {
      for (; state.next < size_; ++state.next)
        if (group_->entry(state.sequence, state.next).arrived.load(std::memory_order_acquire) < ticket) return false;
      compare(state);
      threads::Entry& own = group_->entry(state.sequence, rank_);
      if (state.inlined) {
        work(state);
        return true;
      }
      // Either a rank that gives up sees this mark and waits, or this rank sees the alarm and keeps its hands off.
      own.working.store(ticket, std::memory_order_seq_cst);
      struct Finally {
        threads::Entry& own;
        ~Finally() { own.working.store(0, std::memory_order_release); }
      };
      {
        Finally const finally{own};
        if (group_->broken()) return false;
        work(state);
      }
      own.done.store(ticket, std::memory_order_release);
      state.phase = 2;
      state.next = 0;
    }
    for (; state.next < size_; ++state.next)
      if (group_->entry(state.sequence, state.next).done.load(std::memory_order_acquire) < ticket) return false;
    return true;
  }

  /// All ranks find the same pair: rank 0 and the first that differs from it.
  void compare(State const& state) {
    threads::Entry const& first = group_->entry(state.sequence, 0);
    for (int r = 1; r < size_; ++r) {
      threads::Entry const& other = group_->entry(state.sequence, r);
      if (other.facts == first.facts && other.count == first.count) continue;
      std::string text = "ranks disagree: rank 0 calls " + comm::describe(first.call) + ", rank " + std::to_string(r) +
                         " calls " + comm::describe(other.call) + ". Make the same call on every rank";
      group_->alarm().raise(ErrorKind::communication, text);
      throw Error(ErrorKind::communication, std::string(comm::name(state.call.kind)), std::move(text));
    }
  }

  static void copy(void* to, void const* from, std::int64_t bytes) noexcept {
    if (to != from && bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  std::byte const* source(State const& state, int rank) noexcept {
    threads::Entry const& entry = group_->entry(state.sequence, rank);
    return state.inlined ? entry.payload : static_cast<std::byte const*>(entry.call.from);
  }

  /// This rank's share.
  void work(State& state) {
    comm::Collective const& call = state.call;
    std::int64_t const block = call.block_bytes();
    std::int64_t const own = block * rank_;
    auto* const to = static_cast<std::byte*>(call.to);
    switch (call.kind) {
      case comm::Kind::barrier: break;
      case comm::Kind::broadcast: copy(to, source(state, call.root), block); break;
      case comm::Kind::scatter: copy(to, source(state, call.root) + own, block); break;
      case comm::Kind::gather: case comm::Kind::all_gather:
        if (call.kind == comm::Kind::gather && rank_ != call.root) break;
        for (int r = 0; r < size_; ++r) copy(to + r * block, source(state, r), block);
        break;
      case comm::Kind::all_to_all:
        for (int r = 0; r < size_; ++r) copy(to + r * block, source(state, r) + own, block);
        break;
      case comm::Kind::reduce_scatter: fold(state, own, to, call.count); break;
      case comm::Kind::reduce: case comm::Kind::all_reduce:
        if (!state.inlined) reduce_slice(state);
        else if (call.kind == comm::Kind::all_reduce || rank_ == call.root) fold(state, 0, to, call.count);
        break;
      case comm::Kind::scan: case comm::Kind::exscan: case comm::Kind::gather_v: case comm::Kind::all_gather_v:
      case comm::Kind::scatter_v: case comm::Kind::reduce_scatter_v: case comm::Kind::all_to_all_v:
      case comm::Kind::all_reduce_contributions:
        break;  // derived
    }
  }
  /// All ranks' elements from byte `offset` of their contributions on, combined into `to`.
  void fold(State& state, std::int64_t offset, void* to, std::int64_t count) {
    for (int r = 0; r < size_; ++r) inputs_[static_cast<std::size_t>(r)] = source(state, r) + offset;
    state.call.reduction.fold(state.call.reduction.state, inputs_.data(), size_, to, count);
  }
  /// The slice of a large reduction that belongs to this rank, tile by tile, so that a tile is still in the first-level
  /// cache when it is written to the other outputs. Only the owner touches a slice, hence in place is safe.
  void reduce_slice(State& state) {
    comm::Collective const& call = state.call;
    auto const element = static_cast<std::int64_t>(size_of(call.dtype));
    std::int64_t const line = 64 / element;
    std::int64_t const lines = (call.count + line - 1) / line;
    std::int64_t const begin = std::min(lines * rank_ / size_ * line, call.count);
    std::int64_t const end = std::min(lines * (rank_ + 1) / size_ * line, call.count);
    std::int64_t const tile = tile_bytes / element;
    bool const all = call.kind == comm::Kind::all_reduce;
    int const first = all ? rank_ : call.root;
    for (std::int64_t at = begin; at < end; at += tile) {
      std::int64_t const count = std::min(tile, end - at);
      std::byte* const result = static_cast<std::byte*>(group_->entry(state.sequence, first).call.to) + at * element;
      fold(state, at * element, result, count);
      for (int r = 0; all && r < size_; ++r)
        if (r != rank_)
          copy(static_cast<std::byte*>(group_->entry(state.sequence, r).call.to) + at * element, result,
               count * element);
    }
  }
  static constexpr std::int64_t tile_bytes = 8192;

  Shared<threads::Group> group_;
  int rank_;
  int size_;
  std::uint64_t sequence_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t free_slots_until_ = threads::Group::slots;
  std::uint64_t seen_posts_ = ~std::uint64_t{0};
  List<void const*> inputs_;
  List<Owner<State>> states_;
  List<State*> free_;
  List<State*> active_;
};

static_assert(Backend<Threads>);

}  // namespace tutti
