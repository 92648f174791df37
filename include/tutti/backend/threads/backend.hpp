// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Threads`: ranks are threads of one process and work on each other's memory. Collectives are comm/shared's; messages
/// that are small travel through the receiver's ring, others as letters, of which large ones are copied once, by the
/// receiver, out of the sender's buffer. Above 400 lines: one class.

#include <tutti/core/concat.hpp>
#include <tutti/backend/threads/group.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// Members are templates, so that only programs that use them compile them (ADR 0004).
class Threads {
  struct State;

 public:
  using Device = Cpu;

  class Operation {
   public:
    Operation() = default;
    Operation(Operation&& other) noexcept { *this = static_cast<Operation&&>(other); }
    Operation& operator=(Operation&& other) noexcept {
      auto const exchange = [](auto& mine, auto& its) {
        auto const before = mine;
        mine = its;
        its = before;
      };
      exchange(call_, other.call_);
      exchange(state_, other.state_);
      info_ = other.info_;
      return *this;
    }

   private:
    friend Threads;
    explicit Operation(comm::shared::Engine::Call* call) noexcept : call_(call) {}
    explicit Operation(State* state) noexcept : state_(state) {}
    comm::shared::Engine::Call* call_ = nullptr;
    State* state_ = nullptr;
    MessageInfo info_;
  };
  using Match = Shared<threads::Letter>;

  static constexpr bool provides(comm::Kind, DType, Operator) noexcept { return true; }
  template <class = void>
  bool takes(comm::Collective const& call) const noexcept { return engine_.can(call); }
  static constexpr bool scatters_in_place() noexcept { return true; }

