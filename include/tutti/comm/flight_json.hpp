// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a flight recorder holds as JSON, without memory of its own.

#include <tutti/comm/flight_recorder.hpp>
#include <tutti/comm/json_members.hpp>

#include <cstdint>
#include <string_view>
#include <unistd.h>

namespace tutti::comm {

/// What a record is of: "all_reduce", "send".
template <class = void>
constexpr std::string_view operation_name(FlightRecord const& record) noexcept {
  switch (record.what) {
    case FlightRecord::What::collective: return name(record.kind);
    case FlightRecord::What::send: return "send";
    case FlightRecord::What::recv: return "recv";
    case FlightRecord::What::probe: return "probe";
    case FlightRecord::What::match: return "match";
  }
  return "unknown";
}
template <class = void>
constexpr std::string_view name(FlightRecord::State state) noexcept {
  switch (state) {
    case FlightRecord::State::started: return "started";
    case FlightRecord::State::completed: return "completed";
    case FlightRecord::State::failed: return "failed";
    case FlightRecord::State::refused: return "refused";
  }
  return "unknown";
}

/// The JSON of a recorder, passed to `sink(text)` piece by piece.
template <class Sink>
class FlightJson {
 public:
  explicit FlightJson(Sink& sink) noexcept : sink_(sink), json_(sink) {}

  void write(FlightRecorder const& recorder, std::string_view reason) {
    FlightRecorder::Identity const& who = recorder.identity();
    sink_("{");
    json_.member("tutti_flight_record", 1);
    json_.member("communicator", who.communicator);
    json_.member("rank", who.rank);
    json_.member("size", who.size);
    json_.member("world_rank", who.world_rank);
    json_.member("pid", ::getpid());
    json_.member("operations", static_cast<std::int64_t>(recorder.operations()));
    json_.member("reason", reason);
    sink_(", \"records\": [");
    bool first = true;
    recorder.visit([&](FlightRecord const& record) {
      sink_(first ? "\n{" : ",\n{");
      first = false;
      json_.begin();
      write(record);
      sink_("}");
    });
    sink_("]}\n");
  }

 private:
  void write(FlightRecord const& record) {
    json_.member("operation", operation_name(record));
    json_.member("number", static_cast<std::int64_t>(record.number));
    if (record.what == FlightRecord::What::collective) {
      if (reduces(record.kind)) json_.member("operator", tutti::name(record.op));
      if (record.kind != Kind::barrier) {
        json_.member("dtype", tutti::name(record.dtype));
        json_.member("element_bytes", record.element_bytes);
        json_.member("count", record.count);
      }
      if (record.peer >= 0) json_.member("root", record.peer);
    } else {
      json_.member("peer", record.peer);
      json_.member("tag", record.tag);
    }
    json_.member("bytes", record.bytes());
    json_.member("file", record.file);
    json_.member("line", std::int64_t{record.line});
    json_.member("begin_ns", record.begin);
    json_.member("end_ns", record.end);
    json_.member("state", name(record.state));
  }

  Sink& sink_;
  JsonMembers<Sink> json_;
};

}  // namespace tutti::comm
