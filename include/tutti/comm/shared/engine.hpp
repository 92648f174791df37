// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives of ranks that share memory, as state machines that never block. Every rank publishes its call on the
/// board, compares all calls when all have arrived, and does its share on the others' buffers:
///   small     contributions travel in the board itself: one hand-over, no exit barrier
///   direct    all buffers are in reach: one pass, in which a rank combines its slice of all inputs, in rank order, and
///             writes it to all outputs; other collectives pull from the source
///   staged    some buffers are not: their contents pass through staging memory in rounds. A rank puts its
///             contribution there, and finds the result in its place
/// The traffic of the direct path is the lower bound 2 n S for an all-reduce of n ranks and S bytes.

#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/shared/share.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::comm::shared {

/// A rank's end. Used by one thread at a time. A template, so that only programs that use it compile it.
template <class = void>
class BasicEngine {
 public:
  using Call = shared::Call;

  BasicEngine() = default;
  /// `family` is raised when all communicators of a process group fail at once; may be null.
  BasicEngine(Board board, int rank, Alarm* family)
      : board_(board), rank_(rank), size_(board.size()), family_(family), share_(board, rank) {}

  Board const& board() const noexcept { return board_; }
  /// See Contributions. The same on all ranks, before the first call.
  void allow_reading(bool allowed) noexcept { share_.allow_reading(allowed); }
  bool may_read() const noexcept { return share_.may_read(); }
  /// Whether to wake those that wait for this rank (Bell): where ranks take turns at processors.
  void wake_others(bool wakes) noexcept { wakes_ = wakes; }
  /// A rank that waits for what is under way: see Bell. It looks between the two.
  std::uint32_t prepare_sleep() noexcept { return bell().prepare(awaited_ = awaited()); }
  /// Returns at once where that look has found that this rank waits for another one.
  void sleep(std::uint32_t prepared, std::int64_t ns) noexcept {
    awaited() == awaited_ ? bell().sleep(prepared, ns) : bell().stay_awake();
  }
  void stay_awake() noexcept { bell().stay_awake(); }
  /// What messages call the ranks, where a larger communicator counts them otherwise.
  void call_ranks(List<int> names) { names_ = std::move(names); }

  /// Whether `start` takes this call; else it is made of messages, compared here. The same on all ranks.
  bool can(Collective const& call) const noexcept { return share_.can(call); }
  /// All ranks start the same calls in the same order. Does not touch the buffers. With `compares_only` it never does:
  /// complete means that all ranks make this call.
  Call* start(Collective const& call, bool compares_only = false) { return start(call, -1, 0, nullptr, compares_only); }
  /// The same for a caller that looks at the call at once anyhow, `looks` times: true where it is complete by then, as
  /// small ones are; else `rest` is what goes on.
  bool run(Collective const& call, int looks, Call*& rest) {
    if (!share_.posts(call) || !active_.empty() || sequence_ != compared_ || !has_slot(sequence_)) {
      rest = start(call);
      return false;
    }
    if (broken()) check(name(call.kind).data(), call.where);
    reserve();  // before the others see this call
    std::uint64_t const sequence = sequence_++;
    Entry* const entries = board_.entries(sequence);
    share_.post(entries[rank_], call, sequence);
    tell();
    int next = 0;
    for (; looks > 0; --looks) {
      while (next < size_ && entries[next].arrived.load(std::memory_order_acquire) > sequence) ++next;
      if (next < size_) {
        exec::relax();
        continue;
      }
      if (board_.first_that_differs(entries) != 0) break;
      ++compared_;
      std::exception_ptr failure;
      try {
        share_.take_posted(entries, call, sequence);
      } catch (...) {
        failure = std::current_exception();
      }
      board_.status(rank_).completed.store(sequence_, std::memory_order_release);
      if (!failure) return true;
      rest = &make(call, sequence);
      rest->failure = std::move(failure);
      return false;
    }
    rest = &make(call, sequence);
    rest->phase = Call::arriving;
    active_.push_back(rest);
    return false;
  }
  /// What these ranks do of a collective that outlives the call: it is what is compared, and what messages name.
  Call* start(Part const& part, Collective const* part_of, bool compares_only = false) {
    return start(part.call, part.extent, part.result_bytes, part_of, compares_only);
  }

