// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What the laws of devices do not show: that copies run beside the ranks' work, what is kept, what a mistake or a
/// failure on the way leads to.
// Covers: <tutti/comm/staged.hpp>
// Covers: <tutti/testing/laws/devices.hpp>
// Covers: <tutti/comm/staging.hpp>
// Covers: <tutti/comm/collective_job.hpp>

#include "comm/messages_only.hpp"
#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/fault_injector.hpp>
#include <tutti/comm/statistics.hpp>
#include <tutti/comm/traced.hpp>
#include <tutti/testing/laws/devices.hpp>
#include <tutti/testing/recording.hpp>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using test::QueuedDevice;
using test::TestDevice;

namespace {

constexpr std::int64_t part = (64 << 10) / 4;  // elements, where the backend says nothing else

Tensor<float, QueuedDevice> on_device(std::int64_t size, float value = 1) {
  return to_device(full<float>(Shape{size}, value), QueuedDevice{});
}
void check_nothing_is_left() {
  auto const counts = TestDevice::counts();
  CHECK(counts.errors == 0);
  CHECK(counts.under_way == 0);
  CHECK(counts.pinned_bytes == 0);
  CHECK(counts.live_bytes == 0);
}
/// What the ranks get for what they do, a text for each; empty for no error. `ends`: their errors end the run.
template <class F>
std::vector<std::string> errors(int ranks, F&& f, bool ends = false) {
  std::vector<std::string> found(static_cast<std::size_t>(ranks));
  try {
    threads::run(ranks, [&](auto& comm) {
      try {
        f(comm);
      } catch (Error const& error) {
        found[static_cast<std::size_t>(comm.rank())] = error.what();
        if (ends) throw;
      }
    });
  } catch (Error const&) {
  }
  return found;
}

}  // namespace

TEST_CASE("four parts are copied in before the other ranks come, and the rest while they work") {
  TestDevice::reset();
  std::atomic<bool> seen = false;
  test::DeviceCounts early;
  threads::run(2, [&](auto& comm) {
    auto x = on_device(10 * part, static_cast<float>(comm.rank() + 1));
    comm.barrier();
    if (comm.rank() == 1)
      while (!seen) std::this_thread::yield();
    int const before = TestDevice::counts().copies_to_host;
    auto request = comm.all_reduce_async(std::move(x), sum);
    if (comm.rank() == 0) {
      bool complete = false;
      for (int look = 0; look < 100; ++look) complete |= request.test();
      if (complete) throw Error(ErrorKind::internal, "test", "complete without the other rank");
      early = TestDevice::counts();
      early.copies_to_host -= before;
      seen = true;
    }
    auto const sum_of_both = to_host(request.wait());
    for (std::int64_t i = 0; i < sum_of_both.size(); ++i)
      if (sum_of_both.data()[i] != 3) throw Error(ErrorKind::internal, "test", "a wrong sum");
  });
  CHECK(early.copies_to_host == 4);
  CHECK(early.copies_from_host == 2);  // of what the ranks put into their tensors
  check_nothing_is_left();
}

TEST_CASE("staging memory is pinned once, and kept for the next call") {
  TestDevice::reset();
  std::vector<std::size_t> pinned;
  threads::run(1, [&](auto& comm) {
    auto x = on_device(10 * part);
    for (int call = 0; call < 3; ++call) {
      comm.all_reduce(x, sum);
      pinned.push_back(TestDevice::counts().pinned_bytes);
    }
    comm.all_reduce(x.view().slice(0, 0, 5), sum);
    pinned.push_back(TestDevice::counts().pinned_bytes);
  });
  CHECK(pinned == std::vector<std::size_t>(4, 4 * (64 << 10)));
  check_nothing_is_left();
}

TEST_CASE("ranks that disagree on device memory are told the counts of their whole calls") {
  TestDevice::reset();
  auto const found = errors(2, [](auto& comm) {
    auto x = on_device(comm.rank() == 0 ? 4 * part : 5 * part);
    comm.all_reduce(x, sum);
  });
  for (auto const& text : found) {
    INFO(text);
    CHECK(text.find("count 65536 in device memory") != std::string::npos);
    CHECK(text.find("count 81920 in device memory") != std::string::npos);
    CHECK(text.find("staged.cpp") != std::string::npos);
  }
  check_nothing_is_left();
}

