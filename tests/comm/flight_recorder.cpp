// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What the flight recorder keeps: the last operations, in their order, with state and times.
// Covers: <tutti/comm/flight_recorder.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm.hpp>

#include <atomic>
#include <ctime>
#include <pthread.h>
#include <string>
#include <vector>

using namespace tutti;
using What = FlightRecord::What;
using State = FlightRecord::State;

namespace {

comm::Collective call_of(std::int64_t count) {
  return {.kind = comm::Kind::all_reduce, .dtype = DType::float32, .count = count,
          .where = std::source_location::current()};
}
std::int64_t calendar_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

TEST_CASE("a new recorder holds nothing") {
  FlightRecorder const recorder({.rank = 1, .size = 3});
  CHECK(recorder.records().empty());
  CHECK(recorder.operations() == 0);
  CHECK(recorder.path().empty());
  CHECK(recorder.identity().world_rank == 1);
}

TEST_CASE("a full recorder keeps the last operations, oldest first") {
  for (int operations : {1, 6, 7, 8, 9, 100}) {
    FlightRecorder recorder({}, 8);
    for (int i = 0; i < operations; ++i) recorder.begin(call_of(i), static_cast<std::uint64_t>(1000 + i));
    auto const records = recorder.records();
    int const kept = operations < 7 ? operations : 7;
    REQUIRE(records.size() == static_cast<std::size_t>(kept));
    for (int i = 0; i < kept; ++i) {
      auto const& record = records[static_cast<std::size_t>(i)];
      CHECK(record.number == static_cast<std::uint64_t>(1000 + operations - kept + i));
      CHECK(record.count == operations - kept + i);
    }
    CHECK(recorder.operations() == static_cast<std::uint64_t>(operations));
  }
}

TEST_CASE("an operation is started, then completed or failed, once") {
  FlightRecorder recorder({});
  auto const first = recorder.begin(call_of(1), 0);
  auto const second = recorder.begin(What::recv, 40, 2, 5, std::source_location::current());
  auto const third = recorder.begin(What::send, 8, 1, 0, std::source_location::current());
  recorder.complete(first);
  recorder.fail(first);
  recorder.fail(second);
  recorder.complete(second);
  recorder.complete(FlightRecorder::no_ticket);
  auto const records = recorder.records();
  REQUIRE(records.size() == 3);
  CHECK(records[0].state == State::completed);
  CHECK(records[1].state == State::failed);
  CHECK(records[2].state == State::started);
  CHECK(records[2].end == 0);
  CHECK(records[1].peer == 2);
  CHECK(records[1].tag == 5);
  CHECK(records[1].bytes() == 40);
  CHECK(records[0].bytes() == 4);
  CHECK(records[1].number == 0);
  CHECK(records[2].number == 1);
  recorder.complete(third);
  CHECK(recorder.records()[2].state == State::completed);
}

TEST_CASE("a message that is over is recorded at one moment, and an operation may end at one that has passed") {
  FlightRecorder recorder({});
  recorder.record(What::send, 8, 3, 7, std::source_location::current());
  std::int64_t const moment = FlightRecorder::ticks_now();
  auto const ticket = recorder.begin(What::recv, 8, 3, 7, std::source_location::current(), moment);
  recorder.complete_at(ticket, moment);
  recorder.complete(ticket);
  auto const records = recorder.records();
  REQUIRE(records.size() == 2);
  for (FlightRecord const& record : records) {
    CHECK(record.state == State::completed);
    CHECK(record.begin == record.end);
    CHECK(record.peer == 3);
    CHECK(record.tag == 7);
    CHECK(record.bytes() == 8);
  }
  CHECK(records[0].what == What::send);
  CHECK(records[1].what == What::recv);
  CHECK(records[1].number == 1);
}

TEST_CASE("the end of an operation that is no longer kept changes no other") {
  FlightRecorder recorder({}, 4);
  auto const old = recorder.begin(call_of(0), 0);
  for (std::uint64_t i = 1; i <= 4; ++i) recorder.begin(call_of(0), i);
  recorder.fail(old);
  recorder.set_bytes(old, 77);
  for (auto const& record : recorder.records()) {
    CHECK(record.state == State::started);
    CHECK(record.count == 0);
  }
}

TEST_CASE("times are those of the calendar") {
  FlightRecorder recorder({});
  std::int64_t const before = calendar_ns();
  auto const ticket = recorder.begin(call_of(1), 0);
  timespec const pause{0, 20'000'000};
  ::nanosleep(&pause, nullptr);
  recorder.complete(ticket);
  std::int64_t const after = calendar_ns();
  auto const record = recorder.records()[0];
  std::int64_t const slack = 1'000'000;
  CHECK(record.begin >= before - slack);
  CHECK(record.end <= after + slack);
  CHECK(record.end - record.begin >= 20'000'000 - slack);
}

TEST_CASE("a reader beside the writer sees whole records only") {
  FlightRecorder recorder({}, 16);
  std::atomic<bool> done{false};
  struct Both {
    FlightRecorder& recorder;
    std::atomic<bool>& done;
  } both{recorder, done};
  pthread_t writer;
  REQUIRE(::pthread_create(
              &writer, nullptr,
              [](void* argument) -> void* {
                auto& [log, stop] = *static_cast<Both*>(argument);
                for (int i = 0; i < 200'000; ++i)  // number, count and peer are always the same
                  log.complete(log.begin(
                      comm::Collective{.kind = comm::Kind::broadcast, .dtype = DType::byte, .root = i, .count = i},
                      static_cast<std::uint64_t>(i)));
                stop.store(true);
                return nullptr;
              },
              &both) == 0);
  std::int64_t torn = 0;
  std::int64_t out_of_order = 0;
  do {
    std::int64_t last = -1;
    recorder.visit([&](FlightRecord const& record) {
      if (record.count != record.peer || static_cast<std::int64_t>(record.number) != record.count) ++torn;
      if (record.count <= last) ++out_of_order;
      last = record.count;
    });
  } while (!done.load());
  ::pthread_join(writer, nullptr);
  CHECK(torn == 0);
  CHECK(out_of_order == 0);
}

TEST_CASE("a communicator records collectives and messages, with the places of the calls") {
  std::vector<List<FlightRecord>> all(2);
  std::vector<std::string> groups(2);
  int line = 0;
  threads::run(2, [&](auto& comm) {
    int const rank = comm.rank();
    std::vector<double> x(3, 1.0);
    comm.barrier();
    comm.broadcast(x, 1);
    if (rank == 0) line = __LINE__ + 1;
    comm.all_reduce(x, avg);
    if (rank == 0) comm.send(x, 1, 7);
    else static_cast<void>(comm.template recv<double>(0, 7));
    static_cast<void>(comm.try_probe());
    auto half = comm.split(0);
    auto const r = static_cast<std::size_t>(rank);
    all[r] = comm.flight_recorder().records();
    groups[r] = half.flight_recorder().identity().communicator;
  });
  for (int rank : {0, 1}) {
    CAPTURE(rank);
    auto const& records = all[static_cast<std::size_t>(rank)];
    REQUIRE(records.size() == 5);  // try_probe waits for nothing; the last is the all_gather of split
    CHECK(records[0].kind == comm::Kind::barrier);
    CHECK(records[1].kind == comm::Kind::broadcast);
    CHECK(records[1].peer == 1);
    CHECK(records[1].count == 3);
    CHECK(records[2].op == Operator::avg);
    CHECK(records[2].dtype == DType::float64);
    CHECK(records[2].number == 2);
    CHECK(records[2].line == static_cast<std::uint32_t>(line));
    CHECK(test::contains(records[2].file, "flight_recorder.cpp"));
    CHECK(records[3].what == (rank == 0 ? What::send : What::recv));
    CHECK(records[3].bytes() == 24);
    CHECK(records[3].tag == 7);
    CHECK(records[3].peer == 1 - rank);
    CHECK(records[4].kind == comm::Kind::all_gather);
    for (auto const& record : records) CHECK(record.state == State::completed);
  }
  CHECK(groups[0] == groups[1]);
  CHECK(test::contains(groups[0], "world-"));
}

TEST_CASE("what was dropped and what failed is recorded so") {
  State dropped = State::started;
  std::vector<State> failed(2, State::started);
  threads::run(2, [&](auto& comm) {
    {
      auto request = comm.barrier_async();
    }
    comm.core()->drain();  // a barrier that is complete at once would not look at what was dropped
    if (comm.rank() == 0) dropped = comm.flight_recorder().records()[0].state;
    try {
      std::vector<int> x(static_cast<std::size_t>(comm.rank() + 1));
      comm.all_reduce(x, sum);
    } catch (Error const&) {
      failed[static_cast<std::size_t>(comm.rank())] = comm.flight_recorder().records().back().state;
    }
  });
  CHECK(dropped == State::completed);
  CHECK(failed[0] == State::failed);
  CHECK(failed[1] == State::failed);
}
