// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Buffers on a device whose memory the host cannot touch, through host memory.

#include "backend/threads/harness.hpp"
#include "support/test_device.hpp"

#include <tutti/testing/laws/devices.hpp>

using namespace tutti;
using test::on_ranks;
using test::QueuedDevice;
using test::TestDevice;

TEST_CASE("Threads runs collectives on device memory as on the host's") {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_collectives<QueuedDevice, float>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().under_way == 0);
  CHECK(TestDevice::counts().pinned_bytes == 0);
  CHECK(TestDevice::counts().live_bytes == 0);
}

TEMPLATE_TEST_CASE("Threads runs collectives on a device that copies while the host waits", "", bool, bfloat16) {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_collectives<TestDevice, TestType>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().live_bytes == 0);
}

TEMPLATE_TEST_CASE("Threads reduces with every operator on device memory", "", float, std::int64_t) {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_reductions<QueuedDevice, TestType>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().pinned_bytes == 0);
}

TEST_CASE("Threads takes views, structs and several calls at once on device memory") {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_forms<QueuedDevice>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().pinned_bytes == 0);
}

TEST_CASE("Threads moves blocks of different sizes in device memory") {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_vectors<QueuedDevice, double>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().pinned_bytes == 0);
}

TEST_CASE("Threads sends from and to device memory") {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_messages<QueuedDevice, float>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
  CHECK(TestDevice::counts().pinned_bytes == 0);
}

TEST_CASE("Threads takes one buffer on a device and one in host memory") {
  TestDevice::reset();
  on_ranks([](auto& comm, laws::Report& report) { laws::device_mixtures<QueuedDevice>(comm, report); });
  CHECK(TestDevice::counts().errors == 0);
}