  /// Moves on everything under way, in the order in which it was started.
  void progress() noexcept {
    bool changed = false;
    for (Call* call : active_) {
      try {
        call->complete = advance(*call);
      } catch (...) {
        call->failure = std::current_exception();
      }
      changed |= call->complete || call->failure;
    }
    if (!changed) return;
    active_.erase_if([](Call const* call) { return call->complete || call->failure; });
    board_.status(rank_).completed.store(active_.empty() ? sequence_ : active_.front()->sequence,
                                         std::memory_order_release);
  }
  /// True once complete; the call is then gone. Throws when the communicator fails.
  bool test(Call* call) {
    progress();
    if (call->failure) std::rethrow_exception(call->failure);
    if (call->complete) {
      if (call->call.wire != nullptr && !call->compares_only)
        call->call.wire[static_cast<int>(call->algorithm())].add(call->moved.sent, call->moved.received);
      free_.push_back(call);
      return true;
    }
    if (broken()) check("test", call->whole().where);
    if ((++looks_ & 15u) == 0) check_left(*call);
    return false;
  }
  void check(char const* operation, std::source_location where = std::source_location::current()) const {
    board_.check(rank_, operation, where);
    if (family_ != nullptr) family_->check(operation, where);
  }
  bool broken() const noexcept { return board_.alarm().raised() || (family_ != nullptr && family_->raised()); }

  /// Ends a call that failed. Waits for peers that are at its buffers at this moment; none begins after the alarm.
  /// False when a peer stays at them, because it was killed or stopped there.
  bool abandon(Call* call) noexcept {
    bool safe = true;
    if (!call->complete) {
      board_.alarm().raise(ErrorKind::revoked,
                           concat("rank ", named(rank_), " gave up ", describe(call->whole())));
      exec::Backoff backoff(exec::WaitPolicy{});
      std::int64_t const end = exec::now_ns() + 2'000'000'000;
      for (int r = 0; r < size_; ++r)
        while (board_.entry(call->sequence, r).working.load(std::memory_order_seq_cst) == call->ticket() && safe) {
          backoff.step();
          safe = exec::now_ns() < end;
        }
      active_.erase_if([&](Call const* other) { return other == call; });
    }
    free_.push_back(call);
    return safe;
  }

  /// Who is missing, and where everybody is.
  std::string awaiting(Call const* call) const;
  /// "waits in barrier at app.cpp:12, after 7 collectives"
  std::string whereabouts(int rank) const;
  /// What the others read when they ask where this rank is; empty when it goes on.
  void announce(std::string_view text) noexcept { board_.status(rank_).position.store(text); }

