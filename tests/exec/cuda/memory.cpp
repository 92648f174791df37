// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/cuda/memory.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <utility>
#include <vector>

using namespace tutti;

TEST_CASE("memory of a stream is aligned, movable, and free again in the stream's order") {
  cuda::Stream const stream(0);
  cuda::keep_freed_memory(0);
  std::vector<unsigned char> result(1000);
  for (int turn = 0; turn < 10; ++turn) {
    cuda::DeviceMemory memory(stream, 1000);
    CHECK(memory.bytes() == 1000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 256 == 0);
    cuda::fill_bytes(stream, memory.data(), static_cast<unsigned char>(turn), 1000);
    cuda::DeviceMemory other = std::move(memory);
    CHECK(memory.data() == nullptr);
    cuda::DeviceMemory copied(stream, 1000);
    cuda::copy_on_device(stream, copied.data(), other.data(), 1000);
    other = cuda::DeviceMemory();  // freed after the copy that was enqueued
    cuda::copy_to_host(stream, result.data(), copied.data(), 1000);
    CHECK(result == std::vector<unsigned char>(1000, static_cast<unsigned char>(turn)));
  }
}

TEST_CASE("no memory is none, and copies of nothing take any pointers") {
  cuda::Stream const stream(0);
  cuda::DeviceMemory const memory(stream, 0);
  CHECK(memory.data() == nullptr);
  cuda::PinnedMemory const pinned(0);
  CHECK(pinned.data() == nullptr);
  cuda::copy_to_device(stream, nullptr, nullptr, 0);
  cuda::copy_to_host(stream, nullptr, nullptr, 0);
  cuda::copy_on_device(stream, nullptr, nullptr, 0);
  cuda::fill_bytes(stream, nullptr, 0, 0);
  stream.wait();
}

TEST_CASE("what does not fit is said with what is free") {
  cuda::Stream const stream(0);
  REQUIRE_ERROR(cuda::DeviceMemory(stream, std::size_t{1} << 60), ErrorKind::out_of_memory, "are free");
  cuda::DeviceMemory const after(stream, 64);
  CHECK(after.data() != nullptr);
}

TEST_CASE("pinned memory is read and written beside the host") {
  cuda::Stream const stream(0);
  cuda::PinnedMemory host(4096), back(4096);
  auto* const bytes = static_cast<unsigned char*>(host.data());
  for (int index = 0; index < 4096; ++index) bytes[index] = static_cast<unsigned char>(index * 3);
  cuda::DeviceMemory const memory(stream, 4096);
  cuda::copy_to_device(stream, memory.data(), host.data(), 4096);
  cuda::copy_to_host(stream, back.data(), memory.data(), 4096);
  stream.wait();
  auto const* const seen = static_cast<unsigned char const*>(back.data());
  CHECK(std::vector<unsigned char>(seen, seen + 4096) == std::vector<unsigned char>(bytes, bytes + 4096));
  cuda::PinnedMemory const moved = std::move(back);
  CHECK(moved.bytes() == 4096);
  CHECK(back.data() == nullptr);
}
