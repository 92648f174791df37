// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory of a device in the order of a stream, and host memory that a device can reach.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>

namespace tutti::cuda {

/// From now on freed memory stays with the process for the next allocation of its device, up to `bytes`. CUDA's own
/// setting is 0: what is free when the host waits goes back to the system, at a cost of milliseconds.
template <class = void>
void keep_freed_memory(int device, std::uint64_t bytes = ~std::uint64_t{0},
                       std::source_location where = std::source_location::current()) {
  cudaMemPool_t pool{};
  check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool", where);
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes), "cudaMemPoolSetAttribute", where);
}

/// A block of a device's memory, aligned to 256 bytes, from the device's pool; contents undefined. Allocated and freed
/// in the stream's order: work of this stream may use it at once, and what is enqueued before it is destroyed still
/// may. Other streams wait for an event on both sides. The stream must outlive it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Zero bytes are no memory. Errors: out_of_memory, with what is free.
  template <class = void>
  DeviceMemory(Stream const& stream, std::size_t bytes, std::source_location where = std::source_location::current())
      : stream_(&stream), bytes_(bytes) {
    if (bytes == 0) return;
    CurrentDevice const current(stream.device(), where);
    cudaError_t const error = cudaMallocAsync(&memory_, bytes, stream.native());
    if (error == cudaErrorMemoryAllocation) {
      std::size_t free = 0, total = 0;
      static_cast<void>(cudaMemGetInfo(&free, &total));
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorKind::out_of_memory, "cuda",
                  concat(bytes, " bytes are not available on device ", stream.device(), ": ", free, " of ", total,
                         " are free. Use a smaller batch, or recompute more"),
                  where)
          .with_native(cudaGetErrorString(error));
    }
    check(error, "cudaMallocAsync", where);
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : stream_(other.stream_),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (memory_ != nullptr) static_cast<void>(cudaFreeAsync(memory_, stream_->native()));
  }

  void* data() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  Stream const* stream_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A block of host memory that stays in place, aligned to 4096 bytes: copies to and from it run beside the host.
/// Freeing it waits for the work of all devices.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// Errors: out_of_memory.
  template <class = void>
  explicit PinnedMemory(std::size_t bytes, std::source_location where = std::source_location::current())
      : bytes_(bytes) {
    if (bytes != 0) check(cudaHostAlloc(&memory_, bytes, cudaHostAllocPortable), "cudaHostAlloc", where);
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory() {
    if (memory_ != nullptr) static_cast<void>(cudaFreeHost(memory_));
  }

  void* data() const noexcept { return memory_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Copies in a stream's order. From pinned host memory they run beside the host, which leaves the memory alone until
/// the stream is past them; from pageable memory CUDA reads before it returns, and it blocks when it writes there.
template <class = void>
void copy_to_device(Stream const& stream, void* device, void const* host, std::size_t bytes,
                    std::source_location where = std::source_location::current()) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.native()), "cudaMemcpyAsync to the device",
        where);
}
template <class = void>
void copy_to_host(Stream const& stream, void* host, void const* device, std::size_t bytes,
                  std::source_location where = std::source_location::current()) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream.native()), "cudaMemcpyAsync to the host",
        where);
}
/// Of one device; the ranges do not overlap.
template <class = void>
void copy_on_device(Stream const& stream, void* to, void const* from, std::size_t bytes,
                    std::source_location where = std::source_location::current()) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.native()), "cudaMemcpyAsync on the device",
        where);
}
/// Every byte becomes `value`.
template <class = void>
void fill_bytes(Stream const& stream, void* device, unsigned char value, std::size_t bytes,
                std::source_location where = std::source_location::current()) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(device, value, bytes, stream.native()), "cudaMemsetAsync", where);
}

}  // namespace tutti::cuda
