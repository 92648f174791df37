// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What is counted of operations: calls, bytes, times, exposed time; its sums over ranks; the table and the JSON.
// Covers: <tutti/comm/tally.hpp> <tutti/comm/bandwidth.hpp> <tutti/comm/statistics_text.hpp>

#include <tutti/comm/statistics.hpp>

#include "comm/every_operation.hpp"
#include "comm/messages_only.hpp"
#include "comm/shared_traffic.hpp"
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/fault_injector.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <vector>

using namespace tutti;
using comm::Algorithm;
using comm::Kind;

namespace {

void sleep_ms(int ms) {
  timespec const time{0, ms * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

}  // namespace

TEST_CASE("quantiles of the histogram are within its stated error of those of the samples") {
  CHECK(TimeHistogram::relative_error <= 0.05);
  CHECK(TimeHistogram().count() == 0);
  CHECK(TimeHistogram().quantile(0.5) == 0);
  std::mt19937_64 random(7);
  for (int shape = 0; shape < 4; ++shape) {
    std::vector<std::int64_t> samples;
    TimeHistogram histogram;
    for (int i = 0; i < 1001; ++i) {
      std::uint64_t const bits = random();
      std::int64_t const sample = shape == 0   ? static_cast<std::int64_t>(bits % 40)
                                  : shape == 1 ? static_cast<std::int64_t>(bits % 1'000'000)
                                               : static_cast<std::int64_t>(bits >> (1 + bits % 60));
      samples.push_back(shape == 3 ? 123'456'789 : sample);
      histogram.add(samples.back());
    }
    std::sort(samples.begin(), samples.end());
    CHECK(histogram.count() == 1001);
    for (double const share : {0.0, 0.01, 0.5, 0.9, 0.99, 1.0}) {
      CAPTURE(shape, share);
      auto const rank = static_cast<std::size_t>(std::max(0.0, std::ceil(share * 1001) - 1));
      auto const exact = static_cast<double>(samples[rank]);
      CHECK(std::abs(histogram.quantile(share) - exact) <= TimeHistogram::relative_error * exact);
    }
  }
}

TEST_CASE("the histogram takes every time there is") {
  for (std::int64_t const ns : {std::int64_t{-5}, std::int64_t{0}, std::int64_t{15}, std::int64_t{16}, std::int64_t{31},
                                std::int64_t{32}, std::int64_t{33}, INT64_MAX}) {
    CAPTURE(ns);
    TimeHistogram histogram;
    histogram.add(ns);
    CHECK(histogram.count() == 1);
    double const exact = ns < 0 ? 0 : static_cast<double>(ns);
    CHECK(std::abs(histogram.quantile(0.5) - exact) <= exact / 32);
  }
}

TEST_CASE("bus factors are those of nccl-tests") {
  for (double const n : {1.0, 2.0, 3.0, 8.0}) {
    CAPTURE(n);
    int const ranks = static_cast<int>(n);
    CHECK(comm::bus_factor(Kind::all_reduce, ranks) == 2 * (n - 1) / n);
    for (Kind const kind : {Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all, Kind::gather, Kind::scatter})
      CHECK(comm::bus_factor(kind, ranks) == (n - 1) / n);
    for (Kind const kind : {Kind::broadcast, Kind::reduce, Kind::scan}) CHECK(comm::bus_factor(kind, ranks) == 1);
  }
}

TEST_CASE("the size of a call is the larger of a rank's two buffers") {
  std::vector<std::int64_t> const counts{3, 4, 0};
  comm::Collective call{.kind = Kind::all_reduce, .dtype = DType::float64, .count = 5};
  CHECK(comm::asked_bytes(call, 3) == 40);
  for (Kind const kind : {Kind::gather, Kind::all_gather, Kind::scatter, Kind::reduce_scatter, Kind::all_to_all}) {
    call.kind = kind;
    CHECK(comm::asked_bytes(call, 3) == 120);
  }
  call.kind = Kind::barrier;
  CHECK(comm::asked_bytes(call, 3) == 0);
  call.kind = Kind::gather_v;
  CHECK(comm::asked_bytes(call, 3) == 40);  // not the root: its block is all it knows
  call.to_counts = counts;
  CHECK(comm::asked_bytes(call, 3) == 56);
}

TEST_CASE("a program counts its phases apart") {
  std::string table, json;
  auto const work = [](auto& comm) {
    std::vector<float> x(100);
    comm.all_reduce(x, sum);
  };
  threads::run(2, [&](auto& comm) {
    work(comm);  // warms up
    comm.start_statistics();
    work(comm);
    Statistics const mine = comm.statistics();
    Statistics const all = comm::reduced(comm, mine);  // collective
    if (comm.rank() == 0) table = comm::to_table(all);
    if (comm.rank() == 0) json = comm::to_json(all);
  });
  CHECK(test::contains(table, "sums over 2 ranks"));
  CHECK(nlohmann::json::parse(json).at("operations").at(0).at("calls") == 2);
}

TEST_CASE("nothing is counted until it is asked for, and from zero after each start") {
  std::string text;
  std::int64_t calls[3] = {};
  threads::run(1, [&](auto& comm) {
    try {
      static_cast<void>(comm.statistics());
    } catch (Error const& error) {
      text = error.what();
    }
    comm.barrier();
    for (int i = 0; i < 3; ++i) {
      comm.start_statistics();
      for (int k = 0; k < i; ++k) comm.barrier();
      Statistics const statistics = comm.statistics();
      calls[i] = statistics.operations.empty() ? 0 : statistics.find("barrier")->calls;
    }
  });
  CHECK(test::contains(text, "start_statistics()"));
  CHECK(calls[0] == 0);
  CHECK(calls[1] == 1);
  CHECK(calls[2] == 2);
}

TEST_CASE("communicators made from a counting one count from their beginning, each on its own") {
  std::vector<Statistics> parents(2), children(2);
  threads::run(2, [&](auto& comm) {
    comm.start_statistics();
    std::vector<int> x(3);
    auto child = comm.duplicate();
    child.all_reduce(x, sum);
    comm.barrier();
    children[static_cast<std::size_t>(comm.rank())] = child.statistics();
    parents[static_cast<std::size_t>(comm.rank())] = comm.statistics();
  });
  for (int r : {0, 1}) {
    Statistics const& parent = parents[static_cast<std::size_t>(r)];
    Statistics const& child = children[static_cast<std::size_t>(r)];
    CHECK(parent.rank == r);
    CHECK(parent.size == 2);
    CHECK(parent.communicator == "world");
    CHECK(test::contains(child.communicator, "world-"));
    CHECK(parent.operations.size() == 2);  // the all_gather of duplicate, and the barrier
    REQUIRE(child.operations.size() == 1);
    CHECK(child.operations[0].operation == std::string("all_reduce"));
    CHECK(child.operations[0].bytes == 12);
    CHECK(child.wall_ns <= parent.wall_ns);
  }
}

TEST_CASE("every operation is counted under its name, once a call") {
  for (int const ranks : {1, 2, 3, 4}) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& comm) {
      comm.start_statistics();
      test::for_each_operation(comm, 37, [&](std::string const& name, auto&& operation) {
        auto const calls = [&] {
          Statistics const statistics = comm.statistics();
          auto const* const one = statistics.find(name);
          if (one != nullptr && one->times.count() != one->calls) return std::int64_t{-100};
          return one == nullptr ? 0 : one->calls;
        };
        std::int64_t const before = calls();
        operation();
        if (calls() != before + 1) texts[static_cast<std::size_t>(comm.rank())] += name + " ";
      });
    });
    for (auto const& text : texts) CHECK(text.empty());
  }
}

