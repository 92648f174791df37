// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a message travels in that does not fit a slot of its receiver's ring, or comes while the ring is full; and
/// where it arrives then. A parcel is memory of its sender that its receiver reaches. It holds no pointers of its own,
/// so that it works where every process maps it elsewhere.

#include <tutti/comm/shared/copy.hpp>
#include <tutti/comm/shared/message_ring.hpp>
#include <tutti/comm/shared/remote.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace tutti::comm::shared {

/// Where a large message lies in its sender's memory. Its receiver reads it there; or asks for its contents in the
/// parcel, where the system does not let it.
struct Whereabouts {
  std::uint64_t place = 0;  ///< in memory that all reach; 0 elsewhere
  std::uint64_t address = 0;
  Origin origin{};
};

/// A message whose contents pass through `capacity` bytes in front of which it stands: its sender fills them while its
/// receiver empties them; unless it says where they are.
class alignas(64) Parcel {
 public:
  /// So much at a time, so that both copy at once.
  static constexpr std::int64_t piece = 8192;

  static constexpr std::size_t total_bytes(std::int64_t capacity) noexcept {
    return sizeof(Parcel) + static_cast<std::size_t>(capacity);
  }
  /// In 64-byte aligned memory of total_bytes(capacity); free.
  static Parcel* create(void* memory, std::int64_t capacity) noexcept { return ::new (memory) Parcel(capacity); }

  std::int64_t bytes = 0;
  std::int32_t source = 0;
  std::int32_t tag = 0;
  DType dtype = DType::byte;
  Channel channel = Channel::user;

  Whereabouts where{};  ///< of a message that is `offered`

  std::int64_t capacity() const noexcept { return capacity_; }
  bool is_offered() const noexcept { return offered_.load(std::memory_order_acquire) != 0; }

  // Its sender's.

  /// Neither its sender nor a receiver is at it.
  bool is_free() const noexcept {
    return !filling_ && (held_.load(std::memory_order_acquire) == 0 || forsaken_.load(std::memory_order_seq_cst) != 0);
  }
  /// For a message, before anybody is told of it.
  void begin(bool offered) noexcept {
    filling_ = true;
    offered_.store(offered ? 1 : 0, std::memory_order_relaxed);
    given_up_.store(0, std::memory_order_relaxed);
    forsaken_.store(0, std::memory_order_relaxed);
    filled_.store(0, std::memory_order_relaxed);
    emptied_.store(0, std::memory_order_relaxed);
    held_.store(1, std::memory_order_relaxed);
  }
  /// As much as there is room for. True when all is in, or nobody wants the rest.
  bool fill(void const* from) noexcept {
    if (is_offered()) {
      filling_ = held_.load(std::memory_order_acquire) != 0;
      return !filling_;
    }
    std::int64_t at = filled_.load(std::memory_order_relaxed);
    std::int64_t const room = at == 0 ? capacity_ : emptied_.load(std::memory_order_acquire) + capacity_;
    for (std::int64_t const end = bytes < room ? bytes : room; at < end;) {
      std::int64_t const n = next(at, end);
      copy_shared(contents() + at % capacity_, static_cast<std::byte const*>(from) + at, n);
      filled_.store(at += n, std::memory_order_release);
    }
    if (at < bytes && held_.load(std::memory_order_acquire) != 0) return false;
    filling_ = false;
    return true;
  }
  /// Nothing more will come; and whoever reads it where it lies, which may change now, throws it away. False when its
  /// receiver has read it there.
  bool give_up() noexcept {
    std::uint32_t now = 0;
    given_up_.compare_exchange_strong(now, gone, std::memory_order_seq_cst);
    filling_ = false;
    return now != taken;
  }

  // Its receiver's.

