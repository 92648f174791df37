// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/test_device.hpp"
#include "support/catch.hpp"

#include <sys/wait.h>

#include <array>
#include <csignal>

using tutti::test::TestDevice;

TEST_CASE("the test device keeps what is copied into it") {
  TestDevice device;
  TestDevice::reset();
  std::array<unsigned char, 5000> in{};
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7);
  void* a = device.allocate(in.size());
  void* b = device.allocate(in.size());
  REQUIRE(reinterpret_cast<std::uintptr_t>(a) % tutti::storage_alignment == 0);
  device.copy_from_host(a, in.data(), in.size());
  device.copy_within(static_cast<char*>(b) + 1, static_cast<char*>(a) + 2, in.size() - 2);
  std::array<unsigned char, 5000> out{};
  device.copy_to_host(out.data(), static_cast<char*>(b) + 1, in.size() - 2);
  for (std::size_t i = 0; i + 2 < in.size(); ++i) REQUIRE(out[i] == in[i + 2]);
  device.deallocate(a, in.size());
  device.deallocate(b, in.size());
  auto const counts = TestDevice::counts();
  CHECK(counts.allocations == 2);
  CHECK(counts.deallocations == 2);
  CHECK(counts.copies_from_host == 1);
  CHECK(counts.copies_within == 1);
  CHECK(counts.copies_to_host == 1);
  CHECK(counts.live_bytes == 0);
  CHECK(counts.errors == 0);
}

TEST_CASE("the test device notices copies that leave a block") {
  TestDevice device;
  TestDevice::reset();
  char host[16] = {};
  void* a = device.allocate(8);
  device.copy_from_host(static_cast<char*>(a) + 1, host, 8);
  CHECK(TestDevice::counts().errors == 1);
  device.copy_to_host(host, host, 1);
  CHECK(TestDevice::counts().errors == 2);
  device.deallocate(a, 9);
  CHECK(TestDevice::counts().errors == 3);
  device.deallocate(a, 8);
  CHECK(TestDevice::counts().live_bytes == 0);
  TestDevice::reset();
}

TEST_CASE("the host cannot read the test device's memory") {
  TestDevice device;
  void* a = device.allocate(8);
  pid_t const child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*static_cast<char volatile*>(a) == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  // A sanitizer turns the signal into an exit status of its own.
  CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) <= 1));
  device.deallocate(a, 8);
}

TEST_CASE("the test device refuses what it has not got") {
  TestDevice device;
  REQUIRE(device.allocate(0) == nullptr);
  REQUIRE_ERROR(device.allocate(TestDevice::capacity + 1), tutti::ErrorKind::out_of_memory, "the device has");
}