TEST_CASE("collectives on shared memory move what their paths have to") {
  for (int const ranks : {1, 2, 3, 4}) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& comm) {
      test::compare_shared_traffic(comm, {}, texts[static_cast<std::size_t>(comm.rank())]);
    });
    for (auto const& text : texts) {
      INFO(text);
      CHECK(text.empty());
    }
  }
}

TEST_CASE("a result of 32 MiB, which is written past the caches, counts alike") {
  std::vector<comm::WireTraffic> moved(2);
  std::int64_t const count = std::int64_t{8} << 20;
  threads::run(2, [&](auto& comm) {
    Tensor<float, Cpu> x(Shape{count}), y(Shape{count});
    x.fill(1.0f);
    comm.start_statistics();
    comm.all_reduce(x, y, sum);
    Statistics const statistics = comm.statistics();
    moved[static_cast<std::size_t>(comm.rank())] = statistics.find("all_reduce")->by(Algorithm::shared_one_pass);
  });
  for (auto const& traffic : moved) {
    CHECK(traffic.operations == 1);
    CHECK(traffic.sent == count / 2 * 4);
    CHECK(traffic.received == count / 2 * 4);
  }
}

/// What each rank counts of one all_gather by messages, of so many floats a rank.
static std::vector<OperationStatistics> count_all_gather(int ranks, std::int64_t floats) {
  std::vector<OperationStatistics> counted(static_cast<std::size_t>(ranks));
  test::run_messages_only(ranks, [&](auto& comm) {
    std::vector<float> x(static_cast<std::size_t>(floats)), all(static_cast<std::size_t>(floats * ranks));
    comm.start_statistics();
    comm.all_gather(x, all);
    Statistics const statistics = comm.statistics();
    counted[static_cast<std::size_t>(comm.rank())] = *statistics.find("all_gather");
  });
  return counted;
}

