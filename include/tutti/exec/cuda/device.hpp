// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Cuda`, the model of `Device` whose memory is a GPU's: tensors live there as they do on `Cpu`.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/tensor/device.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string_view>
#include <utility>

namespace tutti {

/// A GPU by its index, and the stream in whose order its memory is had, copied and freed.
///
/// `Cuda(index)` uses a stream of the calling thread, waits for every allocation, and frees after all work of the
/// device: always safe, and slow where it happens often. `Cuda(stream)` takes memory from the device's pool in the
/// stream's order: kernels of that stream may use a tensor at once and until it is destroyed; other streams wait for
/// events on both sides, and the stream outlives the tensors. Blocking copies wait for the stream that they go through,
/// and for no other. Equal when the index is: the memory is the same. Errors carry CUDA's text.
class Cuda {
 public:
  static constexpr std::string_view name = "cuda";
  static constexpr bool host_accessible = false;

  constexpr Cuda() = default;
  explicit constexpr Cuda(int index) noexcept : index_(index) {}
  explicit Cuda(cuda::Stream const& stream) noexcept
      : index_(stream.device()), stream_(stream.native()), ordered_(true) {}

  constexpr int index() const noexcept { return index_; }

  template <class = void>
  void* allocate(std::size_t bytes, std::source_location where = std::source_location::current()) const {
    if (bytes == 0) return nullptr;
    cuda::CurrentDevice const current(index_, where);
    void* memory = nullptr;
    cudaError_t const error = ordered_ ? cudaMallocAsync(&memory, bytes, stream()) : cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorKind::out_of_memory, "Cuda::allocate",
                  concat(bytes, " bytes of memory are not available on device ", index_), where)
          .with_native(cudaGetErrorString(error));
    }
    cuda::check(error, ordered_ ? "cudaMallocAsync" : "cudaMalloc", where);
    return memory;
  }
  void deallocate(void* memory, std::size_t) const noexcept {
    if (memory == nullptr) return;
    // What freeing fails with was reported by the work that failed.
    if (ordered_) static_cast<void>(cudaFreeAsync(memory, stream()));
    else static_cast<void>(cudaFree(memory));
  }
  template <class = void>
  void copy_within(void* to, void const* from, std::size_t bytes,
                   std::source_location where = std::source_location::current()) const {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice, where);
  }
  template <class = void>
  void copy_from_host(void* to, void const* from, std::size_t bytes,
                      std::source_location where = std::source_location::current()) const {
    copy(to, from, bytes, cudaMemcpyHostToDevice, where);
  }
  template <class = void>
  void copy_to_host(void* to, void const* from, std::size_t bytes,
                    std::source_location where = std::source_location::current()) const {
    copy(to, from, bytes, cudaMemcpyDeviceToHost, where);
  }

  /// A copy under way; default constructed it is complete.
  class Copy {
   public:
    Copy() = default;

   private:
    friend class Cuda;
    explicit Copy(cuda::Event event) : event_(std::move(event)) {}
    cuda::Event event_;
  };

  /// Copies in the order of the stream; they run beside the host when its memory is pinned.
  template <class = void>
  Copy start_copy_from_host(void* to, void const* from, std::size_t bytes,
                            std::source_location where = std::source_location::current()) const {
    return start(to, from, bytes, cudaMemcpyHostToDevice, where);
  }
  template <class = void>
  Copy start_copy_to_host(void* to, void const* from, std::size_t bytes,
                          std::source_location where = std::source_location::current()) const {
    return start(to, from, bytes, cudaMemcpyDeviceToHost, where);
  }
  template <class = void>
  bool test(Copy& copy, std::source_location where = std::source_location::current()) const {
    if (copy.event_.native() == nullptr) return true;
    if (!copy.event_.done(where)) return false;
    copy.event_ = cuda::Event();
    return true;
  }
  /// For all devices of the process. Memory is pinned once at a time. Errors: out_of_memory, invalid_argument.
  template <class = void>
  void pin(void* host, std::size_t bytes, std::source_location where = std::source_location::current()) const {
    if (bytes != 0) cuda::check(cudaHostRegister(host, bytes, cudaHostRegisterPortable), "cudaHostRegister", where);
  }
  template <class = void>
  void unpin(void* host, std::size_t bytes, std::source_location where = std::source_location::current()) const {
    if (bytes != 0) cuda::check(cudaHostUnregister(host), "cudaHostUnregister", where);
  }

  friend constexpr bool operator==(Cuda a, Cuda b) noexcept { return a.index_ == b.index_; }

 private:
  cudaStream_t stream() const noexcept { return ordered_ ? stream_ : cudaStreamPerThread; }

  template <class = void>
  void copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, std::source_location where) const {
    if (bytes == 0) return;
    cuda::CurrentDevice const current(index_, where);
    cuda::check(cudaMemcpyAsync(to, from, bytes, kind, stream()), "cudaMemcpyAsync", where);
    cuda::check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize", where);
  }
  template <class = void>
  Copy start(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, std::source_location where) const {
    if (bytes == 0) return Copy();
    cuda::CurrentDevice const current(index_, where);
    cuda::Event event(index_, cuda::Event::Timing::off, where);
    cuda::check(cudaMemcpyAsync(to, from, bytes, kind, stream()), "cudaMemcpyAsync", where);
    cuda::check(cudaEventRecord(event.native(), stream()), "cudaEventRecord", where);
    return Copy(std::move(event));
  }

  int index_ = 0;
  cudaStream_t stream_ = nullptr;
  bool ordered_ = false;
};

namespace cuda {

/// GPUs that this process may use; 0 where there is no driver. Does not throw for that.
template <class = void>
int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

/// Bytes of a device's memory that are free.
template <class = void>
std::int64_t free_memory(int device, std::source_location where = std::source_location::current()) {
  CurrentDevice const current(device, where);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", where);
  return static_cast<std::int64_t>(free);
}

/// The device of a rank: ranks of a node take its devices in turn. Errors: unavailable, where there is none;
/// invalid_argument for a negative rank.
template <class = void>
Cuda device_of(int rank_on_node, std::source_location where = std::source_location::current()) {
  if (rank_on_node < 0)
    throw Error(ErrorKind::invalid_argument, "cuda::device_of",
                concat("rank ", rank_on_node, " on this node. Give 0 or more"), where);
  int const count = device_count();
  if (count == 0)
    throw Error(
        ErrorKind::unavailable, "cuda::device_of",
        "this machine has no CUDA device that the process may use. Look at nvidia-smi and CUDA_VISIBLE_DEVICES, "
        "or run on the CPU",
        where);
  return Cuda(rank_on_node % count);
}

}  // namespace cuda

}  // namespace tutti
