// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Host memory that collectives pin for a device's copies.
// Covers: <tutti/comm/staging.hpp>
#include <tutti/comm/staging.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/exec/cuda/memory.hpp>

#include "cuda/support.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

using namespace tutti;

namespace {

using Pinned = comm::PinnedMemory<Cuda>;

bool is_pinned(void const* memory) {
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, memory) == cudaSuccess);
  return attributes.type == cudaMemoryTypeHost;
}

/// The same memory for several blocks, one after another: it belongs to nobody.
struct Ground {
  std::vector<std::byte> bytes = std::vector<std::byte>(Pinned::room(100));
  Storage<Cpu> lent() {
    return Storage<Cpu>(Cpu{}, bytes.data(), bytes.size(), [](void*, Cpu const&, void*, std::size_t) noexcept {},
                        nullptr);
  }
};

}  // namespace

TEST_CASE("pinned blocks have whole pages for themselves, wherever their memory lies") {
  std::vector<Pinned> blocks;
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{100}, std::size_t{4096}, std::size_t{4097}}) {
    blocks.emplace_back(Cuda(0), Storage<Cpu>(Cpu{}, Pinned::room(bytes)), bytes);
    Pinned const& block = blocks.back();
    CHECK(block.bytes() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 4096 == 0);
    CHECK(is_pinned(block.data()));
    CHECK(is_pinned(static_cast<std::byte*>(block.data()) + bytes - 1));
  }
  cuda::Stream const stream(0);
  cuda::DeviceMemory const memory(stream, 4097);
  Pinned& last = blocks.back();
  std::memset(last.data(), 7, 4097);
  cuda::copy_to_device(stream, memory.data(), last.data(), 4097);
  cuda::copy_to_host(stream, blocks[2].data(), memory.data(), 4096);
  stream.wait();
  CHECK(static_cast<unsigned char const*>(blocks[2].data())[4095] == 7);
}

TEST_CASE("a pinned block lets go of its pages once, also when it was moved") {
  Ground ground;
  for (int turn = 0; turn < 2; ++turn) {  // the second one could not pin what the first has kept
    Pinned block(Cuda(0), ground.lent(), 100);
    void* const data = block.data();
    Pinned moved = std::move(block);
    CHECK(block.data() == nullptr);
    CHECK(moved.data() == data);
    CHECK(is_pinned(data));
    Pinned assigned;
    assigned = std::move(moved);
    CHECK(is_pinned(data));
    assigned = Pinned();
    CHECK_FALSE(is_pinned(data));
  }
}

TEST_CASE("pages that are pinned already are refused, and stay pinned") {
  Ground ground;
  Pinned const first(Cuda(0), ground.lent(), 100);
  CHECK_THROWS_AS(Pinned(Cuda(0), ground.lent(), 100), Error);
  CHECK(is_pinned(first.data()));
}

TEST_CASE("a pinned block of nothing pins nothing") {
  CHECK(Pinned::room(0) == 0);
  Pinned const none(Cuda(0), Storage<Cpu>(Cpu{}, 0), 0);
  CHECK(none.bytes() == 0);
}