TEST_CASE("derived collectives and comparisons count the messages that they are made of") {
  for (int const ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    std::int64_t const others = ranks - 1;
    std::int64_t rounds = 0;
    while ((1 << rounds) < ranks) ++rounds;
    auto const card = static_cast<std::int64_t>(sizeof(comm::Verdict));
    for (OperationStatistics const& one : count_all_gather(ranks, 1030)) {
      CHECK(one.by(Algorithm::messages).operations == 2 * others);
      CHECK(one.by(Algorithm::messages).sent == 4120 * others);
      CHECK(one.by(Algorithm::messages).received == 4120 * others);
      CHECK(one.by(Algorithm::comparison).operations == 2 * rounds);
      CHECK(one.by(Algorithm::comparison).sent == card * rounds);
      CHECK(one.by(Algorithm::comparison).received == card * rounds);
    }
  }
}

TEST_CASE("small contributions count with the comparison that carries them") {
  for (int const ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    int const rounds = ranks == 1 ? 0 : ranks == 2 ? 1 : 2;
    auto const bytes = static_cast<std::int64_t>(sizeof(comm::Verdict)) * rounds + 40 * (ranks - 1);
    for (OperationStatistics const& one : count_all_gather(ranks, 10)) {
      CHECK(one.by(Algorithm::messages).operations == 0);
      CHECK(one.by(Algorithm::comparison).operations == 0);
      CHECK(one.by(Algorithm::exchange).operations == 2 * rounds);
      CHECK(one.by(Algorithm::exchange).sent == bytes);
      CHECK(one.by(Algorithm::exchange).received == bytes);
    }
  }
}

TEST_CASE("a decorated backend's operations count like its own") {
  std::int64_t sent = 0;
  threads::run(2, [&](auto& plain) {
    auto comm = decorated<FaultInjector>(plain, FaultPlan{});
    comm.start_statistics();
    std::vector<float> x(100);
    comm.all_reduce(x, sum);
    Statistics const statistics = comm.statistics();
    if (comm.rank() == 0) sent = statistics.find("all_reduce")->by(Algorithm::shared_board).sent;
  });
  CHECK(sent == 400);
}

TEST_CASE("messages count what is sent and what comes, and exchanges the larger of the two") {
  std::vector<Statistics> all(2);
  threads::run(2, [&](auto& comm) {
    int const other = 1 - comm.rank();
    std::vector<int> out(comm.rank() == 0 ? 10 : 3), in(comm.rank() == 0 ? 3 : 10);
    comm.start_statistics();
    comm.send_recv(out, other, in, other);
    if (comm.rank() == 0) comm.send(out, 1);
    else static_cast<void>(comm.template recv<int>());
    all[static_cast<std::size_t>(comm.rank())] = comm.statistics();
  });
  for (int r : {0, 1}) {
    CAPTURE(r);
    auto const* const both = all[static_cast<std::size_t>(r)].find("send_recv");
    REQUIRE(both != nullptr);
    CHECK(both->calls == 1);
    CHECK(both->bytes == 40);
    CHECK(both->by(Algorithm::messages).operations == 2);
    CHECK(both->by(Algorithm::messages).sent == (r == 0 ? 40 : 12));
    CHECK(both->by(Algorithm::messages).received == (r == 0 ? 12 : 40));
    auto const* const one = all[static_cast<std::size_t>(r)].find(r == 0 ? "send" : "recv");
    REQUIRE(one != nullptr);
    CHECK(one->calls == 1);
    CHECK(one->bytes == 40);
    CHECK(one->by(Algorithm::messages).operations == 1);
  }
}

