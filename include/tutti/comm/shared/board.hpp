// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the ranks of one node share beside their buffers: arrivals, small payloads, staging memory, where everybody is,
/// and why the communicator failed. It holds no pointers, so that it works in memory that every process maps elsewhere.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/shared/alarm.hpp>
#include <tutti/comm/shared/bell.hpp>
#include <tutti/comm/shared/remote.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>

namespace tutti::comm::shared {

/// One rank, as the others see it.
struct alignas(64) Status {
  std::atomic<std::uint64_t> completed{0};  ///< collectives that are completely behind it
  enum : std::uint32_t { here, gone, failing };
  std::atomic<std::uint32_t> left{here};    ///< whether it has given its communicator up
  std::atomic<std::int32_t> process{0};
  std::atomic<std::uint32_t> reported{0};   ///< whether it has said why it ends
  std::atomic<std::uint32_t> heard{0};      ///< whether it knows that the communicator has failed
  std::atomic<std::uint32_t> detached{0};   ///< whether it does not touch this memory any more
  std::uint64_t token = 0, token_address = 0;  ///< by which others read its memory, see Origin
  // Rounds of staged collectives, counted over the communicator's life.
  alignas(64) std::atomic<std::uint64_t> filled{0};
  std::atomic<std::uint64_t> consumed{0};
  alignas(64) std::atomic<std::uint64_t> described{0};  ///< ticket of the call that `description` tells
  Text<248> description;
  Text<248> position;  ///< where it waits; empty while it does not wait long
  Bell bell;
};

/// One rank's part of a slot. A contribution that fits is copied in beside the arrival word, so that small collectives
/// need one hand-over and the smallest one cache line.
struct alignas(64) Entry {
  static constexpr std::int64_t inline_bytes = 1000;
  std::atomic<std::uint64_t> arrived{0};  ///< ticket: sequence number + 1
  std::uint64_t facts = 0;                ///< kind, operator, type and root
  std::int64_t count = 0;
  /// A contribution that fits. Before it the sizes of blocks, as far as the other ranks do not know them.
  alignas(8) std::byte payload[inline_bytes];
  /// Board::place of the buffers. A contribution that the payload holds is `in_payload`, where not all do that.
  static constexpr std::uint64_t in_payload = ~std::uint64_t{0};
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t address = 0;  ///< of the contribution in its own process
  alignas(64) std::atomic<std::uint64_t> done{0};  ///< ticket: this rank's share of direct work is done
  std::atomic<std::uint64_t> working{0};           ///< ticket while it touches other ranks' buffers
};

/// A view of the shared memory of one communicator of `size` ranks.
class Board {
 public:
  static constexpr std::uint64_t slots = 16;
  /// What a slot holds of the root of a broadcast, beside the entries.
  static constexpr std::int64_t root_bytes = 8192;

  Board() = default;
  /// On memory that `create` has prepared. Buffers between `base` and `base + reach` are visible to all ranks; their
  /// places are offsets from `base`. With `base` 0 and all of memory in reach, ranks share an address space.
  Board(void* memory, int size, std::int64_t stage_bytes, std::uintptr_t base, std::uint64_t reach) noexcept
      : memory_(static_cast<std::byte*>(memory)),
        size_(static_cast<std::size_t>(size)),
        entries_(memory_ + entry_offset(size_)),
        slot_bytes_(slot_bytes(size_)),
        stage_bytes_(stage_bytes),
        base_(base),
        reach_(reach) {}

  /// `stage_bytes`: of each of a rank's two staging buffers, a multiple of 64.
  static std::size_t bytes(int size, std::int64_t stage_bytes) noexcept {
    auto const ranks = static_cast<std::size_t>(size);
    return stage_offset(ranks) + ranks * 2 * static_cast<std::size_t>(stage_bytes);
  }
  /// Called by one rank, before any other looks at the memory, which is 64-byte aligned.
  template <class = void>
  static void create(void* memory, int size) {
    auto* const start = static_cast<std::byte*>(memory);
    auto const ranks = static_cast<std::size_t>(size);
    std::construct_at(reinterpret_cast<Alarm*>(start));
    for (std::size_t r = 0; r < ranks; ++r)
      std::construct_at(reinterpret_cast<Status*>(start + status_offset + r * sizeof(Status)));
    for (std::size_t slot = 0; slot < slots; ++slot)
      for (std::size_t r = 0; r < ranks; ++r)
        std::construct_at(
            reinterpret_cast<Entry*>(start + entry_offset(ranks) + slot * slot_bytes(ranks) + r * sizeof(Entry)));
  }

