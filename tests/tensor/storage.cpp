// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/storage.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <type_traits>
#include <utility>

using namespace tutti;
using test::TestDevice;

static_assert(!std::is_copy_constructible_v<Storage<Cpu>> && std::is_nothrow_move_constructible_v<Storage<Cpu>> &&
              std::is_nothrow_move_assignable_v<Storage<Cpu>> && std::is_nothrow_destructible_v<Storage<Cpu>>);

TEST_CASE("storage returns its memory to the device once, however it is moved") {
  TestDevice::reset();
  std::size_t const before = TestDevice::counts().live_bytes;
  {
    Storage<TestDevice> a(TestDevice{3}, 100);
    Storage<TestDevice> b(std::move(a));
    CHECK(a.data() == nullptr);  // NOLINT
    CHECK(a.bytes() == 0);
    CHECK(b.bytes() == 100);
    CHECK(b.device().index == 3);
    Storage<TestDevice> c(TestDevice{4}, 50);
    c = std::move(b);
    CHECK(TestDevice::counts().live_bytes == before + 100);
    Storage<TestDevice>& self = c;
    c = std::move(self);
    CHECK(c.bytes() == 100);
    Storage<TestDevice> empty(TestDevice{}, 0);
    CHECK(empty.data() == nullptr);
  }
  CHECK(TestDevice::counts().live_bytes == before);
  CHECK(TestDevice::counts().allocations == TestDevice::counts().deallocations);
  CHECK(TestDevice::counts().errors == 0);
}

TEST_CASE("foreign memory is given back through its own function, once, also when it is empty") {
  struct Owner {
    int released = 0;
    std::size_t bytes = 0;
  };
  auto const release = [](void* owner, Cpu const&, void*, std::size_t bytes) noexcept {
    ++static_cast<Owner*>(owner)->released;
    static_cast<Owner*>(owner)->bytes = bytes;
  };
  Owner full;
  Owner empty;
  alignas(64) char memory[64];
  {
    Storage<Cpu> a({}, memory, 64, release, &full);
    Storage<Cpu> b;
    b = std::move(a);
    Storage<Cpu> c({}, nullptr, 0, release, &empty);
    Storage<Cpu> borrowed({}, memory, 64, nullptr, nullptr);
    CHECK(borrowed.data() == memory);
    CHECK(full.released == 0);
  }
  CHECK(full.released == 1);
  CHECK(full.bytes == 64);
  CHECK(empty.released == 1);
}
