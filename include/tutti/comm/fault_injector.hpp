// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `FaultInjector<Backend>`: a backend that goes wrong by plan, to test what a program does then.

#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/decorator.hpp>
#include <tutti/comm/fault_plan.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/tensor/storage.hpp>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

namespace tutti {

/// The operations of a rank are its calls of start, start_send and start_recv, on this communicator and on those that
/// were split from it; probes do not count. So faults repeat exactly where a rank starts its operations in the same
/// order, which several derived reductions in flight at once do not promise.
///
/// A drop makes ranks wait, and never makes the wrong data look right. A transport keeps the order of what it carries;
/// hence with a collective all later collectives of this communicator are lost, and with a message all later ones of
/// the same peer, tag and channel. To its rank a dropped send looks complete; everything else that is dropped ends at
/// the deadline or when another rank revokes the communicator.
template <Backend B>
class FaultInjector : public comm::Decorator<B> {
  using Base = comm::Decorator<B>;
  using Base::inner_;

 public:
  using typename Base::Device;
  using typename Base::Match;

  class Operation {
   public:
    Operation() = default;
    Operation(Operation&&) noexcept = default;
    Operation& operator=(Operation&&) noexcept = default;

   private:
    friend FaultInjector;
    explicit Operation(typename B::Operation inner) : inner_(std::move(inner)) {}
    typename B::Operation inner_;
    Storage<Device> sent_;  // what is sent instead of the caller's buffer
    std::string lost_;      // what was dropped
  };

  /// Errors     invalid_argument, see FaultPlan.
  FaultInjector(B inner, FaultPlan plan) : Base(std::move(inner)), state_(make_shared_owner<State>()) {
    plan.check();
    state_->plan = std::move(plan);
    state_->rank = this->rank();
  }

