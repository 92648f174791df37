// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A State's fields on a device. The State itself stays in memory of the host, for whoever initialises, broadcasts,
/// checkpoints or looks at it; contents pass between the two when one side needs what the other one wrote.

#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/graph/state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <source_location>
#include <string_view>

namespace tutti::graph::cuda {

/// Not copyable. Borrows a stream and a state, whose fields must not be shared between ranks.
class DeviceState {
 public:
  /// A field's memory on the device, and what products read of it in bfloat16 where a program asked for that.
  struct Twin {
    Field* field = nullptr;
    tutti::cuda::DeviceMemory memory, copy;
    bool copy_is_old = true;  ///< the field was written since, and the copy was not
  };

  DeviceState(tutti::cuda::Stream const& stream, State& state) : stream_(stream), state_(state) {}
  DeviceState(DeviceState const&) = delete;
  DeviceState& operator=(DeviceState const&) = delete;

  State& host() noexcept { return state_; }

  /// Device memory of a field; its address stays. Errors: out_of_memory, invalid_argument (no such field).
  template <class = void>
  std::byte* data(std::string_view name, std::source_location where = std::source_location::current()) {
    return static_cast<std::byte*>(twin(name, where).memory.data());
  }
  /// The same with what belongs to it. Its address stays.
  template <class = void>
  Twin& twin(std::string_view name, std::source_location where = std::source_location::current()) {
    Field& field = state_.at(name);
    for (Twin& twin : twins_)
      if (twin.field == &field) return twin;
    Twin& twin = twins_.emplace_back();
    twin.field = &field;
    twin.memory = tutti::cuda::DeviceMemory(
        stream_, static_cast<std::size_t>(std::max<std::int64_t>(field.bytes(), 1)), where);
    if (!host_is_newer_) copy_to_device(twin, where);
    return twin;
  }
  /// The twin of a float32 field with room for its copy in bfloat16, which whoever runs programs keeps up to date.
  template <class = void>
  Twin& copied_twin(std::string_view name, std::source_location where = std::source_location::current()) {
    Twin& of = twin(name, where);
    if (of.copy.data() == nullptr)
      of.copy = tutti::cuda::DeviceMemory(stream_, static_cast<std::size_t>(of.field->bytes() / 2), where);
    return of;
  }

  /// The host has written fields, or may have: the device's are out of date.
  void host_wrote() noexcept { host_is_newer_ = true; }
  /// Work that writes fields was enqueued: the host's are out of date.
  void device_writes() noexcept { device_is_newer_ = true; }

  /// Brings to the device what the host wrote since, in the stream's order.
  template <class = void>
  void to_device(std::source_location where = std::source_location::current()) {
    if (!host_is_newer_) return;
    for (Twin& twin : twins_) copy_to_device(twin, where);
    host_is_newer_ = false;
  }
  /// Brings to the host what the device wrote since. Blocking, until all work of the stream is done.
  template <class = void>
  void to_host(std::source_location where = std::source_location::current()) {
    if (!device_is_newer_) return;
    for (Twin& twin : twins_)
      tutti::cuda::copy_to_host(stream_, twin.field->data(), twin.memory.data(),
                                static_cast<std::size_t>(twin.field->bytes()), where);
    stream_.wait(where);
    device_is_newer_ = false;
  }
  std::int64_t bytes() const noexcept {
    std::int64_t total = 0;
    for (Twin const& twin : twins_) total += static_cast<std::int64_t>(twin.memory.bytes() + twin.copy.bytes());
    return total;
  }

 private:
  void copy_to_device(Twin& twin, std::source_location where) {
    tutti::cuda::copy_to_device(stream_, twin.memory.data(), twin.field->data(),
                                static_cast<std::size_t>(twin.field->bytes()), where);
    twin.copy_is_old = true;
  }

  tutti::cuda::Stream const& stream_;
  State& state_;
  std::deque<Twin> twins_;  // in the order of first use
  bool host_is_newer_ = true, device_is_newer_ = false;
};

}  // namespace tutti::graph::cuda
