// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/device.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"
#include "tensor/device_laws.hpp"

using namespace tutti;

static_assert(Device<Cpu> && Device<test::TestDevice> && !Device<int>);
static_assert(Cpu::host_accessible && !test::TestDevice::host_accessible);

TEMPLATE_TEST_CASE("a device gives aligned memory and returns the bytes it was given", "", Cpu, test::TestDevice) {
  test::device_returns_its_bytes(TestType{});
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
