// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/exec/cuda/stream.hpp> <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include "support/catch.hpp"

#include <string>
#include <utility>
#include <vector>

using namespace tutti;

TEST_CASE("an error of CUDA has its text, its name, its call and the caller's line") {
  unsigned const line = __LINE__ + 2;
  try {
    cuda::Stream const stream(cuda::Stream(0).device() + 1000);
    FAIL("there is no device 1000");
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    CHECK(test::contains(error.message(), "cudaSetDevice failed"));
    CHECK(test::contains(error.native(), "invalid device ordinal"));
    CHECK(test::contains(error.native(), "cudaErrorInvalidDevice"));
    CHECK(error.where().line() == line);
    CHECK(test::contains(error.where().file_name(), "stream.cpp"));
  }
  CHECK(cudaGetLastError() == cudaSuccess);  // it was taken with the exception
}

TEST_CASE("the current device is as before after every scope") {
  int before = -1, after = -1;
  REQUIRE(cudaGetDevice(&before) == cudaSuccess);
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  {
    cuda::CurrentDevice const current(count - 1);
    int inside = -1;
    CHECK(cudaGetDevice(&inside) == cudaSuccess);
    CHECK(inside == count - 1);
  }
  CHECK(cudaGetDevice(&after) == cudaSuccess);
  CHECK(after == before);
}

TEST_CASE("an event orders two streams, and stands for what was enqueued before it") {
  cuda::Stream const first(0), second(0, cuda::Stream::Priority::high);
  std::size_t const bytes = std::size_t{1} << 20;
  cuda::DeviceMemory const memory(first, bytes);
  cuda::PinnedMemory const host(bytes);
  auto const* const seen = static_cast<unsigned char const*>(host.data());
  cuda::Event const filled(0);
  CHECK(filled.done());  // it recorded nothing
  for (int turn = 1; turn < 8; ++turn) {
    cuda::Event read(0);
    cuda::fill_bytes(first, memory.data(), static_cast<unsigned char>(turn), bytes);
    filled.record(first);
    second.wait_for(filled);
    cuda::copy_to_host(second, host.data(), memory.data(), bytes);
    read.record(second);
    first.wait_for(read);
    cuda::fill_bytes(first, memory.data(), 0, bytes);
    if (turn % 2 == 0) read.wait();
    while (!read.done()) {
    }
    CHECK(static_cast<int>(seen[0]) == turn);
    CHECK(static_cast<int>(seen[bytes - 1]) == turn);
  }
  second.wait();
  CHECK(second.idle());
  while (!first.idle()) {
  }
}

TEST_CASE("events with timing measure, others refuse") {
  cuda::Stream const stream(0);
  cuda::Event const start(0, cuda::Event::Timing::on), end(0, cuda::Event::Timing::on), untimed(0);
  start.record(stream);
  end.record(stream);
  untimed.record(stream);
  stream.wait();
  float const milliseconds = cuda::milliseconds_between(start, end);
  CHECK(milliseconds >= 0.0f);
  CHECK(milliseconds < 60000.0f);
  REQUIRE_ERROR(cuda::milliseconds_between(start, untimed), ErrorKind::invalid_argument, "cudaEventElapsedTime");
}

TEST_CASE("streams and events move") {
  cuda::Stream stream(0);
  auto const native = stream.native();
  cuda::Stream other = std::move(stream);
  CHECK(other.native() == native);
  CHECK(stream.native() == nullptr);
  stream = std::move(other);
  CHECK(stream.native() == native);
  cuda::Event event;
  CHECK(event.native() == nullptr);
  event = cuda::Event(0);
  event.record(stream);
  event.wait();
  CHECK(event.done());
}

TEST_CASE("events measure every run of captured work, and work that is not captured") {
  cuda::Stream const stream(0);
  cuda::Event const start(0, cuda::Event::Timing::on), end(0, cuda::Event::Timing::on);
  cuda::DeviceMemory const memory(stream, 4096);
  auto const enqueue = [&] {
    start.record_in_runs(stream);
    cuda::fill_bytes(stream, memory.data(), 1, 4096);
    end.record_in_runs(stream);
  };
  enqueue();
  stream.wait();
  CHECK(cuda::milliseconds_between(start, end) >= 0.0f);
  cuda::Graph const graph = cuda::Graph::capture(stream, enqueue);
  CHECK(graph.size() == 3);
  for (int run = 0; run < 2; ++run) {
    graph.launch(stream);
    stream.wait();
    float const milliseconds = cuda::milliseconds_between(start, end);
    CHECK(milliseconds >= 0.0f);
    CHECK(milliseconds < 60000.0f);
  }
}

TEST_CASE("kernels overlap with the one before them on their stream, and not behind an event of another") {
  cuda::Stream stream(0);
  cuda::Stream const other(0);
  bool const can = stream.next_overlaps();
  int capability = 0;
  REQUIRE(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  CHECK(can == (capability >= 9));
  CHECK(stream.next_overlaps() == can);
  cuda::Event const event(0);
  event.record(other);
  stream.wait_for(event);
  cuda::Stream moved = std::move(stream);
  CHECK_FALSE(moved.next_overlaps());  // behind the event
  CHECK(moved.next_overlaps() == can);
  moved.forbid_overlap();
  CHECK_FALSE(moved.next_overlaps());
}