  /// What has gone wrong on this rank so far. As `FaultPlan::faults` it makes the same happen again.
  List<PlannedFault> injected() const {
    Guard const guard(state_->mutex);
    return state_->injected;
  }
  /// How many operations this rank has started.
  std::int64_t operations() const noexcept { return state_->next.load(); }

  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    std::int64_t number;
    Fault const fault = next(number, bytes);
    if (lose(fault, {to, tag, channel, true})) return {};
    if (fault != Fault::corrupt) return Operation(inner_.start_send(from, bytes, dtype, to, tag, channel));
    Operation operation;
    operation.sent_ = corrupted(from, bytes, number);
    operation.inner_ = inner_.start_send(operation.sent_.data(), bytes, dtype, to, tag, channel);
    return operation;
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    std::int64_t number;
    Fault const fault = next(number, 0);
    if (lose(fault, {from, tag, channel, false})) return lost("a receive");
    return Operation(inner_.start_recv(to, bytes, dtype, from, tag, channel));
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    std::int64_t number;
    if (next(number, 0) == Fault::drop) return lost("the receive of a probed message");
    return Operation(inner_.start_recv(match, to, bytes));
  }
  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    check_alive();
    if (is_lost({from, tag, comm::Channel::user, false})) return false;
    return inner_.try_match(from, tag, match, info);
  }
  Operation start(comm::Collective const& call) {
    std::int64_t number;
    Fault const fault = next(number, contributed_bytes(call, this->size()));
    absent_ = absent_ || fault == Fault::drop;
    if (absent_) return lost(describe(call));
    if (fault != Fault::corrupt) return Operation(inner_.start(call));
    Operation operation;
    operation.sent_ = corrupted(call.from, contributed_bytes(call, this->size()), number);
    comm::Collective changed = call;
    changed.from = operation.sent_.data();
    if (call.kind == comm::Kind::broadcast) changed.to = operation.sent_.data();  // the root's buffers are one
    operation.inner_ = inner_.start(changed);
    return operation;
  }

  /// A part of the derived collective whose messages follow: it has no number, and a rank that is absent is absent.
  Operation start_comparison(comm::Collective const& call)
    requires comm::ComparesCalls<B>
  {
    check_alive();
    if (absent_) return lost(describe(call));
    return Operation(inner_.start_comparison(call));
  }

  bool test(Operation& operation) {
    check_alive();
    return inner_.test(operation.inner_) && operation.lost_.empty();
  }
  MessageInfo received(Operation const& operation) const { return inner_.received(operation.inner_); }
  bool abandon(Operation& operation) noexcept {
    if (inner_.abandon(operation.inner_)) return true;
    comm::keep_forever(std::move(operation.sent_));
    return false;
  }
  /// A receive that was dropped takes nothing any more.
  bool cancel(Operation& operation) noexcept
    requires comm::CancelsReceives<B>
  {
    return !operation.lost_.empty() || inner_.cancel(operation.inner_);
  }
  void withdraw(Operation& operation) noexcept
    requires comm::WithdrawsSends<B>
  {
    inner_.withdraw(operation.inner_);
  }
  std::string awaiting(Operation const& operation) const {
    if (operation.lost_.empty()) return inner_.awaiting(operation.inner_);
    return "the fault plan has dropped " + operation.lost_ + ", or one before it, on this rank";
  }

  FaultInjector split(int color, int key, List<int> const& members) {
    check_alive();
    return FaultInjector(inner_.split(color, key, members), state_);
  }

 private:
  /// Of one rank: shared by a communicator and those split from it.
  struct State {
    FaultPlan plan;
    int rank = 0;
    std::atomic<std::int64_t> next{0};
    std::atomic<std::int64_t> killed_at{-1};
    Mutex mutex;
    List<PlannedFault> injected;
  };
  /// Messages that must not overtake each other; of a receive with wildcards.
  struct Stream {
    int peer;
    int tag;
    comm::Channel channel;
    bool sends;
  };

  FaultInjector(B inner, Shared<State> state) : Base(std::move(inner)), state_(std::move(state)) {}

  /// The fault of the operation that is about to be started, when it is one for the caller to carry out.
  Fault next(std::int64_t& number, std::int64_t sent) {
    check_alive();
    number = state_->next.fetch_add(1);
    Fault fault = state_->plan.at(state_->rank, number);
    if (fault == Fault::corrupt && sent == 0) fault = Fault::none;
    if (fault == Fault::none) return fault;
    {
      Guard const guard(state_->mutex);
      state_->injected.push_back({state_->rank, number, fault});
    }
    if (fault == Fault::delay) {
      double const seconds = state_->plan.delay_seconds;
      timespec time{static_cast<time_t>(seconds), 0};
      time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
      ::nanosleep(&time, nullptr);
    }
    if (fault == Fault::kill) {
      if (state_->plan.kill_process) std::raise(SIGKILL);
      state_->killed_at.store(number);
      check_alive();
    }
    return fault;
  }
  void check_alive() const {
    std::int64_t const number = state_->killed_at.load(std::memory_order_relaxed);
    if (number >= 0)
      throw Error(ErrorKind::communication, "FaultInjector",
                  "the fault plan has killed rank " + std::to_string(state_->rank) + " at its operation " +
                      std::to_string(number))
          .with_rank(state_->rank);
  }

  bool is_lost(Stream const& stream) const noexcept {
    auto const meet = [](int a, int b) { return a < 0 || b < 0 || a == b; };
    for (Stream const& other : lost_)
      if (other.sends == stream.sends && other.channel == stream.channel && meet(other.peer, stream.peer) &&
          meet(other.tag, stream.tag))
        return true;
    return false;
  }
  bool lose(Fault fault, Stream const& stream) {
    if (fault == Fault::drop) lost_.push_back(stream);
    return is_lost(stream);
  }
  /// Waits for a message that nobody sends, a derived collective's to oneself, so that a revoked communicator ends it.
  Operation lost(std::string what) {
    Operation operation(inner_.start_recv(nullptr, 0, DType::byte, this->rank(), 0, comm::Channel::internal));
    operation.lost_ = std::move(what);
    return operation;
  }

  /// A copy with one bit flipped: the lowest of a byte, so that a bool stays one.
  Storage<Device> corrupted(void const* from, std::int64_t bytes, std::int64_t number) const {
    Device device{};
    Storage<Device> copy(device, static_cast<std::size_t>(bytes));
    device.copy_within(copy.data(), from, static_cast<std::size_t>(bytes));
    std::byte* const byte = static_cast<std::byte*>(copy.data()) +
                            state_->plan.random(state_->rank, number, 1) % static_cast<std::uint64_t>(bytes);
    std::byte value;
    device.copy_to_host(&value, byte, 1);
    value ^= std::byte{1};
    device.copy_from_host(byte, &value, 1);
    return copy;
  }

  Shared<State> state_;
  bool absent_ = false;  // from this communicator's collectives
  List<Stream> lost_;
};

}  // namespace tutti