  int size() const noexcept { return static_cast<int>(size_); }
  std::int64_t stage_bytes() const noexcept { return stage_bytes_; }
  Alarm& alarm() const noexcept { return *reinterpret_cast<Alarm*>(memory_); }
  Status& status(int rank) const noexcept {
    return *reinterpret_cast<Status*>(memory_ + status_offset + static_cast<std::size_t>(rank) * sizeof(Status));
  }
  Entry& entry(std::uint64_t sequence, int rank) const noexcept { return entries(sequence)[rank]; }
  /// Of all ranks.
  Entry* entries(std::uint64_t sequence) const noexcept {
    return reinterpret_cast<Entry*>(entries_ + sequence % slots * slot_bytes_);
  }
  /// Where the root of a broadcast puts what its entry does not hold.
  std::byte* root_contents(std::uint64_t sequence) const noexcept {
    return entries_ + sequence % slots * slot_bytes_ + size_ * sizeof(Entry);
  }
  /// The first rank that makes another call than rank 0; 0 where all make the same.
  int first_that_differs(Entry const* entries) const noexcept {
    for (int r = 1; r < size(); ++r)
      if (entries[r].facts != entries[0].facts || entries[r].count != entries[0].count) return r;
    return 0;
  }
  /// Where a rank puts what others cannot reach, and they the results for it: of even and of odd rounds.
  std::byte* stage(int rank, std::uint64_t round) const noexcept {
    std::size_t const index = static_cast<std::size_t>(rank) * 2 + (round & 1u);
    return memory_ + stage_offset(size_) + index * static_cast<std::size_t>(stage_bytes_);
  }

  /// Of a rank that is another process.
  Origin origin(int rank) const noexcept {
    Status const& there = status(rank);
    return {there.process.load(std::memory_order_relaxed), there.token_address, there.token};
  }
  /// 0 for a buffer that only its own rank can reach.
  std::uint64_t place(void const* buffer) const noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(buffer);
    return address > base_ && address - base_ < reach_ ? address - base_ : 0;
  }
  bool reaches_all() const noexcept { return reach_ == ~std::uint64_t{0}; }
  std::byte* address(std::uint64_t place) const noexcept {
    return reinterpret_cast<std::byte*>(base_ + static_cast<std::uintptr_t>(place));
  }

  std::uint64_t completed_by_all() const noexcept {
    std::uint64_t least = ~std::uint64_t{0};
    for (int r = 0; r < size(); ++r) {
      std::uint64_t const value = status(r).completed.load(std::memory_order_acquire);
      if (value < least) least = value;
    }
    return least;
  }
  bool any_left() const noexcept {
    for (int r = 0; r < size(); ++r)
      if (status(r).left.load(std::memory_order_acquire) != 0) return true;
    return false;
  }
  /// For a rank that calls: throws what the communicator failed of, of which it has heard then.
  void check(int rank, char const* operation, std::source_location where) const {
    if (!alarm().raised()) return;
    hear(rank);
    alarm().check(operation, where);
  }
  void hear(int rank) const noexcept { status(rank).heard.store(1, std::memory_order_release); }
  /// Whether a rank has neither heard of a failure nor left.
  bool deaf(int rank) const noexcept {
    return !left(rank) && status(rank).heard.load(std::memory_order_acquire) == 0;
  }
  bool all_reported() const noexcept {
    for (int r = 0; r < size(); ++r)
      if (status(r).reported.load(std::memory_order_acquire) == 0) return false;
    return true;
  }
  bool all_detached() const noexcept {
    for (int r = 0; r < size(); ++r)
      if (status(r).detached.load(std::memory_order_acquire) == 0) return false;
    return true;
  }
  bool left(int rank) const noexcept { return status(rank).left.load(std::memory_order_acquire) != 0; }

 private:
  static constexpr std::size_t status_offset = (sizeof(Alarm) + 63) / 64 * 64;
  static std::size_t entry_offset(std::size_t ranks) noexcept { return status_offset + ranks * sizeof(Status); }
  static std::size_t slot_bytes(std::size_t ranks) noexcept { return ranks * sizeof(Entry) + root_bytes; }
  static std::size_t stage_offset(std::size_t ranks) noexcept {
    return entry_offset(ranks) + slots * slot_bytes(ranks);
  }

  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::byte* entries_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::int64_t stage_bytes_ = 0;
  std::uintptr_t base_ = 0;
  std::uint64_t reach_ = 0;
};

}  // namespace tutti::comm::shared