TEST_CASE("exposed is the time of blocking calls and of waits, not that between start and wait") {
  std::vector<Statistics> blocking(2), waiting(2);
  threads::run(2, [&](auto& comm) {
    auto const own = static_cast<std::size_t>(comm.rank());
    comm.barrier();
    comm.start_statistics();
    if (comm.rank() == 1) sleep_ms(100);  // late: rank 0 waits
    comm.barrier();
    blocking[own] = comm.statistics();
    comm.start_statistics();
    auto request = comm.barrier_async();
    sleep_ms(100);  // both work meanwhile
    request.wait();
    waiting[own] = comm.statistics();
  });
  std::int64_t const most = 50'000'000;  // half of the pauses: the machine may be busy
  CHECK(blocking[0].find("barrier")->exposed_ns > most);
  CHECK(blocking[0].find("barrier")->exposed_ns > blocking[1].find("barrier")->exposed_ns);
  CHECK(blocking[0].exposed_share() > blocking[1].exposed_share());
  for (int r : {0, 1}) {
    CAPTURE(r);
    Statistics const& late = blocking[static_cast<std::size_t>(r)];
    CHECK(late.find("barrier")->exposed_ns <= late.wall_ns);
    CHECK(late.find("barrier")->exposed_ns >= late.find("barrier")->time_ns);
    CHECK(late.exposed_share(*late.find("barrier")) == late.exposed_share());
    OperationStatistics const& overlapped = *waiting[static_cast<std::size_t>(r)].find("barrier");
    CHECK(overlapped.time_ns >= 2 * most);
    CHECK(overlapped.exposed_ns < overlapped.time_ns - most);
  }
}

TEST_CASE("reduced statistics are the sums over the ranks, alike on all of them") {
  std::vector<Statistics> own(3), all(3);
  threads::run(3, [&](auto& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    std::vector<double> x(5);
    comm.start_statistics();
    for (int i = 0; i < 10; ++i) comm.all_reduce(x, sum);
    if (comm.rank() == 0) comm.send(x, 2);
    if (comm.rank() == 2) comm.recv(x, 0);
    own[r] = comm.statistics();
    all[r] = comm::reduced(comm, own[r]);
  });
  std::int64_t wall = 0, time = 0;
  double least = 2, most = -1;
  for (Statistics const& one : own) {
    wall += one.wall_ns;
    time += one.find("all_reduce")->time_ns;
    least = std::min(least, one.exposed_share());
    most = std::max(most, one.exposed_share());
  }
  for (Statistics const& one : all) {
    CHECK(one.rank == -1);
    CHECK(one.ranks == 3);
    CHECK(one.wall_ns == wall);
    REQUIRE(one.operations.size() == 3);
    auto const* const reduces = one.find("all_reduce");
    CHECK(reduces->calls == 30);
    CHECK(reduces->bytes == 30 * 40);
    CHECK(reduces->time_ns == time);
    CHECK(reduces->times.count() == 30);
    CHECK(reduces->by(Algorithm::shared_board).sent == 30 * 40);
    CHECK(one.find("send")->calls == 1);  // rank 1 knows of neither
    CHECK(one.find("recv")->calls == 1);
    CHECK(one.least_exposed.value == least);
    CHECK(one.most_exposed.value == most);
    CHECK(own[static_cast<std::size_t>(one.most_exposed.rank)].exposed_share() == most);
    CHECK(comm::to_json(one) == comm::to_json(all[0]));
  }
}

