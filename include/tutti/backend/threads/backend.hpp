// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Threads`: ranks are threads of one process and work on each other's memory. Collectives are comm/shared's; messages
/// that are small travel through the receiver's ring, others as letters, of which large ones are copied once, by the
/// receiver, out of the sender's buffer.

#include <tutti/core/concat.hpp>
#include <tutti/backend/threads/group.hpp>
#include <tutti/backend/threads/mail.hpp>
#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// Members are templates, so that only programs that use them compile them (ADR 0004).
class Threads {
  using State = threads::MessageState;

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
        engine_(group_->board(), rank, &group_->world().alarm()), mail_(group_->mailbox(rank)) {}
  Threads(Threads&&) noexcept = default;
  Threads& operator=(Threads&& other) noexcept {
    leave();
    group_ = std::move(other.group_);
    rank_ = other.rank_;
    size_ = other.size_;
    splits_ = other.splits_;
    engine_ = std::move(other.engine_);
    mail_ = std::move(other.mail_);
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

  bool send_at_once(void const* from, std::int64_t bytes, DType dtype, int to, int tag) noexcept {
    return !engine_.broken() &&
           threads::Mail::send_at_once(group_->mailbox(to), {rank_, tag, comm::Channel::user, dtype, from, bytes});
  }
  bool receive_at_once(void* to, std::int64_t bytes, DType dtype, int from, int tag, MessageInfo& info) noexcept {
    return !engine_.broken() && mail_.receive_at_once(to, bytes, dtype, from, tag, info);
  }
  template <class = void>
  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    engine_.check("send");
    State* const state = mail_.send(group_->mailbox(to), {rank_, tag, channel, dtype, from, bytes});
    if (state == nullptr) return {};
    state->peer = to;
    return Operation(state);
  }
  template <class = void>
  Operation start_recv(void* to, std::int64_t bytes, DType, int from, int tag, comm::Channel channel) {
    engine_.check("recv");
    State& state = mail_.take(State::receive);
    state.to = to;
    state.bytes = bytes;
    state.peer = from;
    state.info = {from, tag, 0};
    state.channel = channel;
    state.letter = mail_.find(from, tag, channel);
    return Operation(&state);
  }
  template <class = void>
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    engine_.check("recv");
    State& state = mail_.take(State::receive);
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
    bool const all_here = mail_.look();  // receives that were started earlier come first
    match = mail_.find(from, tag, comm::Channel::user);
    if (match == nullptr) {
      engine_.check("probe");
      if (gone && all_here) engine_.throw_departed("probe", from, comm::messages_there(unreceived()));
      return false;
    }
    info = mail_.info_of(*match);
    return true;
  }

  template <class = void>
  bool test(Operation& operation) {
    if (operation.call_ != nullptr) {
      if (mail_.busy()) mail_.progress();
      if (!engine_.test(operation.call_)) return false;
      operation.call_ = nullptr;
      return true;
    }
    if (operation.state_ == nullptr) return true;
    mail_.progress();
    if (operation.state_->complete) {
      operation.info_ = operation.state_->info;
      mail_.recycle(*std::exchange(operation.state_, nullptr));
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
    mail_.give_up(*std::exchange(operation.state_, nullptr));
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
    if (operation.state_ != nullptr) mail_.progress();  // a letter that is there is delivered
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
  List<MessageInfo> unreceived() const { return mail_.unreceived(); }
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
  template <class = void>
  void leave() noexcept {
    if (group_ != nullptr) engine_.leave();
  }

  template <class = void>
  void check_departed(State& state) {
    if (!engine_.any_left()) return;
    if (state.type == State::send) {
      if (engine_.left(state.peer) && state.letter->state.load(std::memory_order_acquire) == threads::Letter::posted)
        engine_.throw_departed("send", state.peer);
    } else if (state.letter == nullptr && engine_.alone(state.peer)) {
      bool const all_here = mail_.look();  // its last message may have come in between
      if (all_here && !state.complete && state.letter == nullptr)
        engine_.throw_departed("recv", state.peer, comm::messages_there(unreceived()));
    }
  }

  Shared<threads::Group> group_;
  int rank_;
  int size_;
  std::uint64_t splits_ = 0;
  comm::shared::Engine engine_;
  threads::Mail mail_;
};

static_assert(Backend<Threads> && comm::TakesCalls<Threads> && comm::RunsAtOnce<Threads> &&
              comm::ComparesCalls<Threads> && comm::CancelsReceives<Threads> && comm::WithdrawsSends<Threads> &&
              comm::ListsUnreceived<Threads> && comm::PassesAtOnce<Threads> && comm::AnnouncesPlaces<Threads> &&
              comm::AnnouncesElsewhere<Threads> && comm::KnowsWhereabouts<Threads> && comm::AnnouncesFailure<Threads> &&
              comm::SharesBlocks<Threads>);

}  // namespace tutti
