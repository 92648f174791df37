// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A device whose memory the host cannot touch: its pages have no access rights except inside the device's own copies,
/// so that library code which dereferences it dies at once. It counts what it is asked to do. Another one copies beside
/// other work.

#include <tutti/core/error.hpp>
#include <tutti/tensor/device.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::test {

/// What all `TestDevice`s of the process did since `reset()`.
struct DeviceCounts {
  int allocations = 0;
  int deallocations = 0;
  int copies_within = 0;
  int copies_from_host = 0;
  int copies_to_host = 0;
  std::size_t live_bytes = 0;
  std::size_t pinned_bytes = 0;
  int under_way = 0;  ///< copies beside other work
  int errors = 0;     ///< copies outside an allocation, of memory that is not pinned; wrong deallocations; must stay 0
};

namespace detail {

struct DeviceState {
  std::mutex mutex;
  DeviceCounts counts;
  std::map<std::uintptr_t, std::size_t> blocks;  // start to usable bytes
  std::map<std::uintptr_t, std::size_t> pinned;
};
inline DeviceState& device_state() {
  static DeviceState state;
  return state;
}

}  // namespace detail

/// Model of `Device`. Two with different `index` do not share memory.
struct TestDevice {
  static constexpr std::string_view name = "test";
  static constexpr bool host_accessible = false;
  int index = 0;

  void* allocate(std::size_t bytes) const {
    if (bytes == 0) return nullptr;
    if (bytes > capacity)
      throw Error(ErrorKind::out_of_memory, "TestDevice::allocate",
                  std::to_string(bytes) + " bytes asked for, the device has " + std::to_string(capacity));
    void* memory = mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Error(ErrorKind::out_of_memory, "TestDevice::allocate", "mmap failed");
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    state.blocks[address(memory)] = bytes;
    ++state.counts.allocations;
    state.counts.live_bytes += bytes;
    return memory;
  }

  void deallocate(void* memory, std::size_t bytes) const noexcept {
    if (memory == nullptr) return;
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    auto const block = state.blocks.find(address(memory));
    if (block == state.blocks.end() || block->second != bytes) {
      ++state.counts.errors;
      return;
    }
    munmap(memory, pages(bytes));
    state.blocks.erase(block);
    ++state.counts.deallocations;
    state.counts.live_bytes -= bytes;
  }

  void copy_within(void* to, void const* from, std::size_t bytes) const {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    ++state.counts.copies_within;
    Open const target(state, to, bytes);
    Open const source(state, from, bytes);
    if (bytes != 0 && target.ok && source.ok) std::memcpy(to, from, bytes);
  }
  void copy_from_host(void* to, void const* from, std::size_t bytes) const {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    ++state.counts.copies_from_host;
    Open const target(state, to, bytes);
    if (bytes != 0 && target.ok) std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, void const* from, std::size_t bytes) const {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    ++state.counts.copies_to_host;
    Open const source(state, from, bytes);
    if (bytes != 0 && source.ok) std::memcpy(to, from, bytes);
  }

  friend bool operator==(TestDevice, TestDevice) = default;

  static DeviceCounts counts() {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    return state.counts;
  }
  /// Zeroes the counters; what there is stays.
  static void reset() {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    DeviceCounts const before = state.counts;
    state.counts = {};
    state.counts.live_bytes = before.live_bytes;
    state.counts.pinned_bytes = before.pinned_bytes;
    state.counts.under_way = before.under_way;
  }

  static constexpr std::size_t capacity = std::size_t{1} << 30;

 protected:
  static std::uintptr_t address(void const* memory) noexcept { return reinterpret_cast<std::uintptr_t>(memory); }
  static std::size_t pages(std::size_t bytes) noexcept {
    std::size_t const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }

