// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Traced<Backend>`: a backend that writes down when each operation began and ended, for the trace viewers of Chrome
/// and Perfetto.

#include <tutti/comm/decorator.hpp>
#include <tutti/comm/trace.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// Records every operation that the communicator starts, messages of derived collectives included, of this communicator
/// and of those split from it. An operation ends when it is first seen to be complete. The first `capacity` operations
/// are kept, at about 200 bytes each.
template <Backend B>
class Traced : public comm::Decorator<B> {
  using Base = comm::Decorator<B>;
  using Base::inner_;
  using Event = comm::TraceEvent;

 public:
  using typename Base::Match;

  class Operation {
   public:
    Operation() = default;

   private:
    friend Traced;
    typename B::Operation inner_;
    std::size_t event_ = comm::Trace::none;
    bool receives_ = false;
  };

  explicit Traced(B inner, std::size_t capacity = 1'000'000)
      : Base(std::move(inner)), trace_(make_shared_owner<comm::Trace>(this->rank(), capacity)) {}

  /// May outlive the communicator.
  Shared<comm::Trace> const& trace() const noexcept { return trace_; }

  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    return traced(message("send", bytes, to, tag, channel), false,
                  [&] { return inner_.start_send(from, bytes, dtype, to, tag, channel); });
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    return traced(message("recv", bytes, from, tag, channel), true,
                  [&] { return inner_.start_recv(to, bytes, dtype, from, tag, channel); });
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    return traced(message("recv", bytes, any_source, any_tag, comm::Channel::user), true,
                  [&] { return inner_.start_recv(match, to, bytes); });
  }
  Operation start(comm::Collective const& call) {
    return traced(collective(comm::name(call.kind), call), false, [&] { return inner_.start(call); });
  }
  Operation start_comparison(comm::Collective const& call)
    requires comm::ComparesCalls<B>
  {
    return traced(collective("compare", call), false, [&] { return inner_.start_comparison(call); });
  }

  bool test(Operation& operation) {
    try {
      if (!inner_.test(operation.inner_)) return false;
    } catch (...) {
      end(operation, Event::failed);
      throw;
    }
    if (operation.event_ == comm::Trace::none) return true;
    MessageInfo info;
    if (operation.receives_) info = inner_.received(operation.inner_);
    end(operation, Event::complete, operation.receives_ ? &info : nullptr);
    return true;
  }
  MessageInfo received(Operation const& operation) const { return inner_.received(operation.inner_); }
  bool abandon(Operation& operation) noexcept {
    end(operation, Event::abandoned);
    return inner_.abandon(operation.inner_);
  }
  bool cancel(Operation& operation) noexcept
    requires comm::CancelsReceives<B>
  {
    if (!inner_.cancel(operation.inner_)) return false;
    end(operation, Event::abandoned);
    return true;
  }
  void withdraw(Operation& operation) noexcept
    requires comm::WithdrawsSends<B>
  {
    inner_.withdraw(operation.inner_);
  }
  std::string awaiting(Operation const& operation) const { return inner_.awaiting(operation.inner_); }
  void waits(bool begins) noexcept {
    trace_->waits(begins);
    comm::capability::waits(inner_, begins);
  }

  Traced split(int color, int key, List<int> const& members) {
    return Traced(inner_.split(color, key, members), trace_, trace_->next_communicator());
  }

 private:
  Traced(B inner, Shared<comm::Trace> trace, int communicator)
      : Base(std::move(inner)), trace_(std::move(trace)), communicator_(communicator) {}

  Event message(std::string_view name, std::int64_t bytes, int peer, int tag, comm::Channel channel) const noexcept {
    Event event;
    event.name = name;
    event.internal = channel == comm::Channel::internal;
    event.bytes = bytes;
    event.peer = peer;
    event.tag = tag;
    return event;
  }
  Event collective(std::string_view name, comm::Collective const& call) const noexcept {
    Event event;
    event.name = name;
    event.bytes = call.block_bytes();
    event.count = call.count;
    event.dtype = call.dtype;
    event.op = call.reduction.op;
    event.root = call.root;
    event.where = call.where;
    return event;
  }
  template <class Start>
  Operation traced(Event event, bool receives, Start&& start) {
    event.communicator = communicator_;
    Operation operation;
    operation.receives_ = receives;
    operation.event_ = trace_->begin(event);
    try {
      operation.inner_ = start();
    } catch (...) {
      end(operation, Event::failed);
      throw;
    }
    return operation;
  }
  void end(Operation& operation, Event::State state, MessageInfo const* received = nullptr) noexcept {
    trace_->end(std::exchange(operation.event_, comm::Trace::none), state, received);
  }

  Shared<comm::Trace> trace_;
  int communicator_ = 0;
};

/// Writes one rank's operations as Chrome trace JSON; `pid` is the rank. Local. Errors: io.
template <Backend B>
void write_trace(Traced<B> const& backend, std::string const& path) {
  comm::Trace::write(path, comm::Trace::document(backend.trace()->json_events()));
}

/// Merges what all ranks have traced so far into one file, which rank 0 writes. Clocks of different nodes are not
/// aligned.
/// Ranks      all; blocks.
/// Errors     io, on every rank; and what the communicator throws.
template <Backend B>
void write_merged_trace(Communicator<Traced<B>>& comm, std::string const& path) {
  using Text = Tensor<char, typename B::Device>;
  static_assert(B::Device::host_accessible,
                "tutti: the merged trace travels through host memory. Write one file for each rank: write_trace");
  std::string const mine = comm.backend().trace()->json_events();
  auto const size = static_cast<std::int64_t>(mine.size());
  auto const sizes = comm.all_gather(std::array<std::int64_t, 1>{size});
  std::int64_t longest = 0;
  for (int r = 0; r < comm.size(); ++r) longest = sizes.data()[r] > longest ? sizes.data()[r] : longest;
  Text padded(Shape{longest});
  padded.fill(' ');
  std::memcpy(padded.data(), mine.data(), mine.size());
  Text const all = comm.gather(padded, 0);
  std::exception_ptr failure;
  if (comm.rank() == 0) {
    std::string events;
    for (int r = 0; r < comm.size(); ++r)
      events.append(all.data() + r * longest, static_cast<std::size_t>(sizes.data()[r]));
    try {
      comm::Trace::write(path, comm::Trace::document(std::move(events)));
    } catch (Error const&) {
      failure = std::current_exception();
    }
  }
  bool const failed = comm.broadcast(static_cast<bool>(failure), 0);
  if (failure) std::rethrow_exception(failure);
  if (failed)
    throw Error(ErrorKind::io, "write_merged_trace", "rank 0 cannot write " + path + ". Its error says why")
        .with_rank(comm.rank());
}

}  // namespace tutti
