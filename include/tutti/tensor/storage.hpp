// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Bytes with an owner. A tensor does not care whether they came from a device, a file mapping or a communicator's
/// heap: storage knows how to give them back.

#include <tutti/tensor/device.hpp>

#include <cstddef>
#include <utility>

namespace tutti {

/// Move-only owner of `bytes()` bytes of memory of device `D`.
template <Device D>
class Storage {
 public:
  /// Gives memory back; `owner` is the pointer passed at construction.
  using Release = void (*)(void* owner, D const& device, void* memory, std::size_t bytes) noexcept;

  Storage() = default;
  /// From the device's own allocator. Contents are indeterminate.
  Storage(D device, std::size_t bytes)
      : device_(device), memory_(device.allocate(bytes)), bytes_(bytes), release_(&deallocate) {}
  /// Memory of somebody else's, given back through `release` (null: never). Called once, also for zero bytes if there
  /// is an owner.
  Storage(D device, void* memory, std::size_t bytes, Release release, void* owner) noexcept
      : device_(device), memory_(memory), bytes_(bytes), release_(release), owner_(owner) {}

  Storage(Storage&& other) noexcept {
    swap(other);
    other.owner_ = &moved;
  }
  Storage& operator=(Storage&& other) noexcept {
    Storage taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Storage() {
    if (release_ != nullptr && (memory_ != nullptr || owner_ != nullptr)) release_(owner_, device_, memory_, bytes_);
  }

  void* data() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Whether its bytes went elsewhere, and nothing came in their place.
  bool moved_from() const noexcept { return owner_ == &moved; }
  D const& device() const noexcept { return device_; }

  void swap(Storage& other) noexcept {
    auto const exchange = [](auto& a, auto& b) {
      auto const before = a;
      a = b;
      b = before;
    };
    exchange(device_, other.device_);
    exchange(memory_, other.memory_);
    exchange(bytes_, other.bytes_);
    exchange(release_, other.release_);
    exchange(owner_, other.owner_);
  }

 private:
  static void deallocate(void*, D const& device, void* memory, std::size_t bytes) noexcept {
    D(device).deallocate(memory, bytes);
  }

  inline static char moved = 0;  // its address is nobody's owner

  D device_{};
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_ = nullptr;
  void* owner_ = nullptr;
};

}  // namespace tutti
