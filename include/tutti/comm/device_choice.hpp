// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `device_of`: which of its node's devices a rank works on. Counts are the caller's, so that no vendor's header is
/// needed.

#include <tutti/core/error.hpp>

#include <source_location>
#include <string>

namespace tutti {

struct DeviceChoice {
  int device = 0;   ///< from 0
  int sharers = 1;  ///< ranks of the node that work on it, this one included
  bool shared() const noexcept { return sharers > 1; }
};

/// Deals `devices` out to the ranks of a node in turn. With fewer ranks than devices each has one of its own; with more
/// some share one, which costs speed and memory and is said by `sharers`.
/// Requires   0 <= local_rank < local_size
/// Errors     unavailable: the node has no device. invalid_argument: ranks that cannot be.
inline DeviceChoice device_of(int local_rank, int local_size, int devices,
                              std::source_location where = std::source_location::current()) {
  if (local_rank < 0 || local_rank >= local_size)
    throw Error(ErrorKind::invalid_argument, "device_of",
                "local rank " + std::to_string(local_rank) + " of " + std::to_string(local_size) +
                    " does not exist. Pass local_rank() and local_size() of a communicator",
                where);
  if (devices < 1)
    throw Error(
        ErrorKind::unavailable, "device_of",
        "the node of local rank " + std::to_string(local_rank) +
            " has no device. Run on nodes with devices, see that they are not hidden (CUDA_VISIBLE_DEVICES), or "
            "use Cpu tensors",
        where);
  int const device = local_rank % devices;
  return {device, local_size / devices + (device < local_size % devices ? 1 : 0)};
}
/// The same for a rank of a communicator. Local.
template <class Comm>
  requires requires(Comm const& comm) { comm.local_rank() < comm.local_size(); }
DeviceChoice device_of(Comm const& comm, int devices, std::source_location where = std::source_location::current()) {
  return device_of(comm.local_rank(), comm.local_size(), devices, where);
}

/// "device 1", "device 0, shared by 2 ranks".
inline std::string to_string(DeviceChoice const& choice) {
  std::string text = "device " + std::to_string(choice.device);
  if (choice.shared()) text += ", shared by " + std::to_string(choice.sharers) + " ranks";
  return text;
}

}  // namespace tutti