TEST_CASE("host memory on one rank and device memory on another are told apart, whatever their size") {
  TestDevice::reset();
  for (std::int64_t const size : {std::int64_t{3}, 3 * part}) {
    auto const found = errors(2, [&](auto& comm) {
      if (comm.rank() == 0) {
        auto x = on_device(size);
        comm.broadcast(x);
      } else {
        auto x = zeros<float>(Shape{size});
        comm.broadcast(x);
      }
    });
    for (auto const& text : found) {
      INFO(text);
      CHECK(text.find("rank 0 calls broadcast(root 0, float32, count " + std::to_string(size) + " in device memory)") !=
            std::string::npos);
      CHECK(text.find("rank 1 calls broadcast(root 0, float32, count " + std::to_string(size) + ")") !=
            std::string::npos);
    }
  }
  check_nothing_is_left();
}

TEST_CASE("a deadline that passes between parts names who is missing, and leaves nothing under way") {
  TestDevice::reset();
  auto const found = errors(3, [](auto& comm) {
    comm.set_deadline_seconds(0.3);
    auto x = on_device(6 * part);
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    comm.all_reduce(x, sum);
  });
  for (std::size_t rank : {0u, 1u}) {
    INFO(found[rank]);
    CHECK(found[rank].find("missing: 2") != std::string::npos);
  }
  CHECK_FALSE(found[2].empty());
  check_nothing_is_left();
}

namespace {

/// One look at a copy fails, or one pinning.
struct FailingDevice : QueuedDevice {
  static constexpr std::string_view name = "failing";
  static inline std::atomic<int> looks = 0;   // until that look; 0: none fails
  static inline std::atomic<int> pins = 0;    // until that one
  static inline std::atomic<bool> odd = false;  // throws what is no Error
  bool test(Copy& copy) const {
    if (looks > 0 && --looks == 0) {
      if (odd) throw std::runtime_error("out of order");
      throw Error(ErrorKind::communication, "FailingDevice", "the device has failed");
    }
    return QueuedDevice::test(copy);
  }
  void pin(void* memory, std::size_t bytes) const {
    if (pins > 0 && --pins == 0) throw Error(ErrorKind::out_of_memory, "FailingDevice", "cannot pin");
    QueuedDevice::pin(memory, bytes);
  }
  friend bool operator==(FailingDevice, FailingDevice) = default;
};
Tensor<float, FailingDevice> on_failing(std::int64_t size, float value = 1) {
  return to_device(full<float>(Shape{size}, value), FailingDevice{});
}

}  // namespace

TEST_CASE("a copy that fails ends the call on every rank") {
  TestDevice::reset();
  for (bool const odd : {false, true}) {
    FailingDevice::looks = 7;
    FailingDevice::odd = odd;
    auto const found = errors(2, [](auto& comm) {
      auto x = on_failing(6 * part);
      comm.all_reduce(x, sum);
    });
    FailingDevice::looks = 0;
    FailingDevice::odd = false;
    for (auto const& text : found) {
      INFO(text);
      CHECK(text.find(odd ? "the device failing failed: out of order" : "the device has failed") != std::string::npos);
    }
  }
  check_nothing_is_left();
}

TEST_CASE("a dropped call that fails on one rank is told to all, and what comes behind it does not take its place") {
  TestDevice::reset();
  auto const found = errors(2, [](auto& comm) {
    auto y = on_failing(3, 100);
    if (comm.rank() == 0) FailingDevice::pins = 1;
    comm.barrier();
    if (comm.rank() == 0) {
      static_cast<void>(comm.all_reduce_async(on_failing(3), sum));
      FailingDevice::pins = 0;
    } else {
      while (FailingDevice::pins != 0) std::this_thread::yield();
      static_cast<void>(comm.all_reduce_async(on_failing(3), sum));
    }
    comm.all_reduce(y, sum);
  });
  for (auto const& text : found) {
    INFO(text);
    CHECK(text.find("all_reduce failed on rank 0: cannot pin") != std::string::npos);
  }
  check_nothing_is_left();
}

