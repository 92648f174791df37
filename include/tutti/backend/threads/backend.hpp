// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Threads`: ranks are threads of one process and work on each other's memory. Collectives are comm/shared's; messages
/// are letters: small ones carry a copy, large ones are copied once, by the receiver, out of the sender's buffer. Above
/// 400 lines: one class.

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
    seen_posts_ = other.seen_posts_;
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
    auto letter = make_shared_owner<threads::Letter>();
    letter->source = rank_;
    letter->tag = tag;
    letter->channel = channel;
    letter->bytes = bytes;
    letter->dtype = dtype;
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
  template <class = void>
  Operation start_recv(void* to, std::int64_t bytes, DType, int from, int tag, comm::Channel channel) {
    engine_.check("recv");
    State& state = take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = from;
    state.info = {from, tag, 0};
    state.channel = channel;
    seen_posts_ = ~std::uint64_t{0};  // letters that came before this receive was started are looked at again
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
    match_receives();  // receives that were started earlier come first
    bool const gone = engine_.alone(from);
    {
      threads::Mailbox& box = group_->mailbox(rank_);
      threads::Guard const guard(box.mutex);
      match = find(box, from, tag, comm::Channel::user);
    }
    if (match == nullptr) {
      engine_.check("probe");
      if (gone) engine_.throw_departed("probe", from, comm::messages_there(unreceived()));
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
    if (!state->complete) {
      if (state->type == State::send) {
        exec::Backoff backoff(wait_policy());
        std::uint32_t expected = threads::Letter::posted;
        if (!state->letter->state.compare_exchange_strong(expected, threads::Letter::withdrawn))
          while (state->letter->state.load(std::memory_order_acquire) == threads::Letter::copying) backoff.step();
      }
      active_.erase_if([&](State const* other) { return other == state; });
    }
    recycle(operation);
    return true;
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
      return concat("rank ", state->peer, " has not received the message", whereabouts(state->peer));
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
    threads::Guard const guard(box.mutex);
    for (auto const& letter : box.letters)
      if (letter->channel == comm::Channel::user && letter->state.load() == threads::Letter::posted)
        found.push_back(info_of(*letter));
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
  static int launch(int argc, char** argv, F& f);

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
    match_receives();
    bool changed = false;
    for (State* state : active_) {
      if (state->letter == nullptr) continue;
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

  static MessageInfo info_of(threads::Letter const& letter) noexcept {
    return {letter.source, letter.tag, letter.bytes, true, letter.dtype};
  }
  template <class = void>
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
  template <class = void>
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
      match_receives();  // its last letter may have come in between
      if (state.letter == nullptr) engine_.throw_departed("recv", state.peer, comm::messages_there(unreceived()));
    }
  }

  Shared<threads::Group> group_;
  int rank_;
  int size_;
  std::uint64_t splits_ = 0;
  std::uint64_t seen_posts_ = ~std::uint64_t{0};
  comm::shared::Engine engine_;
  List<Owner<State>> states_;
  List<State*> free_;
  List<State*> active_;
};

}  // namespace tutti
