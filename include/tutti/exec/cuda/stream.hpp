// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Streams and events as values.

#include <tutti/exec/cuda/check.hpp>

#include <cuda_runtime.h>

#include <source_location>
#include <utility>

namespace tutti::cuda {

class Event;

/// Work in order on one device, beside the work of other streams and never with CUDA's default stream. Owns it; moved
/// from or default constructed it is none. Destroying it lets enqueued work finish and does not wait for it.
class Stream {
 public:
  enum class Priority { normal, high };

  Stream() = default;
  /// Errors: unavailable (no such device).
  template <class = void>
  explicit Stream(int device, Priority priority = Priority::normal,
                  std::source_location where = std::source_location::current())
      : device_(device) {
    CurrentDevice const current(device, where);
    int least = 0, greatest = 0, capability = 0;
    check(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute",
          where);
    overlaps_ = capability >= 9;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", where);
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::high ? greatest : least),
          "cudaStreamCreateWithPriority", where);
  }
  Stream(Stream&& other) noexcept
      : device_(other.device_),
        stream_(std::exchange(other.stream_, nullptr)),
        overlaps_(other.overlaps_),
        joins_(other.joins_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    std::swap(overlaps_, other.overlaps_);
    std::swap(joins_, other.joins_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }

  int device() const noexcept { return device_; }
  cudaStream_t native() const noexcept { return stream_; }

  /// Blocks until everything enqueued so far is done. Throws what that work failed with.
  template <class = void>
  void wait(std::source_location where = std::source_location::current()) const {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", where);
  }
  /// Whether everything enqueued so far is done; does not block.
  template <class = void>
  bool idle(std::source_location where = std::source_location::current()) const {
    cudaError_t const state = cudaStreamQuery(stream_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaStreamQuery", where);
    return true;
  }
  /// Whether what is enqueued is recorded into a graph rather than run.
  template <class = void>
  bool capturing(std::source_location where = std::source_location::current()) const {
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing", where);
    return status != cudaStreamCaptureStatusNone;
  }
  /// What is enqueued from now on runs after what `event` recorded; the host does not wait.
  template <class = void>
  void wait_for(Event const& event, std::source_location where = std::source_location::current()) const;
  /// Whether the kernel that is launched next may start before the one before it has ended, where it says so itself
  /// (LaunchShape::overlaps): from sm_90 on, and not behind an event, whose stream it does not overlap with.
  bool next_overlaps() const noexcept { return !std::exchange(joins_, false) && overlaps_; }
  /// No kernels overlap from now on.
  void forbid_overlap() noexcept { overlaps_ = false; }

 private:
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  bool overlaps_ = false;
  mutable bool joins_ = false;  // what is enqueued next waits for an event
};

/// A point in a stream's work. Owns it; default constructed it is none.
class Event {
 public:
  enum class Timing { off, on };

  Event() = default;
  /// Recording an event without timing is the cheaper one.
  template <class = void>
  explicit Event(int device, Timing timing = Timing::off,
                 std::source_location where = std::source_location::current()) {
    CurrentDevice const current(device, where);
    check(cudaEventCreateWithFlags(&event_, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags", where);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }

  cudaEvent_t native() const noexcept { return event_; }

  /// From now on it stands for the end of what `stream` has enqueued. One device for both.
  template <class = void>
  void record(Stream const& stream, std::source_location where = std::source_location::current()) const {
    check(cudaEventRecord(event_, stream.native()), "cudaEventRecord", where);
  }
  /// The same, and where `stream` is being captured, in every run of what is captured: to measure it.
  template <class = void>
  void record_in_runs(Stream const& stream, std::source_location where = std::source_location::current()) const {
    unsigned const flag = stream.capturing(where) ? cudaEventRecordExternal : cudaEventRecordDefault;
    check(cudaEventRecordWithFlags(event_, stream.native(), flag), "cudaEventRecordWithFlags", where);
  }
  /// Whether what it recorded is done; true if it never recorded. Does not block.
  template <class = void>
  bool done(std::source_location where = std::source_location::current()) const {
    cudaError_t const state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery", where);
    return true;
  }
  /// Blocks the host until then.
  template <class = void>
  void wait(std::source_location where = std::source_location::current()) const {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize", where);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Milliseconds on the device between two events with timing, both done.
template <class = void>
float milliseconds_between(Event const& start, Event const& end,
                           std::source_location where = std::source_location::current()) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.native(), end.native()), "cudaEventElapsedTime", where);
  return milliseconds;
}

template <class>
void Stream::wait_for(Event const& event, std::source_location where) const {
  joins_ = true;
  check(cudaStreamWaitEvent(stream_, event.native(), 0), "cudaStreamWaitEvent", where);
}

}  // namespace tutti::cuda