  bool is_complete() const noexcept { return filled_.load(std::memory_order_acquire) == bytes; }
  bool is_given_up() const noexcept { return given_up_.load(std::memory_order_acquire) == gone && !is_complete(); }
  /// Has read it where it lies. False when that may have changed meanwhile.
  bool take() noexcept {
    std::uint32_t now = 0;
    return given_up_.compare_exchange_strong(now, taken, std::memory_order_seq_cst);
  }
  /// What has come since `at`; of the contents the first `room` bytes are wanted. True when that was all.
  bool empty(void* to, std::int64_t room, std::int64_t& at) noexcept {
    for (std::int64_t end = filled_.load(std::memory_order_acquire); at < end;) {
      std::int64_t const n = next(at, end);
      if (std::int64_t const wanted = room - at < n ? room - at : n; wanted > 0)
        copy_shared(static_cast<std::byte*>(to) + at, contents() + at % capacity_, wanted);
      emptied_.store(at += n, std::memory_order_release);
      if (at == end) end = filled_.load(std::memory_order_acquire);
    }
    return at == bytes;
  }
  /// Cannot read it where it lies.
  void decline() noexcept { offered_.store(0, std::memory_order_release); }
  /// Has done with it.
  void let_go() noexcept { held_.store(0, std::memory_order_release); }
  /// Will not receive it, because it leaves. Where the sender has not sent all, it is to learn that nobody took it.
  void forsake() noexcept {
    forsaken_.store(1, std::memory_order_seq_cst);
    if (is_complete() || given_up_.load(std::memory_order_seq_cst) != 0) let_go();
  }

  /// Where its receiver keeps it with others that came late: the place of the one before it, and how many messages had
  /// been claimed in the ring when it came.
  std::uint64_t before = 0;
  std::uint64_t after = 0;

  /// 0 when its receiver has done with it; of one that was never posted too.
  std::atomic<std::uint32_t> const& held() const noexcept { return held_; }

 private:
  static constexpr std::uint32_t gone = 1, taken = 2;  // of given_up_

  explicit Parcel(std::int64_t capacity) noexcept : capacity_(capacity) {}
  std::byte* contents() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  /// Of the bytes from `at` to `end` those that lie together, a piece at most.
  std::int64_t next(std::int64_t at, std::int64_t end) const noexcept {
    std::int64_t n = end - at < piece ? end - at : piece;
    std::int64_t const rest = capacity_ - at % capacity_;
    return n < rest ? n : rest;
  }

  std::int64_t capacity_;
  bool filling_ = false;
  alignas(64) std::atomic<std::int64_t> filled_{0};
  std::atomic<std::uint32_t> given_up_{0};
  alignas(64) std::atomic<std::int64_t> emptied_{0};
  std::atomic<std::uint32_t> offered_{0};
  std::atomic<std::uint32_t> held_{0};
  std::atomic<std::uint32_t> forsaken_{0};
};

/// Where messages to one rank arrive: in its ring, of which those that are too large for a slot are parcels whose place
/// the slot tells; and while the ring is full as parcels beside it. Made in memory that starts as this object does.
class Mailbox {
 public:
  MessageRing ring;

  /// Beside the ring, which was full. `place`: of the parcel, not 0.
  void add_late(Parcel& parcel, std::uint64_t place) noexcept {
    parcel.after = ring.claimed();
    parcel.before = late_.load(std::memory_order_relaxed);
    while (!late_.compare_exchange_weak(parcel.before, place, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
  bool has_late() const noexcept { return late_.load(std::memory_order_acquire) != 0; }
  /// The place of the last one that came, with the others before it, which its owner takes.
  std::uint64_t take_late() noexcept { return late_.exchange(0, std::memory_order_acquire); }

  /// In a slot: where the message is that is larger than its contents.
  static void tell_place(MessageSlot& slot, std::uint64_t place) noexcept {
    std::memcpy(slot.contents, &place, sizeof place);
  }
  static std::uint64_t place_in(MessageSlot const& slot) noexcept {
    std::uint64_t place = 0;
    std::memcpy(&place, slot.contents, sizeof place);
    return place;
  }

 private:
  alignas(64) std::atomic<std::uint64_t> late_{0};
};

}  // namespace tutti::comm::shared
