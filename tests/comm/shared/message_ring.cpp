// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/comm/shared/message_ring.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

using tutti::comm::shared::MessageRing;
using tutti::comm::shared::MessageSlot;

TEST_CASE("a ring takes as many messages as it has slots, and one more for each that its owner has read") {
  auto const ring = std::make_unique<MessageRing>();
  CHECK(ring->next() == nullptr);
  for (std::uint64_t i = 0; i < MessageRing::slots; ++i) {
    std::uint64_t const number = ring->claim();
    REQUIRE(number == i);
    ring->slot(number).tag = static_cast<int>(i);
    ring->commit(number);
  }
  CHECK(ring->claim() == MessageRing::full);
  int seen = 0;
  ring->visit([&](MessageSlot const& slot) { seen += slot.tag == seen; });
  CHECK(seen == static_cast<int>(MessageRing::slots));
  MessageSlot const* const first = ring->next();
  REQUIRE(first != nullptr);
  CHECK(first->tag == 0);
  ring->pop();
  CHECK(ring->taken() == 1);
  CHECK(ring->claim() == MessageRing::slots);
  CHECK(ring->claim() == MessageRing::full);
  CHECK(ring->claimed() == MessageRing::slots + 1);
}

TEST_CASE("a message that was claimed and not yet written holds up those behind it") {
  auto const ring = std::make_unique<MessageRing>();
  std::uint64_t const first = ring->claim(), second = ring->claim();
  ring->commit(second);
  CHECK(ring->next() == nullptr);
  ring->commit(first);
  REQUIRE(ring->next() != nullptr);
  ring->pop();
  CHECK(ring->next() != nullptr);
}

TEST_CASE("messages of several writers arrive whole, each writer's in order") {
  auto const ring = std::make_unique<MessageRing>();
  constexpr int writers = 3, messages = 5000;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer)
    threads.emplace_back([&ring, writer] {
      for (int k = 0; k < messages; ++k) {
        std::uint64_t number = ring->claim();
        for (; number == MessageRing::full; number = ring->claim()) std::this_thread::yield();
        MessageSlot& slot = ring->slot(number);
        slot.source = writer;
        slot.tag = k;
        slot.bytes = k % 985;
        std::memset(slot.contents, (k + writer) & 0xff, static_cast<std::size_t>(slot.bytes));
        ring->commit(number);
      }
    });
  int next[writers] = {};
  bool in_order = true, whole = true;
  for (int i = 0; i < writers * messages; ++i) {
    MessageSlot const* slot = ring->next();
    for (; slot == nullptr; slot = ring->next()) std::this_thread::yield();
    int& expected = next[slot->source];
    in_order = in_order && slot->tag == expected;
    whole = whole && slot->bytes == expected % 985;
    for (std::int64_t j = 0; j < slot->bytes; ++j)
      whole = whole && slot->contents[j] == static_cast<std::byte>((expected + slot->source) & 0xff);
    ++expected;
    ring->pop();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(in_order);
  CHECK(whole);
}