TEST_CASE("statistics of another rank or communicator are refused by all") {
  std::vector<std::string> texts(2);
  threads::run(2, [&](auto& comm) {
    comm.start_statistics();
    Statistics mine = comm.statistics();
    if (comm.rank() == 1) mine.rank = 0;
    try {
      static_cast<void>(comm::reduced(comm, mine));
    } catch (Error const& error) {
      texts[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  });
  for (auto const& text : texts) CHECK(test::contains(text, "not its own"));
}

TEST_CASE("bandwidths are bytes over time, and that times the bus factor") {
  Statistics statistics;
  statistics.size = 4;
  statistics.operations.push_back(
      {.operation = "all_reduce", .calls = 2, .bytes = 3'000'000, .time_ns = 1'000'000, .exposed_ns = 0});
  statistics.operations.push_back({.operation = "send", .calls = 1, .bytes = 500, .time_ns = 1000, .exposed_ns = 0});
  statistics.operations.push_back({.operation = "recv"});
  CHECK(Statistics::algorithm_bandwidth(*statistics.find("all_reduce")) == 3e9);
  CHECK(statistics.bus_bandwidth(*statistics.find("all_reduce")) == 4.5e9);
  CHECK(statistics.bus_bandwidth(*statistics.find("send")) == 5e8);
  CHECK(Statistics::algorithm_bandwidth(*statistics.find("recv")) == 0);
}

TEST_CASE("the JSON is JSON, and says what was counted") {
  Statistics statistics;
  statistics.communicator = "a \"b\\";
  statistics.rank = 1;
  statistics.size = 2;
  statistics.wall_ns = 4000;
  statistics.notices = {1, 1024, 0};
  OperationStatistics one{.operation = "all_reduce", .calls = 1, .bytes = 64, .time_ns = 1000, .exposed_ns = 1000};
  one.times.add(1000);
  one.wire[static_cast<int>(Algorithm::shared_one_pass)] = {1, 32, 32};
  statistics.operations.push_back(one);
  auto const json = nlohmann::json::parse(comm::to_json(statistics));
  CHECK(json.at("tutti_statistics") == 1);
  CHECK(json.at("communicator") == "a \"b\\");
  CHECK(json.at("rank") == 1);
  CHECK(json.at("ranks") == 1);
  CHECK(json.at("wall_ns") == 4000);
  CHECK(json.at("exposed_share") == 0.25);
  CHECK(json.at("notices").at("sent") == 1024);
  auto const& row = json.at("operations").at(0);
  CHECK(row.at("operation") == "all_reduce");
  CHECK(row.at("calls") == 1);
  CHECK(row.at("bytes") == 64);
  CHECK(row.at("algorithm_bandwidth") == 6.4e7);
  CHECK(row.at("bus_bandwidth") == 6.4e7);
  CHECK(row.at("exposed_share") == 0.25);
  CHECK(std::abs(row.at("p99_ns").get<double>() - 1000) <= 1000 * TimeHistogram::relative_error);
  CHECK(row.at("wire").size() == 1);
  CHECK(row.at("wire").at("shared one-pass").at("received") == 32);
  statistics.rank = -1;
  statistics.operations.clear();
  auto const empty = nlohmann::json::parse(comm::to_json(statistics));
  CHECK(empty.at("rank").is_null());
  CHECK(empty.at("operations").empty());
}

TEST_CASE("the table has a line for each operation and for each way that it went") {
  Statistics statistics;
  statistics.communicator = "world";
  statistics.size = 2;
  statistics.wall_ns = 2'000'000;
  OperationStatistics one{.operation = "all_reduce", .calls = 3, .bytes = 3'000'000, .time_ns = 1'000'000,
                          .exposed_ns = 1'000'000};
  one.times.add(20);
  one.wire[static_cast<int>(Algorithm::library)] = {3, 3'000'000, 12};
  statistics.operations.push_back(one);
  CHECK(comm::to_table(statistics) ==
        "communicator world, rank 0 of 2, 2.00 ms, exposed 50.0 %\n"
        "operation                 calls      bytes        p50        p99    algbw/s    busbw/s    exposed\n"
        "all_reduce                    3    3.00 MB    20.0 ns    20.0 ns    3.00 GB    3.00 GB     50.0 %\n"
        "  library                     3    3.00 MB       sent     12.0 B   received\n");
  statistics.ranks = 2;
  statistics.rank = -1;
  statistics.most_exposed = {0.75, 1};
  CHECK(test::contains(comm::to_table(statistics),
                       "sums over 2 ranks, 1.00 ms, exposed 50.0 % (rank 0 0.0 % to rank 1 75.0 %)"));
}
