// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A block of a grid while it runs: its threads are fibers, which give way to each other where CUDA's threads wait for
/// each other and nowhere else.
///
/// Order: every warp runs until all its lanes wait for the block or are done; within a warp every lane runs until it
/// waits for others. Which warp and which lane comes first is drawn from the seed, anew after every wait. So of two
/// accesses with no wait between them each comes first under some seeds, and what is read too early is poison.

#include "emulated/vectors.hpp"

#include <cstddef>
#include <source_location>

namespace emulated {

inline constexpr unsigned warp_size = 32;

/// What the running thread can see of itself; set by the scheduler whenever a thread goes on.
struct Position {
  uint3 thread{}, block{};
  dim3 block_size{}, grid_size{};
};
inline Position position;

/// What one lane brings to an operation of its warp. Its fields live on the lane's own stack.
struct LaneCall {
  char const* name;  ///< the operation: all lanes of the mask must call the same
  unsigned mask;
  std::source_location where;
  void* data;  ///< the lane's operands and room for its result
  void (*complete)(LaneCall* const (&lanes)[warp_size], unsigned mask);  ///< run once, when the last lane has come
  bool aligned = false;  ///< all lanes must call from one place (PTX: .aligned)
};

/// Waits until every lane of the mask has called with the same operation and mask.
void warp_together(LaneCall& call);

/// Waits for all threads of the block; `combine` (0: nothing, 1: or, 2: and, 3: count) of their values is returned.
int block_together(char const* name, int value, int combine, std::source_location where);

/// Ends the kernel with a launch failure that says so. Does not return.
[[noreturn]] void fail(char const* text, std::source_location where);

/// The block's dynamic shared memory.
void* dynamic_shared_memory();

/// Lane of the running thread in its warp.
unsigned lane();

/// Whether the running thread has waited for the kernel before its own. One that may overlap with it and ends without
/// fails: what it touched may not have been there.
void waited_for_previous();
bool has_waited_for_previous();

/// Copies that the running thread started and has not waited for (cp.async).
void copy_later(void* to, void const* from, unsigned bytes, unsigned source_bytes, std::source_location where);
void copies_close_group();
void copies_wait(unsigned groups_that_may_be_pending);

}  // namespace emulated

inline constexpr uint3 const& threadIdx = emulated::position.thread;
inline constexpr uint3 const& blockIdx = emulated::position.block;
inline constexpr dim3 const& blockDim = emulated::position.block_size;
inline constexpr dim3 const& gridDim = emulated::position.grid_size;
inline constexpr int warpSize = emulated::warp_size;

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  emulated::block_together("__syncthreads", 0, 0, where);
}
inline int __syncthreads_or(int predicate, std::source_location where = std::source_location::current()) {
  return emulated::block_together("__syncthreads_or", predicate != 0, 1, where);
}
inline int __syncthreads_and(int predicate, std::source_location where = std::source_location::current()) {
  return emulated::block_together("__syncthreads_and", predicate != 0, 2, where);
}
inline int __syncthreads_count(int predicate, std::source_location where = std::source_location::current()) {
  return emulated::block_together("__syncthreads_count", predicate != 0, 3, where);
}
