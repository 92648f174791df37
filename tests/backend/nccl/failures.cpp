// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What goes wrong: NCCL, a device, a rank, a program. Every rank gets an Error in time, and nothing is left.

// Covers: <tutti/backend/nccl/engine.hpp> <tutti/backend/nccl/error.hpp> <tutti/backend/nccl/config.hpp>
#include "backend/nccl/harness.hpp"

#include <tutti/tensor/copy.hpp>

#include <exception>
#include <stdexcept>

using namespace tutti;
using emulated::nccl::Faults;
using test::run_on_devices;

namespace {

struct Outcome {
  bool failed = false;
  ErrorKind kind = ErrorKind::internal;
  int rank = -1;
  std::string text;
  std::string native;
};

/// f on `ranks` ranks whose device calls end after 0.5 s; what each of them caught.
template <class F>
std::vector<Outcome> outcomes(int ranks, Faults const& faults, F&& f, NcclConfig config = {}) {
  emulated::nccl::reset(faults);
  std::vector<Outcome> result(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& outer) {
    Outcome& mine = result[static_cast<std::size_t>(outer.rank())];
    try {
      auto comm = decorated<NcclOn>(outer, Cuda(device_of(outer, cuda::device_count()).device), config);
      comm.set_deadline_seconds(0.5);
      f(comm);
    } catch (Error const& error) {
      mine = {true, error.kind(), error.rank(), error.what(), error.native()};
    }
  });
  auto const counts = emulated::nccl::counts();
  INFO("misuse: " << counts.misuse);
  CHECK(counts.misuses == 0);
  CHECK(counts.communicators == 0);
  CHECK(counts.registered + counts.windows == 0);
  CHECK(counts.allocated == 0);
  emulated::nccl::reset();
  return result;
}

auto const sums = [](auto& comm) {
  for (int round = 0; round < 3; ++round) {
    auto x = to_device(full<float>(Shape{1000}, 1.0f), comm.backend().accelerator());
    comm.all_reduce(x, sum);
  }
};

}  // namespace

TEST_CASE("A device that stalls ends at the deadline, on every rank") {
  auto const found = outcomes(3, {.failing_rank = 1, .stalls_after = 1}, sums);
  int timeouts = 0;
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.failed);
    CHECK(test::contains(outcome.text, "all_reduce"));
    CHECK(test::contains(outcome.text, "NCCL has not completed all_reduce(sum, float32, count 1000 on the device)"));
    if (outcome.kind == ErrorKind::timeout) ++timeouts;
  }
  CHECK(timeouts >= 1);
}

TEST_CASE("A communicator that NCCL fails is aborted on every rank, with NCCL's text") {
  auto const found = outcomes(3, {.failing_rank = 2, .fails_after = 1, .stalls_after = 1}, sums);
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.failed);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "NCCL failed: remote process exited or there was a network error"));
  }
  CHECK(test::contains(found[2].native, "connection closed by remote peer"));
  CHECK(test::contains(found[0].text, "rank 2"));
}

TEST_CASE("A call that NCCL refuses fails on every rank") {
  auto const found = outcomes(2, {.failing_rank = 0, .refuses_after = 2}, sums);
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.failed);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "internal error"));
  }
}

TEST_CASE("A window that does not come about ends in time, and its memory lives until the communicator was aborted") {
  for (Outcome const& one : outcomes(
           2, Faults{.stalls_windows = true}, [](auto& comm) { symmetric_tensor<float>(comm, {100}); },
           {.start_seconds = 1})) {
    CHECK(one.failed);
    CHECK(one.kind == ErrorKind::timeout);
  }
}

TEST_CASE("Ranks that do not meet in NCCL are told so in time") {
  auto const found = outcomes(3, {.absent_rank = 1}, sums, {.start_seconds = 0.4});
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.failed);
    CHECK((outcome.kind == ErrorKind::timeout || outcome.kind == ErrorKind::communication));
    CHECK(test::contains(outcome.text, "the 3 ranks have not met in NCCL after 0.4"));
  }
}

TEST_CASE("Several ranks on one device need an NCCL that allows it") {
  auto const found = outcomes(3, {.shares_devices = false}, sums);
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "invalid usage"));
  }
  CHECK(test::contains(found[0].native, "Duplicate GPU detected"));
}

TEST_CASE("A library that is older than its header is refused with a sentence") {
  auto const found = outcomes(2, {.version = 21903}, sums);
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.kind == ErrorKind::unavailable);
    CHECK(test::contains(outcome.text, "built with the header of NCCL 2.28.9 and runs on NCCL 2.19.3"));
  }
}

TEST_CASE("Calls that differ are told before NCCL sees them") {
  auto const found = outcomes(2, {}, [](auto& comm) {
    auto x = to_device(full<float>(Shape{comm.rank() == 0 ? 8 : 4}, 1.0f), comm.backend().accelerator());
    comm.all_reduce(x, sum);
  });
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "count 8 on the device"));
    CHECK(test::contains(outcome.text, "count 4 on the device"));
  }
}

TEST_CASE("A buffer in host memory on one rank alone is told") {
  auto const found = outcomes(2, {}, [](auto& comm) {
    auto x = full<float>(Shape{5000}, 1.0f);
    auto y = to_device(x, comm.backend().accelerator());
    if (comm.rank() == 0) comm.all_reduce(x, sum);
    else comm.all_reduce(y, sum);
  });
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "rank 0 calls all_reduce(sum, float32, count 5000) at"));
    CHECK(test::contains(outcome.text, "rank 1 calls all_reduce(sum, float32, count 5000 on the device)"));
  }
}

TEST_CASE("A rank that does not call is named") {
  auto const found = outcomes(3, {}, [](auto& comm) {
    auto x = to_device(full<float>(Shape{10}, 1.0f), comm.backend().accelerator());
    if (comm.rank() == 2) comm.barrier();
    comm.all_reduce(x, sum);
  });
  for (Outcome const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.kind == ErrorKind::communication);
    CHECK(test::contains(outcome.text, "rank 2 calls barrier"));
  }
}

TEST_CASE("A rank that throws ends the others' device calls") {
  emulated::nccl::reset();
  REQUIRE_ERROR(run_on_devices(3,
                               [](auto& comm) {
                                 auto x = to_device(full<float>(Shape{10}, 1.0f), comm.backend().accelerator());
                                 comm.all_reduce(x, sum);
                                 if (comm.rank() == 1) throw std::runtime_error("out of luck");
                                 comm.all_reduce(x, sum);
                               }),
                ErrorKind::communication, "out of luck");
  test::check_clean();
}

TEST_CASE("A buffer on another device than the communicator's is refused") {
  emulated::nccl::reset();
  run_on_devices(2, [](auto& comm) {
    auto x = to_device(full<float>(Shape{10}, 1.0f), Cuda(1 - comm.backend().accelerator().index()));
    try {
      comm.all_reduce(x, sum);
      throw std::logic_error("not refused");
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::device) throw;
    }
    auto y = to_device(full<float>(Shape{10}, 1.0f), comm.backend().accelerator());
    comm.all_reduce(y, sum);  // nothing was started
  });
  test::check_clean();
}
