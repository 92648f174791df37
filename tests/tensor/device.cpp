// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/device.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <cstdint>
#include <limits>
#include <vector>

using namespace tutti;

static_assert(Device<Cpu> && Device<test::TestDevice> && !Device<int>);
static_assert(Cpu::host_accessible && !test::TestDevice::host_accessible);

TEMPLATE_TEST_CASE("a device gives aligned memory and returns the bytes it was given", "", Cpu, test::TestDevice) {
  TestType const device{};
  CHECK(device.allocate(0) == nullptr);
  device.deallocate(nullptr, 0);
  for (std::size_t bytes : {1u, 2u, 63u, 64u, 65u, 4095u, 4096u, 100001u}) {
    void* const memory = device.allocate(bytes);
    void* const other = device.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % storage_alignment == 0);
    std::vector<unsigned char> sent(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<unsigned char>(i * 7 + 1);
    std::vector<unsigned char> received(bytes);
    device.copy_from_host(memory, sent.data(), bytes);
    device.copy_within(other, memory, bytes);
    device.copy_to_host(received.data(), other, bytes);
    CHECK(received == sent);
    device.copy_within(nullptr, nullptr, 0);
    device.copy_from_host(nullptr, nullptr, 0);
    device.copy_to_host(nullptr, nullptr, 0);
    device.deallocate(memory, bytes);
    device.deallocate(other, bytes);
  }
  REQUIRE_ERROR(device.allocate(std::numeric_limits<std::size_t>::max() - 10), ErrorKind::out_of_memory, "bytes");
}

TEST_CASE("the instrumented device notices wrong use") {
  test::TestDevice::reset();
  test::TestDevice const device{};
  void* const memory = device.allocate(100);
  char byte = 0;
  device.copy_to_host(&byte, static_cast<char*>(memory) + 100, 1);
  device.deallocate(memory, 99);
  CHECK(test::TestDevice::counts().errors == 2);
  device.deallocate(memory, 100);
  CHECK(test::TestDevice::counts().live_bytes == 0);
  CHECK(test::TestDevice{0} != test::TestDevice{1});
  test::TestDevice::reset();
}
