// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Traced<Backend>`: a backend that writes down when each operation began and ended, for the trace viewers of Chrome
/// and Perfetto.

#include <tutti/comm/decorator.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {
namespace comm {

/// One operation of a rank. Times are monotonic nanoseconds, of one clock for all ranks of a node.
struct TraceEvent {
  enum State : std::uint8_t { in_flight, complete, failed, abandoned };
  std::string_view name;    ///< "all_reduce", "send", "recv", "compare"
  State state = in_flight;
  bool internal = false;    ///< a message of a derived collective
  std::int64_t bytes = 0;   ///< of this rank's message or contribution
  std::int64_t count = 0;   ///< elements of a collective's block
  DType dtype = DType::byte;
  Operator op = Operator::none;
  int peer = any_source;    ///< of a message
  int tag = any_tag;
  int root = -1;            ///< of a collective
  int communicator = 0;     ///< 0, or the number of the split that made it
  int lane = 0;             ///< operations in flight at the same time have different lanes
  std::source_location where{};
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t wait_ns = 0; ///< of that time, how long the rank did nothing but wait, for this operation or another
};

/// What one rank has traced: of a communicator and of those that were split from it.
class Trace {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  Trace(int rank, std::size_t capacity) noexcept : rank_(rank), capacity_(capacity) {}

  int rank() const noexcept { return rank_; }
  /// Operations that came when `capacity` were recorded, and are not.
  std::uint64_t lost() const noexcept {
    Guard const guard(mutex_);
    return lost_;
  }
  List<TraceEvent> events() const {
    Guard const guard(mutex_);
    return events_;
  }
  int next_communicator() noexcept {
    Guard const guard(mutex_);
    return ++communicators_;
  }

  /// Records an operation that is about to be started; `none` where there is no room.
  std::size_t begin(TraceEvent event) {
    Guard const guard(mutex_);
    if (events_.size() >= capacity_) {
      ++lost_;
      return none;
    }
    std::size_t lane = 0;
    while (lane < lanes_.size() && lanes_[lane]) ++lane;
    if (lane == lanes_.size()) lanes_.push_back(false);
    lanes_[lane] = true;
    event.lane = static_cast<int>(lane);
    event.begin_ns = exec::now_ns();
    event.wait_ns = waited(event.begin_ns);
    events_.push_back(event);
    return events_.size() - 1;
  }
  void end(std::size_t index, TraceEvent::State state, MessageInfo const* received = nullptr) noexcept {
    if (index == none) return;
    Guard const guard(mutex_);
    TraceEvent& event = events_[index];
    event.state = state;
    event.end_ns = exec::now_ns();
    event.wait_ns = waited(event.end_ns) - event.wait_ns;
    lanes_[static_cast<std::size_t>(event.lane)] = false;
    if (received == nullptr) return;
    event.peer = received->source;
    event.tag = received->tag;
    event.bytes = received->bytes;
  }
  void waits(bool begins) noexcept {
    Guard const guard(mutex_);
    std::int64_t const now = exec::now_ns();
    if (begins && waiting_++ == 0) wait_began_ = now;
    if (!begins && --waiting_ == 0) waited_ += now - wait_began_;
  }

  /// The events in Chrome's trace event format, each followed by a comma and a line end: for `document`.
  std::string json_events() const {
    Guard const guard(mutex_);
    std::int64_t const now = exec::now_ns();
    std::string const pid = "\"pid\":" + std::to_string(rank_);
    std::string text = "{\"name\":\"process_name\",\"ph\":\"M\"," + pid + ",\"args\":{\"name\":\"rank " +
                       std::to_string(rank_) + "\"}},\n";
    for (TraceEvent const& event : events_) {
      bool const open = event.state == TraceEvent::in_flight;
      std::int64_t const wait = open ? waited(now) - event.wait_ns : event.wait_ns;
      text += "{\"name\":\"" + std::string(event.name) + "\",\"cat\":\"" +
              (event.internal ? "internal" : event.name == "send" || event.name == "recv" ? "message" : "collective") +
              "\",\"ph\":\"X\",\"ts\":" + microseconds(event.begin_ns) +
              ",\"dur\":" + microseconds((open ? now : event.end_ns) - event.begin_ns) + "," + pid +
              ",\"tid\":" + std::to_string(event.lane) + ",\"args\":{\"bytes\":" + std::to_string(event.bytes) +
              ",\"wait_us\":" + microseconds(wait) + ",\"communicator\":" + std::to_string(event.communicator);
      if (event.peer >= 0) text += ",\"peer\":" + std::to_string(event.peer);
      if (event.tag >= 0) text += ",\"tag\":" + std::to_string(event.tag);
      if (event.root >= 0) text += ",\"root\":" + std::to_string(event.root);
      if (event.count != 0)
        text += ",\"count\":" + std::to_string(event.count) + ",\"dtype\":\"" + std::string(tutti::name(event.dtype)) +
                "\"";
      if (event.op != Operator::none) text += ",\"op\":\"" + std::string(tutti::name(event.op)) + "\"";
      if (event.where.line() != 0) text += ",\"at\":\"" + json_text(place(event.where)) + "\"";
      text += ",\"state\":\"" + std::string(state_name(event.state)) + "\"}},\n";
    }
    if (lost_ != 0)
      text += "{\"name\":\"" + std::to_string(lost_) + " operations more, not recorded\",\"ph\":\"i\",\"s\":\"p\"," +
              pid + ",\"tid\":0,\"ts\":" + microseconds(now) + "},\n";
    return text;
  }
  /// A whole JSON document of one or several ranks' events.
  static std::string document(std::string events) {
    if (events.size() >= 2) events.resize(events.size() - 2);  // the last comma
    return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + events + "\n]}\n";
  }
  /// Errors     io.
  static void write(std::string const& path, std::string const& text) {
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file != nullptr) good = std::fclose(file) == 0 && good;
    if (!good)
      throw Error(ErrorKind::io, "Trace::write",
                  "cannot write " + path + ". Look whether its folder exists, may be written and has room");
  }

 private:
  /// Time in which this rank did nothing but wait, until `now`.
  std::int64_t waited(std::int64_t now) const noexcept { return waited_ + (waiting_ > 0 ? now - wait_began_ : 0); }
  static std::string microseconds(std::int64_t ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
    return text;
  }
  static constexpr std::string_view state_name(TraceEvent::State state) noexcept {
    constexpr std::string_view names[] = {"in flight", "complete", "failed", "abandoned"};
    return names[state];
  }

  int rank_;
  std::size_t capacity_;
  mutable Mutex mutex_;
  List<TraceEvent> events_;
  List<bool> lanes_;  // whether an operation in flight has it
  std::uint64_t lost_ = 0;
  int communicators_ = 0;
  int waiting_ = 0;
  std::int64_t wait_began_ = 0;
  std::int64_t waited_ = 0;
};

}  // namespace comm

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
