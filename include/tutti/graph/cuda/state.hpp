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
#include <cstring>
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
    tutti::cuda::PinnedMemory pinned;  ///< see `place`
    bool copy_is_old = true;           ///< the field was written since, and the copy was not
  };

  DeviceState(tutti::cuda::Stream const& stream, State& state) : stream_(stream), state_(state) {}
  /// `state` is for programs of a part of what `whole` is of, which outlives this: its fields that refer to memory of
  /// that one's are the same ones on the device as well. Fields of its own start as zeros there, and stay there.
  DeviceState(State& state, DeviceState& whole) : stream_(whole.stream_), state_(state), whole_(&whole) {}
  DeviceState(DeviceState const&) = delete;
  DeviceState& operator=(DeviceState const&) = delete;

  State& host() noexcept { return state_; }

  /// Device memory of a field; its address stays. Errors: out_of_memory, invalid_argument (no such field).
  template <class = void>
  std::byte* data(std::string_view name, std::source_location where = std::source_location::current()) {
    return static_cast<std::byte*>(twin(name, where).memory.data()) + offset(name, where);
  }
  /// Of its copy in bfloat16, for which there must be room: copied_twin.
  template <class = void>
  std::byte* copied(std::string_view name, std::source_location where = std::source_location::current()) {
    return static_cast<std::byte*>(twin(name, where).copy.data()) + offset(name, where) / 2;
  }
  /// What belongs to a field, or to the one of `whole` of which it is a part. Its address stays.
  template <class = void>
  Twin& twin(std::string_view name, std::source_location where = std::source_location::current()) {
    Field& field = state_.at(name, where);
    if (Field* const of = field_of_whole(field)) return whole_->twin(of->name, where);
    for (Twin& twin : twins_)
      if (twin.field == &field) return twin;
    Twin& twin = twins_.emplace_back();
    twin.field = &field;
    twin.memory = tutti::cuda::DeviceMemory(
        stream_, static_cast<std::size_t>(std::max<std::int64_t>(field.bytes(), 1)), where);
    if (whole_ != nullptr) tutti::cuda::fill_bytes(stream_, twin.memory.data(), 0, twin.memory.bytes(), where);
    else if (!host_is_newer_) copy_to_device(twin, where);
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
  void device_writes() noexcept { (whole_ != nullptr ? whole_->device_is_newer_ : device_is_newer_) = true; }

  /// Brings to the device what the host wrote since, in the stream's order.
  template <class = void>
  void to_device(std::source_location where = std::source_location::current()) {
    if (whole_ != nullptr) return whole_->to_device(where);
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
  /// Pinned memory of the host for one field, which stays: what passes between `read` and `write`.
  template <class = void>
  void* place(std::string_view name, std::source_location where = std::source_location::current()) {
    Twin& of = twin(name, where);
    if (of.pinned.data() == nullptr)
      of.pinned = tutti::cuda::PinnedMemory(static_cast<std::size_t>(of.field->bytes()), where);
    return of.pinned.data();
  }
  /// One field as the device has it, in its place. Blocking, as `to_host`.
  template <class = void>
  void* read(std::string_view name, std::source_location where = std::source_location::current()) {
    void* const to = place(name, where);
    Twin const& of = twin(name, where);
    tutti::cuda::copy_to_host(stream_, to, of.memory.data(), of.pinned.bytes(), where);
    stream_.wait(where);
    return to;
  }
  /// Gives one field its contents on the device, by way of its place: once more when the stream is past it.
  template <class = void>
  void write(std::string_view name, void const* from, std::source_location where = std::source_location::current()) {
    void* const by = place(name, where);
    Twin& of = twin(name, where);
    if (from != by) std::memcpy(by, from, of.pinned.bytes());
    tutti::cuda::copy_to_device(stream_, of.memory.data(), by, of.pinned.bytes(), where);
    of.copy_is_old = true;
    device_writes();
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
  /// Null for one of this state's own.
  Field* field_of_whole(Field const& field) const noexcept {
    if (whole_ == nullptr || field.outside == nullptr) return nullptr;
    for (Field& of : whole_->state_.fields())
      if (address(field) - address(of) < static_cast<std::uintptr_t>(std::max<std::int64_t>(of.bytes(), 1))) return &of;
    return nullptr;
  }
  /// Of a field in the one of `whole`, in bytes.
  std::uintptr_t offset(std::string_view name, std::source_location where) const {
    Field const& field = state_.at(name, where);
    Field const* const of = field_of_whole(field);
    return of == nullptr ? 0 : address(field) - address(*of);
  }
  static std::uintptr_t address(Field const& field) noexcept { return reinterpret_cast<std::uintptr_t>(field.data()); }

  tutti::cuda::Stream const& stream_;
  State& state_;
  DeviceState* whole_ = nullptr;
  std::deque<Twin> twins_;  // in the order of first use
  bool host_is_newer_ = true, device_is_newer_ = false;
};

}  // namespace tutti::graph::cuda
