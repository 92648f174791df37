// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `NcclConfig`: what a communicator over NCCL can be told.

#include <tutti/exec/cuda/stream.hpp>

namespace tutti {

/// The same on all ranks, but for `after`.
struct NcclConfig {
  /// Making a communicator ends after this time with an Error of kind timeout.
  double start_seconds = 120;
  /// Whether NCCL sums, multiplies and averages 16-bit floats, rounding at every step. Otherwise they pass through the
  /// host's memory, where they are combined in float with one rounding: exact to the promise, and far slower.
  bool narrow_sums = false;
  /// Whether collectives of programs that are captured are captured with them, so that the device goes through a whole
  /// step by itself. Otherwise the host starts each one.
  bool captures = true;
  /// The stream on which the program writes what it passes to collectives: they begin after what it held when they were
  /// started. It outlives the communicator. Null: the program waits for its stream before it calls.
  cuda::Stream const* after = nullptr;
};

}  // namespace tutti
