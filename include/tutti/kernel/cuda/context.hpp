// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What kernels run in: a device, a stream, its figures, working memory, the word of mistakes.

#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/kernel/cuda/error_word.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace tutti::kernel::cuda {

/// Figures of a device that kernels choose by.
struct Properties {
  int processors = 0;            ///< streaming multiprocessors
  int capability = 0;            ///< 10 major + minor: 80, 90
  std::size_t shared_bytes = 0;  ///< shared memory that one block may ask for

  template <class = void>
  static Properties of(int device, std::source_location where = std::source_location::current()) {
    auto const attribute = [&](cudaDeviceAttr which) {
      int value = 0;
      tutti::cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute", where);
      return value;
    };
    return {attribute(cudaDevAttrMultiProcessorCount),
            10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor),
            static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))};
  }
};

namespace detail {

struct Nothing {};
/// For the question whether the program holds code for a device.
template <class = void>
__global__ void do_nothing(Nothing) {}

template <class = void>
void require_code(int device, std::source_location where) {
  tutti::cuda::CurrentDevice const current(device, where);
  cudaFuncAttributes attributes{};
  cudaError_t const error = cudaFuncGetAttributes(&attributes, do_nothing<>);
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
      error != cudaErrorUnsupportedPtxVersion)
    return tutti::cuda::check(error, "cudaFuncGetAttributes", where);
  static_cast<void>(cudaGetLastError());
  int const capability = Properties::of(device, where).capability;
  throw Error(
      ErrorKind::unavailable, "cuda::Context",
      concat("this program holds no code for device ", device, ", whose compute capability is ", capability / 10, ".",
             capability % 10, ". Build it on this machine, or by nvcc with -gencode=arch=compute_", capability,
             ",code=sm_", capability),
      where)
      .with_native(cudaGetErrorString(error));
}

}  // namespace detail

/// Not copyable; one per rank, used by one thread at a time. Kernels enqueue on its stream and do not block the host.
class Context {
 public:
  /// Errors: unavailable (no such device, or the program was built for others).
  template <class = void>
  explicit Context(int device = 0, std::source_location where = std::source_location::current())
      : properties_(Properties::of(device, where)),
        stream_((detail::require_code(device, where), device), tutti::cuda::Stream::Priority::normal, where),
        word_(stream_, sizeof(ErrorWord), where),
        read_(sizeof(ErrorWord), where) {
    forget_mistakes(where);
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  int device() const noexcept { return stream_.device(); }
  tutti::cuda::Stream const& stream() const noexcept { return stream_; }
  Properties const& properties() const noexcept { return properties_; }
  /// Kernels run one after another from now on: to measure what their overlap gives.
  void forbid_overlap() noexcept { stream_.forbid_overlap(); }

  /// Working memory on the device for the kernels of one call: at least `bytes`, aligned to 256, contents undefined,
  /// valid until the next call of a kernel function. Grows to the largest request and stays. Errors: out_of_memory;
  /// invalid_argument if it would have to grow while the stream is captured: call the kernels once before.
  template <class = void>
  void* scratch(std::size_t bytes, std::source_location where = std::source_location::current()) {
    if (bytes <= scratch_.bytes()) return scratch_.data();
    cudaStreamCaptureStatus status{};
    tutti::cuda::check(cudaStreamIsCapturing(stream_.native(), &status), "cudaStreamIsCapturing", where);
    if (status != cudaStreamCaptureStatusNone)
      throw Error(ErrorKind::invalid_argument, "Context::scratch",
                  concat(bytes, " bytes of working memory are needed while work is captured, and ", scratch_.bytes(),
                         " are there. Run the same work once before capturing it"),
                  where);
    scratch_ = tutti::cuda::DeviceMemory();  // freed in the stream's order, before the larger one is asked for
    ++scratch_version_;
    scratch_ = tutti::cuda::DeviceMemory(stream_, bytes, where);
    return scratch_.data();
  }
  /// Changes whenever working memory moves: what was captured before uses memory that is gone, and is captured anew.
  std::uint64_t scratch_version() const noexcept { return scratch_version_; }

  /// Where kernels report mistakes.
  ErrorWord* error_word() const noexcept { return static_cast<ErrorWord*>(word_.data()); }
  /// Enqueues the reading of the word; `throw_mistake` throws what this read. Can be captured.
  template <class = void>
  void read_mistake(std::source_location where = std::source_location::current()) {
    tutti::cuda::copy_to_host(stream_, read_.data(), word_.data(), sizeof(ErrorWord), where);
  }
  /// Throws what the last `read_mistake` found, once the stream is past it (the caller has waited). Errors: those of
  /// the kernels' contracts.
  template <class = void>
  void throw_mistake() {
    throw_reported(*static_cast<ErrorWord const*>(read_.data()));
  }
  /// Enqueues the clearing of the word.
  template <class = void>
  void forget_mistakes(std::source_location where = std::source_location::current()) {
    tutti::cuda::fill_bytes(stream_, word_.data(), 0xff, sizeof(ErrorWord), where);
  }
  /// Blocks until all work is done; throws what it failed with, and mistakes, which it forgets.
  template <class = void>
  void wait(std::source_location where = std::source_location::current()) {
    read_mistake(where);
    forget_mistakes(where);
    stream_.wait(where);
    throw_mistake();
  }

 private:
  Properties properties_;
  tutti::cuda::Stream stream_;
  tutti::cuda::DeviceMemory word_, scratch_;
  std::uint64_t scratch_version_ = 0;
  tutti::cuda::PinnedMemory read_;
};

}  // namespace tutti::kernel::cuda
