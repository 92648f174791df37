// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The parcels of one rank, which it uses again and again.

#include <tutti/comm/shared/parcel.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::comm::shared {

/// `Memory`: allocate(bytes), 64-byte aligned, reachable by all, null when there is none left; release(memory, bytes);
/// retire(held, memory, bytes), once *held is 0.
template <class Memory>
class Parcels {
 public:
  /// So much of messages that nobody has received yet; what comes then waits until there is room.
  static constexpr std::int64_t most_bytes = std::int64_t{16} << 20;
  /// What is larger stays with its sender until its receiver reads it: one copy, but by the system. By way of a parcel
  /// two processors copy at once: there and back 64 KiB take 2.7 us instead of 6.2 where they share a core (AMD EPYC).
  /// Where they do not (Intel Xeon) 128 KiB would take longer.
  static constexpr std::int64_t largest = 65536;

  explicit Parcels(Memory& memory) noexcept : memory_(memory) {}
  Parcels(Parcels const&) = delete;
  Parcels& operator=(Parcels const&) = delete;
  ~Parcels() {
    for (Size const& size : sizes_)
      for (Parcel* parcel : size.parcels) {
        auto* const memory = reinterpret_cast<std::byte*>(parcel);
        std::size_t const bytes = Parcel::total_bytes(parcel->capacity());
        if (parcel->is_free()) memory_.release(memory, bytes);
        else memory_.retire(parcel->held(), memory, bytes);
      }
  }

  /// A free one, the best for so many bytes. Null when there is none.
  /// Errors     out_of_memory, where there has never been any.
  Parcel* allocate(std::int64_t bytes) {
    int const best = bytes <= sizes_[0].capacity ? 0 : 1;
    Size& used = sizes_[best];
    for (std::size_t i = 0, n = used.parcels.size(); i < n && i < 4; ++i) {
      used.next = used.next + 1 < n ? used.next + 1 : 0;
      if (used.parcels[used.next]->is_free()) return used.parcels[used.next];
    }
    for (int i = best; i >= 0 && bytes_ + sizes_[i].capacity <= most_bytes; --i) {
      if (i != best && bytes_ != 0) break;  // a smaller one only where there is none at all
      Size& size = sizes_[i];
      std::byte* const memory = memory_.allocate(Parcel::total_bytes(size.capacity));
      if (memory == nullptr) continue;
      bytes_ += size.capacity;
      size.parcels.push_back(Parcel::create(memory, size.capacity));
      return size.parcels.back();
    }
    for (Size const& size : sizes_)
      for (Parcel* parcel : size.parcels)
        if (parcel->is_free()) return parcel;
    if (bytes_ == 0)
      throw Error(ErrorKind::out_of_memory, "send",
                  concat("the memory that the ranks of this node share has no room for a message of ", bytes,
                         " bytes. Enlarge /dev/shm"));
    return nullptr;
  }

 private:
  struct Size {
    std::int64_t capacity = 0;
    List<Parcel*> parcels{};
    std::size_t next = 0;  // where the search begins
  };

  Memory& memory_;
  std::int64_t bytes_ = 0;
  Size sizes_[2] = {{8192}, {largest}};
};

}  // namespace tutti::comm::shared
