// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many ranks still hold a block of memory that they have together: a count behind its last byte.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace tutti::comm::shared {

class Holders {
 public:
  /// Of a block and its count.
  static constexpr std::size_t total_bytes(std::size_t bytes) noexcept { return rounded(bytes) + 64; }
  static Holders* create(void* memory, std::size_t bytes, int ranks) noexcept {
    return ::new (static_cast<std::byte*>(memory) + rounded(bytes)) Holders(ranks);
  }
  static Holders* of(void* memory, std::size_t bytes) noexcept {
    return std::launder(reinterpret_cast<Holders*>(static_cast<std::byte*>(memory) + rounded(bytes)));
  }

  /// True for the last one; what the others did to the block has happened before.
  bool let_go() noexcept { return left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool none() const noexcept { return left_.load(std::memory_order_acquire) == 0; }

 private:
  explicit Holders(int ranks) noexcept : left_(ranks) {}
  static constexpr std::size_t rounded(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  std::atomic<std::int32_t> left_;
};
static_assert(std::atomic<std::int32_t>::is_always_lock_free);

}  // namespace tutti::comm::shared