  /// Makes the block that holds [memory, memory + bytes) accessible for its own life.
  struct Open {
    Open(detail::DeviceState& state, void const* memory, std::size_t bytes) {
      if (bytes == 0) return;
      auto block = state.blocks.upper_bound(address(memory));
      if (block == state.blocks.begin() || (--block, address(memory) - block->first > block->second) ||
          block->second - (address(memory) - block->first) < bytes) {
        ++state.counts.errors;
        ok = false;
        return;
      }
      start = reinterpret_cast<void*>(block->first);
      length = pages(block->second);
      mprotect(start, length, PROT_READ | PROT_WRITE);
    }
    Open(Open const&) = delete;
    Open& operator=(Open const&) = delete;
    ~Open() {
      if (start != nullptr) mprotect(start, length, PROT_NONE);
    }
    void* start = nullptr;
    std::size_t length = 0;
    bool ok = true;
  };
};

static_assert(Device<TestDevice>);

/// The same with copies beside other work, which take a few looks: what is copied leaves its place with the last one,
/// and a copy to the host fills the target with rubbish until then. Host memory must be pinned.
struct QueuedDevice : TestDevice {
  static constexpr std::string_view name = "queued";

  class Copy {
   public:
    Copy() = default;
    Copy(Copy&& other) noexcept
        : to_(other.to_), from_(other.from_), bytes_(other.bytes_), looks_(std::exchange(other.looks_, 0)),
          to_host_(other.to_host_) {}
    Copy& operator=(Copy&& other) noexcept {
      std::swap(to_, other.to_);
      std::swap(from_, other.from_);
      std::swap(bytes_, other.bytes_);
      std::swap(looks_, other.looks_);
      std::swap(to_host_, other.to_host_);
      return *this;
    }
    ~Copy() {
      if (looks_ == 0) return;
      auto& state = detail::device_state();
      std::lock_guard lock(state.mutex);
      --state.counts.under_way;
      ++state.counts.errors;  // its memory may be gone before it is complete
    }

   private:
    friend QueuedDevice;
    void* to_ = nullptr;
    void const* from_ = nullptr;
    std::size_t bytes_ = 0;
    int looks_ = 0;
    bool to_host_ = false;
  };

  Copy start_copy_to_host(void* to, void const* from, std::size_t bytes) const {
    std::memset(to, 0xa5, bytes);
    return started(to, from, bytes, to, true);
  }
  Copy start_copy_from_host(void* to, void const* from, std::size_t bytes) const {
    return started(to, from, bytes, from, false);
  }
  bool test(Copy& copy) const {
    if (copy.looks_ == 0) return true;
    if (--copy.looks_ != 0) return false;
    if (copy.to_host_) copy_to_host(copy.to_, copy.from_, copy.bytes_);
    else copy_from_host(copy.to_, copy.from_, copy.bytes_);
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    --state.counts.under_way;
    return true;
  }
  void pin(void* memory, std::size_t bytes) const {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    auto const next = state.pinned.lower_bound(address(memory));
    if (next != state.pinned.end() && next->first < address(memory) + bytes) ++state.counts.errors;
    if (next != state.pinned.begin() && std::prev(next)->first + std::prev(next)->second > address(memory))
      ++state.counts.errors;
    state.pinned[address(memory)] = bytes;
    state.counts.pinned_bytes += bytes;
  }
  void unpin(void* memory, std::size_t bytes) const noexcept {
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    auto const block = state.pinned.find(address(memory));
    if (block == state.pinned.end() || block->second != bytes) {
      ++state.counts.errors;
      return;
    }
    state.pinned.erase(block);
    state.counts.pinned_bytes -= bytes;
  }

  friend bool operator==(QueuedDevice, QueuedDevice) = default;

 private:
  static constexpr int looks = 3;

  static Copy started(void* to, void const* from, std::size_t bytes, void const* host, bool to_host) {
    Copy copy;
    copy.to_ = to;
    copy.from_ = from;
    copy.bytes_ = bytes;
    copy.looks_ = looks;
    copy.to_host_ = to_host;
    auto& state = detail::device_state();
    std::lock_guard lock(state.mutex);
    ++state.counts.under_way;
    auto block = state.pinned.upper_bound(address(host));
    if (block == state.pinned.begin() || (--block, block->first + block->second < address(host) + bytes))
      ++state.counts.errors;
    return copy;
  }
};

static_assert(Device<QueuedDevice>);

}  // namespace tutti::test
