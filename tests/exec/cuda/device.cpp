// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/cuda/device.hpp>
#include <tutti/exec/cuda/memory.hpp>

#include "cuda/support.hpp"
#include "support/catch.hpp"
#include "tensor/device_laws.hpp"

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

using namespace tutti;

static_assert(Device<Cuda> && !Cuda::host_accessible);
static_assert(std::is_nothrow_move_constructible_v<Cuda::Copy> && !std::is_copy_constructible_v<Cuda::Copy>);

TEST_CASE("Cuda is a device, with a stream of the thread and with one of its own") {
  test::device_returns_its_bytes(Cuda());
  cuda::Stream const stream(0);
  test::device_returns_its_bytes(Cuda(stream));
}

TEST_CASE("tensors on Cuda are copied with strides") {
  test::strided_views_are_copied(Cuda());
  cuda::Stream const stream(0);
  test::strided_views_are_copied(Cuda(stream));
}

TEST_CASE("devices are equal by their index") {
  cuda::Stream const stream(0);
  CHECK(Cuda() == Cuda(0));
  CHECK(Cuda(stream) == Cuda(0));
  CHECK(Cuda(1) != Cuda(0));
  CHECK(Cuda(1).index() == 1);
}

TEST_CASE("copies beside other work say when they are complete") {
  cuda::Stream const stream(0);
  for (Cuda const device : {Cuda(0), Cuda(stream)}) {
    // Pages are pinned, so each has its own.
    struct alignas(4096) Page {
      int values[1024];
    };
    std::vector<Page> pages(2);
    std::span<int> const sent = pages[0].values, received = pages[1].values;
    for (int index = 0; index < 1000; ++index) sent[static_cast<std::size_t>(index)] = index * index;
    std::size_t const bytes = 1000 * sizeof(int);
    device.pin(sent.data(), bytes);
    device.pin(received.data(), bytes);
    void* const memory = device.allocate(bytes);
    Cuda::Copy none;
    CHECK(device.test(none));
    Cuda::Copy there = device.start_copy_from_host(memory, sent.data(), bytes);
    Cuda::Copy back = device.start_copy_to_host(received.data(), memory, bytes);
    while (!device.test(back)) {
    }
    CHECK(device.test(there));
    CHECK(device.test(back));
    CHECK(std::equal(sent.begin(), sent.begin() + 1000, received.begin()));
    Cuda::Copy nothing = device.start_copy_to_host(nullptr, nullptr, 0);
    CHECK(device.test(nothing));
    device.deallocate(memory, bytes);
    device.unpin(sent.data(), bytes);
    device.unpin(received.data(), bytes);
    device.pin(nullptr, 0);
    device.unpin(nullptr, 0);
  }
}

TEST_CASE("ranks of a node take its devices in turn") {
  int const count = cuda::device_count();
  REQUIRE(count > 0);
  CHECK(cuda::device_of(0) == Cuda(0));
  CHECK(cuda::device_of(count) == Cuda(0));
  CHECK(cuda::device_of(2 * count - 1) == Cuda(count - 1));
  REQUIRE_ERROR(cuda::device_of(-1), ErrorKind::invalid_argument, "rank -1");
  REQUIRE_ERROR(Cuda(count).allocate(64), ErrorKind::unavailable, "cudaSetDevice");
}
