// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The memory in which programs on a device run.

#include <tutti/comm/port.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/graph/program.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::graph::cuda {

/// The device memory that programs need while they run. Programs of one stream may share one.
struct Workspace {
  tutti::cuda::DeviceMemory arena, communicator;
  Memory registered;  ///< in the place of `communicator`: from a port that reaches the device

  Workspace(tutti::cuda::Stream const& stream, std::int64_t arena_bytes, std::int64_t communicator_bytes,
            comm::Port* device_port = nullptr)
      : arena(stream, static_cast<std::size_t>(arena_bytes)) {
    if (device_port == nullptr)
      communicator = tutti::cuda::DeviceMemory(stream, static_cast<std::size_t>(communicator_bytes));
    else registered = Memory(communicator_bytes, device_port);
  }
  /// Large enough for each of the programs.
  static Shared<Workspace> of(tutti::cuda::Stream const& stream, std::span<Program const* const> programs,
                              comm::Port* device_port = nullptr) {
    std::int64_t arena_bytes = 0, communicator_bytes = 0;
    for (Program const* program : programs) {
      arena_bytes = std::max(arena_bytes, program->plan.arena_bytes);
      communicator_bytes = std::max(communicator_bytes, program->plan.communicator_bytes);
    }
    return make_shared_owner<Workspace>(stream, arena_bytes, communicator_bytes, device_port);
  }
  std::byte* communicator_data() const noexcept {
    return registered.data() != nullptr ? registered.data() : static_cast<std::byte*>(communicator.data());
  }
  std::int64_t communicator_bytes() const noexcept {
    return std::max(registered.bytes(), static_cast<std::int64_t>(communicator.bytes()));
  }
};

}  // namespace tutti::graph::cuda