TEST_CASE("who waits behind a call that has failed is told at once why, and so are the others") {
  TestDevice::reset();
  auto const begin = std::chrono::steady_clock::now();
  auto const behind = errors(2, [](auto& comm) {
    comm.barrier();
    if (comm.rank() == 0) FailingDevice::looks = 1;
    auto kept = comm.all_reduce_async(on_failing(6 * part), sum);
    comm.barrier();
    kept.wait();
  });
  FailingDevice::looks = 0;
  for (auto const& text : behind) {
    INFO(text);
    CHECK(text.find("the device has failed") != std::string::npos);
  }
  auto const thrown = errors(3, [](auto& comm) {
    comm.barrier();
    if (comm.rank() == 2) throw Error(ErrorKind::format, "load", "the file is empty");
    auto first = comm.all_reduce_async(on_device(6 * part), sum);
    auto second = comm.all_gather_async(on_device(2 * part));
    second.wait();
    first.wait();
  }, true);
  for (std::size_t rank : {0u, 1u}) {
    INFO(thrown[rank]);
    CHECK(thrown[rank].find("the file is empty") != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // the deadline is 600
  check_nothing_is_left();
}

TEST_CASE("contributions and blocks share the staging memory of a part") {
  TestDevice::reset();
  std::size_t pinned = 0;
  threads::run(1, [&](auto& comm) {
    auto const x = to_device(full<float>(Shape{100, 4096}, 1), QueuedDevice{});
    auto const sums = to_host(comm.all_reduce_contributions(x, sum));
    if (sums(0) != 100) throw Error(ErrorKind::internal, "test", "a wrong sum");
    pinned = TestDevice::counts().pinned_bytes;
  });
  CHECK(pinned <= 8 * (std::size_t{100} * 4096));  // 4 KiB of each contribution in each of four parts, and its results
  check_nothing_is_left();
}

TEST_CASE("results live where the buffers do") {
  TestDevice::reset();
  threads::run(2, [&](auto& comm) {
    auto gradient = on_device(3, 4);
    auto const x = on_device(2 * part);
    auto mean = comm.all_reduce_async(std::move(gradient), avg);  // owns a Tensor<float, QueuedDevice>
    auto rows = comm.all_gather(x);                               // Tensor<float, QueuedDevice>, shape (P, ...)
    static_assert(std::same_as<decltype(mean.wait()), Tensor<float, QueuedDevice>>);
    static_assert(std::same_as<decltype(rows), Tensor<float, QueuedDevice>>);
    if (!(rows.shape() == Shape{2, 2 * part}) || to_host(mean.wait())(2) != 4)
      throw Error(ErrorKind::internal, "test", "wrong results");
  });
  check_nothing_is_left();
}

TEST_CASE("a call on device memory is one operation for statistics, flight recorder and recording") {
  threads::run(2, [&](auto& comm) {
    comm.start_statistics();
    auto const operations = comm.flight_recorder().operations();
    auto x = on_device(6 * part);
    comm.all_reduce(x, sum);
    if (comm.flight_recorder().operations() != operations + 1) throw Error(ErrorKind::internal, "test", "recorded");
    auto const statistics = comm.statistics();
    for (auto const& row : statistics.operations)
      if (std::string_view(row.operation) == "all_reduce" && (row.calls != 1 || row.bytes != 6 * part * 4))
        throw Error(ErrorKind::internal, "test", "counted");
  });
  Communicator<Recording> comm(Recording(0, 4));
  auto x = on_device(6 * part);
  comm.all_reduce(x, sum);
  comm.backend().expect({{.operation = "all_reduce", .dtype = DType::float32, .count = 6 * part, .op = Operator::sum}});
}

TEST_CASE("device memory passes through decorators, and through a backend that has messages alone") {
  TestDevice::reset();
  for (int ranks = 1; ranks <= 3; ++ranks) {
    std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& plain) {
      auto injected = decorated<FaultInjector>(plain, FaultPlan{});
      auto comm = decorated<Traced>(injected);
      laws::device_collectives<QueuedDevice, float>(comm, reports[static_cast<std::size_t>(plain.rank())]);
    });
    std::vector<laws::Report> by_messages(static_cast<std::size_t>(ranks));
    test::run_messages_only(ranks, [&](auto& comm) {
      auto& report = by_messages[static_cast<std::size_t>(comm.rank())];
      laws::device_collectives<QueuedDevice, std::int32_t>(comm, report);
      laws::device_forms<QueuedDevice>(comm, report);
      laws::device_vectors<QueuedDevice, float>(comm, report);
    });
    reports.insert(reports.end(), by_messages.begin(), by_messages.end());
    for (auto const& report : reports) {
      INFO(report.text);
      CHECK(report.checks > 100);
      CHECK(report.failures == 0);
    }
  }
  check_nothing_is_left();
}
