// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Trace`: operations of a rank, with their times, for the trace viewers of Chrome and Perfetto.

#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/decorator.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::comm {

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

}  // namespace tutti::comm
