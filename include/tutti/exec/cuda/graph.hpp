// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Work of a stream as a value that is enqueued again and again: one launch for hundreds of kernels.

#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <source_location>
#include <utility>

namespace tutti::cuda {

/// Captured work, ready to run. It repeats the same launches and copies with the same addresses and values, so what
/// changes between runs lies in device or pinned memory. Everything that it touches must outlive it.
class Graph {
 public:
  Graph() = default;
  /// Runs `enqueue()`, and keeps what it puts on `stream` instead of running it. Other streams may take part between
  /// events: they wait for one of `stream`, and it for theirs at the end. `enqueue` neither waits nor allocates nor
  /// frees memory of CUDA: run the same work once before, so that pools and working memory have grown. What it throws
  /// is thrown on, and the stream is as before.
  template <class F>
  static Graph capture(Stream const& stream, F&& enqueue,
                       std::source_location where = std::source_location::current()) {
    CurrentDevice const current(stream.device(), where);
    // Of this thread alone: ranks that are threads allocate while another captures.
    check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", where);
    Captured captured;
    try {
      enqueue();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream.native(), &captured.graph));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream.native(), &captured.graph), "cudaStreamEndCapture", where);
    Graph result;
    check(cudaGraphGetNodes(captured.graph, nullptr, &result.size_), "cudaGraphGetNodes", where);
    check(cudaGraphInstantiate(&result.executable_, captured.graph, 0), "cudaGraphInstantiate", where);
    check(cudaGraphUpload(result.executable_, stream.native()), "cudaGraphUpload", where);
    return result;
  }
  Graph(Graph&& other) noexcept
      : executable_(std::exchange(other.executable_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Graph() {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
  }

  /// Kernels, copies and fills in it.
  std::size_t size() const noexcept { return size_; }

  /// Enqueues all of it; a run of the same graph that is still under way comes first. On a stream of the device on
  /// which it was captured. Errors: invalid_argument for a graph that is none.
  template <class = void>
  void launch(Stream const& stream, std::source_location where = std::source_location::current()) const {
    if (executable_ == nullptr)
      throw Error(ErrorKind::invalid_argument, "Graph::launch", "nothing was captured. Use Graph::capture first",
                  where);
    check(cudaGraphLaunch(executable_, stream.native()), "cudaGraphLaunch", where);
  }

 private:
  struct Captured {
    cudaGraph_t graph = nullptr;
    Captured() = default;
    Captured(Captured const&) = delete;
    Captured& operator=(Captured const&) = delete;
    ~Captured() {
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    }
  };

  cudaGraphExec_t executable_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tutti::cuda