  template <class = void>
  Threads(Shared<threads::Group> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(group_->size()),
        engine_(group_->board(), rank, &group_->world().alarm()) {}
  Threads(Threads&&) noexcept = default;
  Threads& operator=(Threads&& other) noexcept {
    leave();
    group_ = std::move(other.group_);
    rank_ = other.rank_;
    size_ = other.size_;
    splits_ = other.splits_;
    engine_ = std::move(other.engine_);
    states_ = std::move(other.states_);
    free_ = std::move(other.free_);
    active_ = std::move(other.active_);
    return *this;
  }
  ~Threads() { leave(); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int node() const noexcept { return 0; }
  int local_rank() const noexcept { return rank_; }
  int local_size() const noexcept { return size_; }
  exec::WaitPolicy wait_policy() const noexcept { return group_->world().policy(); }

  /// See comm::SharesBlocks.
  template <class = void>
  Storage<Cpu> share(std::size_t bytes, std::uint64_t& handle) {
    void* const memory = Cpu{}.allocate(comm::shared::Holders::total_bytes(bytes));
    comm::shared::Holders::create(memory, bytes, size_);
    handle = reinterpret_cast<std::uintptr_t>(memory);
    return threads::hold(memory, bytes);
  }
  template <class = void>
  Storage<Cpu> adopt(std::uint64_t handle, std::size_t bytes) const {
    return threads::hold(reinterpret_cast<void*>(handle), bytes);
  }
  static constexpr bool shares_memory() noexcept { return true; }

  template <class = void>
  Operation start(comm::Collective const& call) { return Operation(engine_.start(call)); }
  template <class = void>
  bool run(comm::Collective const& call, int looks, Operation& rest) {
    return engine_.run(call, looks, rest.call_);
  }
  static constexpr bool compares() noexcept { return true; }
  template <class = void>
  Operation start_comparison(comm::Collective const& call) { return Operation(engine_.start(call, true)); }

  template <class = void>
  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    engine_.check("send");
    threads::Mailbox& box = group_->mailbox(to);
    if (bytes <= comm::shared::MessageSlot::inline_bytes && box.late_count.load(std::memory_order_acquire) == 0) {
      std::uint64_t const number = box.ring.claim();
      if (number != comm::shared::MessageRing::full) {
        comm::shared::MessageSlot& slot = box.ring.slot(number);
        slot.bytes = bytes;
        slot.source = rank_;
        slot.tag = tag;
        slot.dtype = dtype;
        slot.channel = channel;
        if (bytes != 0) std::memcpy(slot.contents, from, static_cast<std::size_t>(bytes));
        box.ring.commit(number);
        return {};
      }
    }
    auto letter = make_shared_owner<threads::Letter>();
    letter->source = rank_;
    letter->tag = tag;
    letter->channel = channel;
    letter->bytes = bytes;
    letter->dtype = dtype;
    letter->data = from;
    bool const eager = bytes <= eager_bytes;
    if (eager) letter->keep(from);
    {
      threads::Guard const guard(box.mutex);
      box.late.push_back({letter, box.ring.claimed()});
      box.late_count.store(static_cast<std::uint32_t>(box.late.size()), std::memory_order_release);
    }
    if (eager) return {};
    State& state = take(State::send);
    state.letter = std::move(letter);
    state.peer = to;
    return Operation(&state);
  }
  template <class = void>
  Operation start_recv(void* to, std::int64_t bytes, DType, int from, int tag, comm::Channel channel) {
    engine_.check("recv");
    State& state = take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = from;
    state.info = {from, tag, 0};
    state.channel = channel;
    state.letter = find(from, tag, channel);
    return Operation(&state);
  }
  template <class = void>
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    engine_.check("recv");
    State& state = take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = match->source;
    state.letter = std::move(match);
    return Operation(&state);
  }
  template <class = void>
  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    engine_.check("probe");
    bool const gone = engine_.alone(from);
    bool const all_here = look();  // receives that were started earlier come first
    match = find(from, tag, comm::Channel::user);
    if (match == nullptr) {
      engine_.check("probe");
      if (gone && all_here) engine_.throw_departed("probe", from, comm::messages_there(unreceived()));
      return false;
    }
    info = info_of(*match);
    return true;
  }

  template <class = void>
  bool test(Operation& operation) {
    if (operation.call_ != nullptr) {
      if (!active_.empty()) progress();
      if (!engine_.test(operation.call_)) return false;
      operation.call_ = nullptr;
      return true;
    }
    if (operation.state_ == nullptr) return true;
    progress();
    if (operation.state_->complete) {
      operation.info_ = operation.state_->info;
      recycle(operation);
      return true;
    }
    engine_.progress();
    engine_.check("test");
    check_departed(*operation.state_);
    return false;
  }
  MessageInfo received(Operation const& operation) const noexcept { return operation.info_; }

  /// Waits for peers that are copying at this moment; none begins after the group was revoked.
  template <class = void>
  bool abandon(Operation& operation) noexcept {
    if (operation.call_ != nullptr) {
      auto* const call = operation.call_;
      operation.call_ = nullptr;
      return engine_.abandon(call);
    }
    State* const state = operation.state_;
    if (state == nullptr) return true;
    withdraw(operation);
    active_.erase_if([&](State const* other) { return other == state; });
    recycle(operation);
    return true;
  }

  /// See comm/concepts.hpp.
  template <class = void>
  void withdraw(Operation& operation) noexcept {
    State* const state = operation.state_;
    if (state == nullptr || state->complete || state->type != State::send) return;
    exec::Backoff backoff(wait_policy());
    std::uint32_t expected = threads::Letter::posted;
    if (!state->letter->state.compare_exchange_strong(expected, threads::Letter::withdrawn))
      while (state->letter->state.load(std::memory_order_acquire) == threads::Letter::copying) backoff.step();
  }
  /// See comm/concepts.hpp.
  template <class = void>
  bool cancel(Operation& operation) noexcept {
    if (operation.state_ != nullptr) progress();  // a letter that is there is delivered
    return operation.state_ != nullptr && !operation.state_->complete && abandon(operation);
  }
  template <class = void>
  std::string awaiting(Operation const& operation) const {
    if (operation.call_ != nullptr) return engine_.awaiting(operation.call_);
    State const* const state = operation.state_;
    if (state == nullptr) return {};
    if (state->type == State::send)
      return comm::not_received(state->peer, state->letter->tag) + whereabouts(state->peer);
    return comm::no_message({state->peer, state->info.tag, 0}) + whereabouts(state->peer);
  }
  /// "; rank 2 waits in barrier at app.cpp:12, ..."
  template <class = void>
  std::string whereabouts(int rank) const {
    return rank < 0 ? std::string() : concat("; rank ", rank, " ", engine_.whereabouts(rank));
  }
  template <class = void>
  List<MessageInfo> unreceived() const {
    List<MessageInfo> found;
    threads::Mailbox& box = group_->mailbox(rank_);
    auto const note = [&](threads::Letter const& letter) {
      if (letter.channel == comm::Channel::user && letter.state.load() == threads::Letter::posted)
        found.push_back(info_of(letter));
    };
    for (auto const& letter : box.waiting) note(*letter);
    box.ring.visit([&](comm::shared::MessageSlot const& slot) {
      if (slot.channel == comm::Channel::user) found.push_back(info_of(slot));
    });
    threads::Guard const guard(box.mutex);
    for (auto const& late : box.late) note(*late.letter);
    return found;
  }
  template <class = void>
  void announce(std::string_view text, std::uint64_t) noexcept { engine_.announce(text); }
  void announce_elsewhere(std::string_view text) noexcept { engine_.announce(text); }

  template <class = void>
  void check_alive(char const* operation) const { engine_.check(operation); }
  template <class = void>
  void revoke(ErrorKind kind, std::string text) noexcept { engine_.board().alarm().raise(kind, text); }

  template <class = void>
  Threads split(int color, int, List<int> const& members) {
    int own = 0;
    while (members[static_cast<std::size_t>(own)] != rank_) ++own;
    return Threads(group_->child(splits_++, color, static_cast<int>(members.size())), own);
  }

  static constexpr std::string_view name = "threads";
  /// See comm/factory.hpp.
  template <class = void>
  static comm::BackendInfo info() {
    return {.name = std::string(name), .priority = 10, .text = "ranks are threads of this process, --ranks N of them"};
  }
  /// See tutti::launch; defined in run.hpp.
  template <class F>
  static int launch(int argc, char** argv, F& f, std::source_location where = std::source_location::current());

 private:
  static constexpr std::int64_t eager_bytes = 4096;

  struct State {
    enum Type : std::uint8_t { send, receive };
    Type type = send;
    bool complete = false;
    Shared<threads::Letter> letter;
    void* to = nullptr;
    std::int64_t bytes = 0;
    int peer = 0;
    comm::Channel channel = comm::Channel::user;
    MessageInfo info;
  };

  template <class = void>
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
    active_.push_back(&state);
    return state;
  }
  template <class = void>
  void recycle(Operation& operation) noexcept {
    operation.state_->letter = nullptr;
    free_.push_back(operation.state_);
    operation.state_ = nullptr;
  }

  /// Moves on all messages in flight, in the order in which they were started.
  template <class = void>
  void progress() {
    look();
    bool changed = false;
    for (State* state : active_) {
      changed |= state->complete;
      if (state->complete || state->letter == nullptr) continue;
      state->complete = state->type == State::send
                            ? state->letter->state.load(std::memory_order_acquire) == threads::Letter::delivered
                            : deliver(*state);
      changed |= state->complete;
    }
    if (changed) active_.erase_if([](State const* state) { return state->complete; });
  }
  template <class = void>
  void leave() noexcept {
    if (group_ != nullptr) engine_.leave();
  }

  // --- Messages ---

  /// Of a letter, or of what is in a slot.
  template <class Envelope>
  static MessageInfo info_of(Envelope const& envelope) noexcept {
    return {envelope.source, envelope.tag, envelope.bytes, true, envelope.dtype};
  }
  template <class Envelope>
  static bool fits(Envelope const& envelope, int from, int tag, comm::Channel channel) noexcept {
    return envelope.channel == channel && (from < 0 || envelope.source == from) && (tag < 0 || envelope.tag == tag);
  }
  /// Takes what waits.
  template <class = void>
  Shared<threads::Letter> find(int from, int tag, comm::Channel channel) {
    List<Shared<threads::Letter>>& letters = group_->mailbox(rank_).waiting;
    Shared<threads::Letter> found;
    for (std::size_t i = 0; i < letters.size();) {
      threads::Letter const& letter = *letters[i];
      bool const withdrawn = letter.state.load(std::memory_order_relaxed) == threads::Letter::withdrawn;
      bool const wanted = !withdrawn && fits(letter, from, tag, channel);
      if (wanted) found = letters[i];
      if (wanted || withdrawn) letters.erase(i);
      else ++i;
      if (wanted) break;
    }
    return found;
  }
  /// The receive that gets a message: of those that fit, the one that was started first; null when there is none.
  template <class Envelope>
  State* receiver_of(Envelope const& envelope) noexcept {
    for (State* state : active_)
      if (state->type == State::receive && !state->complete && state->letter == nullptr &&
          fits(envelope, state->peer, state->info.tag, state->channel))
        return state;
    return nullptr;
  }
  /// Takes in what has come since the last time. False when something is left that cannot be taken yet, because another
  /// rank is about to finish what it wrote before it.
  template <class = void>
  bool look() {
    threads::Mailbox& box = group_->mailbox(rank_);
    while (comm::shared::MessageSlot const* const slot = box.ring.next()) {
      if (State* const state = receiver_of(*slot)) {
        if (std::int64_t const bytes = std::min(slot->bytes, state->bytes); bytes != 0)
          std::memcpy(state->to, slot->contents, static_cast<std::size_t>(bytes));
        state->info = info_of(*slot);
        state->complete = true;
      } else {
        set_aside(*slot);
      }
      box.ring.pop();
    }
    return box.late_count.load(std::memory_order_acquire) == 0 || take_late(box);
  }
  template <class = void>
  void set_aside(comm::shared::MessageSlot const& slot) {
    auto letter = make_shared_owner<threads::Letter>();
    letter->source = slot.source;
    letter->tag = slot.tag;
    letter->channel = slot.channel;
    letter->bytes = slot.bytes;
    letter->dtype = slot.dtype;
    letter->keep(slot.contents);
    group_->mailbox(rank_).waiting.push_back(std::move(letter));
  }
  template <class = void>
  bool take_late(threads::Mailbox& box) {
    threads::Guard const guard(box.mutex);
    std::size_t taken = 0;
    for (; taken < box.late.size() && box.late[taken].after <= box.ring.taken(); ++taken) {
      Shared<threads::Letter>& letter = box.late[taken].letter;
      if (letter->state.load(std::memory_order_relaxed) == threads::Letter::withdrawn) continue;
      if (State* const state = receiver_of(*letter)) state->letter = std::move(letter);
      else box.waiting.push_back(std::move(letter));
    }
    std::size_t index = 0;
    box.late.erase_if([&](threads::Mailbox::Late const&) { return index++ < taken; });
    box.late_count.store(static_cast<std::uint32_t>(box.late.size()), std::memory_order_release);
    return box.late.empty();
  }
  /// Copies a matched letter. True also for one of another size, which the caller learns from the info.
  template <class = void>
  bool deliver(State& state) {
    threads::Letter& letter = *state.letter;
    std::uint32_t expected = threads::Letter::posted;
    if (!letter.state.compare_exchange_strong(expected, threads::Letter::copying))
      throw Error(ErrorKind::communication, "recv", concat("rank ", letter.source, " gave up its send"));
    if (std::int64_t const bytes = std::min(letter.bytes, state.bytes); bytes != 0)
      std::memcpy(state.to, letter.data, static_cast<std::size_t>(bytes));
    state.info = info_of(letter);
    letter.state.store(threads::Letter::delivered, std::memory_order_release);
    return true;
  }
  template <class = void>
  void check_departed(State& state) {
    if (!engine_.any_left()) return;
    if (state.type == State::send) {
      if (engine_.left(state.peer) && state.letter->state.load(std::memory_order_acquire) == threads::Letter::posted)
        engine_.throw_departed("send", state.peer);
    } else if (state.letter == nullptr && engine_.alone(state.peer)) {
      bool const all_here = look();  // its last message may have come in between
      if (all_here && !state.complete && state.letter == nullptr)
        engine_.throw_departed("recv", state.peer, comm::messages_there(unreceived()));
    }
  }

  Shared<threads::Group> group_;
  int rank_;
  int size_;
  std::uint64_t splits_ = 0;
  comm::shared::Engine engine_;
  List<Owner<State>> states_;
  List<State*> free_;
  List<State*> active_;
};

}  // namespace tutti
