// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a tracer writes down is what happened, and what it writes to files is JSON that others read.
// Covers: <tutti/comm/trace.hpp>

#include "comm/messages_only.hpp"
#include "support/catch.hpp"

#include <tutti/comm/fault_injector.hpp>
#include <tutti/comm/traced.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

using namespace tutti;

namespace {

static_assert(Backend<Traced<Threads>> && Backend<Traced<Traced<test::MessagesOnly>>>);

/// A folder that goes with the test.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("tutti_traced_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(std::string const& name) const { return (path / name).string(); }
};

nlohmann::json events_of(std::string const& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file).at("traceEvents");
}

}  // namespace

TEST_CASE("a trace tells of each operation what it was, and how long the rank waited for it") {
  List<comm::TraceEvent> events;
  int line = 0;
  threads::run(2, [&](auto& plain) {
    auto comm = decorated<Traced>(plain);
    std::vector<float> x(100, 1.0f);
    comm.barrier();
    if (comm.rank() == 1) {
      timespec const late{0, 30'000'000};
      ::nanosleep(&late, nullptr);
    }
    int const next_line = __LINE__ + 1;
    comm.all_reduce(x, max);
    if (comm.rank() == 0) line = next_line;
    if (comm.rank() == 0) comm.send(x, 1, 7);
    else static_cast<void>(comm.template recv<float>(any_source, 7));
    auto half = comm.split(0);
    half.broadcast(x, 1);
    if (comm.rank() == 0) events = comm.backend().trace()->events();
    comm.barrier();
    if (comm.rank() == 1) {
      auto const own = comm.backend().trace()->events();
      comm::TraceEvent const& received = own[2];
      if (received.name != "recv" || received.peer != 0 || received.tag != 7 || received.bytes != 400)
        throw Error(ErrorKind::internal, "test", "the receive is not what came");
    }
  });
  REQUIRE(events.size() == 5);
  std::array<char const*, 5> const names{"barrier", "all_reduce", "send", "all_gather", "broadcast"};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(events[i].name == names[i]);
    CHECK(events[i].state == comm::TraceEvent::complete);
    CHECK(events[i].end_ns >= events[i].begin_ns);
    CHECK(events[i].wait_ns <= events[i].end_ns - events[i].begin_ns);
    CHECK(events[i].wait_ns >= 0);
    CHECK(events[i].lane == 0);
    CHECK(events[i].communicator == (i == 4 ? 1 : 0));
  }
  auto const& reduced = events[1];
  CHECK(reduced.bytes == 400);
  CHECK(reduced.count == 100);
  CHECK(reduced.dtype == DType::float32);
  CHECK(reduced.op == Operator::max);
  CHECK(static_cast<int>(reduced.where.line()) == line);
  CHECK(reduced.wait_ns > 10'000'000);  // for the other rank, who comes 30 ms late
  CHECK(events[2].peer == 1);
  CHECK(events[2].tag == 7);
  CHECK(events[4].root == 1);
}

TEST_CASE("operations in flight at the same time have lanes of their own, and those that wait for nothing no wait") {
  threads::run(1, [&](auto& plain) {
    auto comm = decorated<Traced>(plain);
    std::vector<float> x(10, 1.0f);
    std::vector<float> y(10, 1.0f);
    auto first = comm.all_reduce_async(x, sum);
    auto second = comm.all_reduce_async(y, sum);
    timespec const work{0, 5'000'000};
    ::nanosleep(&work, nullptr);
    first.wait();
    second.wait();
    comm.barrier();
    auto const events = comm.backend().trace()->events();
    REQUIRE(events.size() == 3);
    CHECK(events[0].lane == 0);
    CHECK(events[1].lane == 1);
    CHECK(events[2].lane == 0);
    CHECK(events[0].end_ns - events[0].begin_ns >= 5'000'000);
    CHECK(events[0].wait_ns < 4'000'000);  // 5 ms of its time the rank did something else
  });
}

TEST_CASE(
    "what fails is traced as failed, what is given up as abandoned, and what is beyond the capacity as a number") {
  threads::run(1, [&](auto& plain) {
    FaultPlan plan;
    plan.faults = {{0, 1, Fault::drop}, {0, 2, Fault::kill}};
    auto injected = decorated<FaultInjector>(plain, plan);
    auto comm = decorated<Traced>(injected, std::size_t{3});
    comm.set_deadline_seconds(0.02);
    comm.barrier();
    std::array<int, 1> x{};
    REQUIRE_ERROR(comm.recv(x, 0, 1), ErrorKind::timeout, "dropped a receive");
    REQUIRE_ERROR(comm.send(x, 0, 1), ErrorKind::communication, "killed");
    REQUIRE_ERROR(comm.barrier(), ErrorKind::communication, "killed");
    auto const trace = comm.backend().trace();
    auto const events = trace->events();
    REQUIRE(events.size() == 3);
    CHECK(events[0].state == comm::TraceEvent::complete);
    CHECK(events[1].state == comm::TraceEvent::abandoned);
    CHECK(events[2].state == comm::TraceEvent::failed);
    CHECK(trace->lost() == 1);
    CHECK(test::contains(trace->json_events(), "1 operations more"));
  });
}

TEST_CASE("a rank's trace and the merged one are JSON that names ranks, times and calls") {
  Folder const folder;
  threads::run(3, [&](auto& plain) {
    Communicator<Traced<test::MessagesOnly>> comm(
        Traced<test::MessagesOnly>(test::MessagesOnly(plain.backend().split(0, plain.rank(), {0, 1, 2}))));
    std::vector<double> x(1000, 1.0);
    comm.all_reduce(x, sum);
    auto pending = comm.recv_async(x, (comm.rank() + 1) % 3, 5);  // still in flight when the trace is written
    write_trace(comm.backend(), folder.file("rank" + std::to_string(comm.rank()) + ".json"));
    write_merged_trace(comm, folder.file("all.json"));
    comm.send(x, (comm.rank() + 2) % 3, 5);
    pending.wait();
  });
  std::size_t total = 0;
  for (int r = 0; r < 3; ++r) {
    auto const events = events_of(folder.file("rank" + std::to_string(r) + ".json"));
    total += events.size();
    CHECK(events[0].at("args").at("name") == "rank " + std::to_string(r));
    int in_flight = 0;
    int internal = 0;
    for (auto const& event : events) {
      CHECK(event.at("pid") == r);
      if (event.at("ph") != "X") continue;
      CHECK(event.at("ts").get<double>() > 0);
      CHECK(event.at("dur").get<double>() >= event.at("args").at("wait_us").get<double>());
      in_flight += event.at("args").at("state") == "in flight";
      internal += event.at("cat") == "internal";
    }
    CHECK(in_flight == 1);
    CHECK(internal >= 8);  // two sends and two receives of contributions, and as many of results
  }
  auto const merged = events_of(folder.file("all.json"));
  CHECK(merged.size() == total);
  std::map<int, int> per_rank;
  for (auto const& event : merged) ++per_rank[event.at("pid").get<int>()];
  CHECK(per_rank.size() == 3);
}

TEST_CASE("a trace that cannot be written is an error on every rank") {
  std::vector<std::string> errors(2);
  threads::run(2, [&](auto& plain) {
    auto comm = decorated<Traced>(plain);
    comm.barrier();
    try {
      write_merged_trace(comm, "/no/such/folder/trace.json");
    } catch (Error const& error) {
      if (error.kind() == ErrorKind::io) errors[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  });
  for (auto const& error : errors) CHECK(test::contains(error, "cannot write /no/such/folder/trace.json"));
}