  /// The others need not wait for this rank any more. While an exception passes, its cause will be told in a moment.
  void leave() noexcept {
    bool const failing = std::uncaught_exceptions() > 0;
    board_.status(rank_).left.store(failing ? Status::failing : Status::gone, std::memory_order_release);
  }
  bool any_left() const noexcept { return board_.any_left(); }
  /// This rank has said why it ends. Ranks that merely left, because they were done, have not.
  void report() noexcept { board_.status(rank_).reported.store(1, std::memory_order_release); }
  /// This rank knows that the communicator has failed.
  void hear() noexcept { board_.hear(rank_); }
  bool left(int rank) const noexcept { return board_.left(rank); }
  /// Whether nobody is left who could send what is expected from this rank, or from any for -1.
  bool alone(int from) const noexcept {
    if (!any_left()) return false;
    if (from >= 0) return left(from);
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && !left(r)) return false;
    return size_ > 1;
  }
  /// Of a message that will not come, or that nobody will take. `others`: messages that came instead.
  [[noreturn]] void throw_departed(char const* operation, int rank, std::string const& others = {}) const {
    check(operation);
    throw Error(ErrorKind::communication, operation,
                concat(rank < 0 ? "all other ranks have" : concat("rank ", named(rank), " has"), " left the ",
                       "communicator without taking part", others, ". Every rank must make the matching call"));
  }

 private:
  Call* start(Collective const& call, std::int64_t extent, std::int64_t result_bytes, Collective const* part_of,
              bool compares_only) {
    Collective const& whole = part_of != nullptr ? *part_of : call;
    if (broken()) check(name(whole.kind).data(), whole.where);
    Call& state = make(call, sequence_);
    ++sequence_;
    state.part_of = part_of;
    state.extent = extent;
    state.result_bytes = result_bytes;
    state.compares_only = compares_only;
    state.small = compares_only || share_.is_small(state);
    active_.push_back(&state);
    return &state;
  }
  void reserve() {
    if (!free_.empty()) return;
    calls_.push_back(make_owner<Call>());
    free_.push_back(calls_.back().get());
    active_.reserve(calls_.size());
  }
  Call& make(Collective const& call, std::uint64_t sequence) {
    reserve();
    Call& state = *free_.back();
    free_.pop_back();
    state.~Call();  // made anew in its place: a temporary to copy from takes as long as the exchange of a cache line
    ::new (static_cast<void*>(&state)) Call(call);
    state.sequence = sequence;
    state.small = true;
    return state;
  }

  Bell& bell() const noexcept { return board_.status(rank_).bell; }
  void tell() const noexcept { return wakes_ ? ring() : void(); }
  /// Wakes those that wait for what this rank has just made visible.
  [[gnu::noinline]] void ring() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (int r = 0; r < size_; ++r) board_.status(r).bell.ring_as(rank_);
  }
  /// The rank that the first call under way waits for.
  int awaited() const noexcept {
    if (active_.empty() || active_.front()->phase == Call::unpublished) return Bell::messages;
    Call const& c = *active_.front();
    return c.phase == Call::consuming && rooted_source(c.call.kind) ? c.call.root : c.next;
  }

  using Word = std::atomic<std::uint64_t> Status::*;
  std::string named(int rank) const;

  /// Whether all ranks' words have come as far as `value`. Remembers whom it has seen.
  bool reached(Call& c, Word word, std::uint64_t value) const noexcept {
    for (; c.next < size_; ++c.next)
      if ((board_.status(c.next).*word).load(std::memory_order_acquire) < value) return false;
    c.next = 0;
    return true;
  }

  bool has_slot(std::uint64_t sequence) noexcept {
    if (sequence >= free_slots_until_) free_slots_until_ = board_.completed_by_all() + Board::slots;
    return sequence < free_slots_until_;
  }
  bool advance(Call& c) {
    std::uint64_t const ticket = c.ticket();
    for (;;) switch (c.phase) {
        case Call::unpublished:
          if (!has_slot(c.sequence)) return false;
          share_.prepare(c);
          fill_ahead(c);
          share_.publish(c);
          tell();
          c.phase = Call::arriving;
          break;
        case Call::arriving:
          // In order, although a later call's last arrival may be seen first: ranks must share staging memory alike.
          if (c.sequence != compared_) return false;
          for (Entry const* const entries = board_.entries(c.sequence); c.next < size_; ++c.next)
            if (entries[c.next].arrived.load(std::memory_order_acquire) < ticket) return false;
          c.next = 0;
          if (!agree(c)) {
            board_.status(rank_).description.store(describe(c.whole()));
            board_.status(rank_).described.store(ticket, std::memory_order_release);
            c.give_up_at = exec::now_ns() + 1'000'000'000;
            c.phase = Call::disagreeing;
            break;
          }
          ++compared_;
          if (c.small) {
            share_.consume(c, 0, c.length);
            return true;
          }
          share_.choose(c);
          if (c.phase != Call::filling) {
            if (!guarded(c, 0, c.length)) return false;
            board_.entry(c.sequence, rank_).done.store(ticket, std::memory_order_release);
            tell();
          }
          break;
        case Call::disagreeing:
          if (!explain(c)) return false;
          break;
        case Call::sharing:
          for (; c.next < size_; ++c.next)
            if (board_.entry(c.sequence, c.next).done.load(std::memory_order_acquire) < ticket) return false;
          return true;
        case Call::filling:  // the staging memory of two rounds ago must be free again
          if (staging_ != &c) {
            if (staging_ != nullptr) return false;
            staging_ = &c;
            c.round = ++round_;
          }
          if (!std::exchange(c.filled, false)) {
            if (c.round > 2 && !reached(c, &Status::consumed, c.round - 2)) return false;
            share_.fill(c);
            board_.status(rank_).filled.store(c.round, std::memory_order_release);
            tell();
          }
          c.phase = Call::consuming;
          break;
        case Call::consuming:
          if (rooted_source(c.call.kind) ? !share_.root_filled(c) : !reached(c, &Status::filled, c.round))
            return false;
          if (!guarded(c, c.at, c.round_count())) return false;
          board_.status(rank_).consumed.store(c.round, std::memory_order_release);
          tell();
          c.phase = Call::draining;
          break;
        case Call::draining:
          if (c.drains) {
            if (!reached(c, &Status::consumed, c.round)) return false;
            share_.drain(c);
          }
          c.at += c.chunk;
          if (c.at < c.length) c.round = ++round_;
          c.phase = c.at < c.length ? Call::filling : Call::closing;
          break;
        case Call::closing:  // peers may still be at this rank's buffers, where they reach them
          if (exposes(c) && !reached(c, &Status::consumed, c.round)) return false;
          staging_ = nullptr;
          return true;
      }
  }

  /// The first round of a call that will be staged, so that the others find it when they see that this rank is there.
  /// All ranks number rounds in the order of their calls: only where no earlier call can still begin one.
  void fill_ahead(Call& c) noexcept {
    if (staging_ != nullptr || c.sequence != compared_ || !share_.fills_surely(c)) return;
    staging_ = &c;
    c.round = ++round_;
    if (c.round > 2 && !reached(c, &Status::consumed, c.round - 2)) {
      c.next = 0;
      return;  // in its turn, then
    }
    share_.divide(c);
    share_.fill(c);
    board_.status(rank_).filled.store(c.round, std::memory_order_release);
    c.filled = true;
  }
  /// Whether peers work on a buffer of this rank. Staging memory they may still read when it is done: whoever fills it
  /// again looks for that.
  bool exposes(Call const& c) const noexcept {
    Entry const& own = board_.entry(c.sequence, rank_);
    return own.from != 0 || own.to != 0;
  }
  /// Either a rank that gives up sees this mark and waits, or this rank sees the alarm and keeps its hands off.
  bool guarded(Call& c, std::int64_t at, std::int64_t count) {
    struct Mark {
      std::atomic<std::uint64_t>& working;
      ~Mark() { working.store(0, std::memory_order_release); }
    };
    Mark const mark{board_.entry(c.sequence, rank_).working};
    mark.working.store(c.ticket(), std::memory_order_seq_cst);
    if (broken()) return false;
    share_.consume(c, at, count);
    return true;
  }
  /// All ranks find the same two that disagree.
  bool agree(Call& c) const noexcept {
    c.other = board_.first_that_differs(board_.entries(c.sequence));
    if (c.other != 0) return false;
    return c.compares_only || !has_counts(c.call.kind) || share_.measure(c);
  }
  /// Waits a moment for the two parties to have written down what they call, and fails.
  bool explain(Call& c);
  /// Nobody waits for a rank that has left or died.
  void check_left(Call& c) const;

  Board board_;
  int rank_ = 0;
  int size_ = 0;
  Alarm* family_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t compared_ = 0;  // of the next call to leave `arriving`
  std::uint64_t free_slots_until_ = Board::slots;
  std::uint64_t round_ = 0;
  std::uint32_t looks_ = 0;
  bool wakes_ = false;
  int awaited_ = Bell::messages;  // as `prepare_sleep` has told
  Call* staging_ = nullptr;
  Share share_;
  List<int> names_;
  List<Owner<Call>> calls_;
  List<Call*> free_;
  List<Call*> active_;
};
using Engine = BasicEngine<>;

}  // namespace tutti::comm::shared

// What follows belongs to the class.
#include <tutti/comm/shared/engine_failure.hpp>
