// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages that need no job: a send that leaves in the call, and a receive whose message comes within its first looks.
/// What is not done by then goes the way of all transfers.

#include <tutti/comm/transfer.hpp>

#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>

namespace tutti::comm {

/// Whether a buffer travels as it is.
template <class X>
inline constexpr bool travels_bare = [] {
  if constexpr (std::is_same_v<X, NoOperand>) return true;
  else return !is_padded<typename X::Value> && X::Place::host_accessible;
}();

/// Looks for a message before a job waits for it: about a microsecond, where who sends it has a processor.
inline constexpr int looks_at_once = 64;

/// Does what can be done at once of a blocking call whose arguments are right. What is done is recorded, and left out
/// of `route` (see proc_null). `waiting`: the record of a receive that is not. True when that was all.
template <Backend B, class Out, class In>
bool pass_at_once(Core<B>& core, Out const& out, In const& in, Route& route, std::source_location where,
                  MessageInfo& info, FlightRecorder::Ticket& waiting) {
  using What = FlightRecord::What;
  FlightRecorder& recorder = core.flight_recorder;
  if constexpr (!std::same_as<Out, NoOperand>) {
    std::int64_t const bytes = out.size() * element_bytes<Out>;
    if (route.to != proc_null) {
      if (!core.backend.send_at_once(out.wire(), bytes, wire_dtype<typename Out::Value>, route.to, route.send_tag))
        return false;
      // Only now: whoever waits for it does not wait for the record too.
      recorder.record(What::send, bytes, route.to, route.send_tag, where);
      route.to = proc_null;
    }
  }
  if constexpr (!std::same_as<In, NoOperand>) {
    if (route.from == proc_null || !core.inbox.empty()) return false;
    std::int64_t const bytes = in.size() * element_bytes<In>;
    std::int64_t moment = FlightRecorder::ticks_now();
    waiting = recorder.begin(What::recv, bytes, route.from, route.recv_tag, where, moment);
    int const looks = core.backend.wait_policy().spins == 0 ? 1 : looks_at_once;
    for (int look = 0; look < looks; ++look) {
      if (core.backend.receive_at_once(in.wire(), bytes, wire_dtype<typename In::Value>, route.from, route.recv_tag,
                                       info)) {
        // The moment of the look before this one: reading the counter again would keep the caller waiting.
        recorder.complete_at(waiting, moment);
        return true;
      }
      moment = FlightRecorder::ticks_now();
    }
    return false;
  }
  return true;
}

}  // namespace tutti::comm
