// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A State whose fields are on IREE's device while programs run: which side is newer, and the copies between them.

#include <tutti/core/list.hpp>
#include <tutti/graph/iree/runner.hpp>
#include <tutti/graph/state.hpp>

#include <source_location>

namespace tutti::graph::iree {

/// Borrows both. Copies are of all fields at once.
class DeviceState {
 public:
  DeviceState(Runner& runner, State& state) : runner_(runner), state_(state) {}
  DeviceState(DeviceState const&) = delete;
  DeviceState& operator=(DeviceState const&) = delete;

  Runner& runner() noexcept { return runner_; }
  State& host() noexcept { return state_; }

  /// The host has written fields or added some, or may have: the device's are out of date.
  void host_wrote() noexcept { host_is_newer_ = true; }
  /// A program wrote fields: the host's are out of date.
  void device_wrote() noexcept { device_is_newer_ = true; }

  /// Brings to the device what the host wrote since.
  void to_device(std::source_location where = std::source_location::current()) {
    if (!host_is_newer_) return;
    List<Field const*> fields;
    for (Field const& field : state_.fields()) fields.push_back(&field);
    runner_.write(fields, where);
    host_is_newer_ = false;
  }
  /// Brings to the host what the device wrote since.
  void to_host(std::source_location where = std::source_location::current()) {
    if (!device_is_newer_) return;
    List<Field*> fields;
    for (Field& field : state_.fields()) fields.push_back(&field);
    runner_.read(fields, where);
    device_is_newer_ = false;
  }

 private:
  Runner& runner_;
  State& state_;
  bool host_is_newer_ = true, device_is_newer_ = false;
};

}  // namespace tutti::graph::iree
