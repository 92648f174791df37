// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where messages to one rank of a node arrive: a ring of slots that any rank writes and its owner reads in order. A
/// small message travels in its slot, so that it costs its sender a store and its receiver one cache line. It holds no
/// pointers of its own, so that it works in memory that every process maps elsewhere.

#include <tutti/comm/collective.hpp>
#include <tutti/core/dtype.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::comm::shared {

/// One message: its envelope and its contents.
struct alignas(64) MessageSlot {
  static constexpr std::int64_t inline_bytes = 8216;  ///< up to 8 KiB; slots are no power of two apart
  std::atomic<std::uint64_t> ready{0};  ///< number of the message + 1
  std::int64_t bytes = 0;
  std::int32_t source = 0;
  std::int32_t tag = 0;
  DType dtype = DType::byte;
  Channel channel = Channel::user;
  alignas(8) std::byte contents[inline_bytes];
};
static_assert(sizeof(MessageSlot) == 8256);

/// Messages of one source stay in order. Made in memory that starts as this object does.
class alignas(64) MessageRing {
 public:
  static constexpr std::uint64_t slots = 16;

  /// The number of the message, for `commit`; `full` where the owner is behind by a whole ring.
  static constexpr std::uint64_t full = ~std::uint64_t{0};
  std::uint64_t claim() noexcept {
    std::uint64_t number = written_.load(std::memory_order_relaxed);
    do {
      if (number < free_until_.load(std::memory_order_acquire)) continue;
      // Looked up only when it seems full: the owner writes that word for each message.
      std::uint64_t const free_until = read_.load(std::memory_order_acquire) + slots;
      if (number >= free_until) return full;
      free_until_.store(free_until, std::memory_order_release);
    } while (!written_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
    return number;
  }
  MessageSlot& slot(std::uint64_t number) noexcept { return slots_[number % slots]; }
  void commit(std::uint64_t number) noexcept { slot(number).ready.store(number + 1, std::memory_order_release); }
  /// Messages that were claimed so far.
  std::uint64_t claimed() const noexcept { return written_.load(std::memory_order_acquire); }

  // The owner's.

  /// The next message; null while there is none.
  MessageSlot* next() noexcept {
    std::uint64_t const number = read_.load(std::memory_order_relaxed);
    MessageSlot& first = slot(number);
    return first.ready.load(std::memory_order_acquire) == number + 1 ? &first : nullptr;
  }
  /// Has done with it.
  void pop() noexcept { read_.store(read_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  std::uint64_t taken() const noexcept { return read_.load(std::memory_order_relaxed); }
  /// Calls f(slot) for the messages that have come, without taking them.
  template <class F>
  void visit(F&& f) noexcept {
    for (std::uint64_t number = taken(); slot(number).ready.load(std::memory_order_acquire) == number + 1; ++number)
      f(slot(number));
  }

 private:
  std::atomic<std::uint64_t> written_{0};
  std::atomic<std::uint64_t> free_until_{slots};
  alignas(64) std::atomic<std::uint64_t> read_{0};
  MessageSlot slots_[slots];
};

}  // namespace tutti::comm::shared
