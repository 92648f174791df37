// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A message with its data type written before it, where it is not in the tag (tags.hpp): whatever the type, the first
/// message is received. This costs a copy on both sides, so it is for check level full.

#include <tutti/comm/collective.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace tutti::mpi {

class Envelope {
 public:
  static constexpr std::int64_t label_bytes = 8;

  /// Of what is sent.
  Envelope(void const* from, std::int64_t bytes, DType dtype) : Envelope(nullptr, bytes) {
    auto const label = static_cast<std::uint64_t>(dtype);
    std::memcpy(memory_.get(), &label, sizeof label);
    if (bytes != 0) std::memcpy(memory_.get() + label_bytes, from, static_cast<std::size_t>(bytes));
  }
  /// For what will be received.
  Envelope(void* to, std::int64_t bytes)
      : memory_(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes + label_bytes))), to_(to), room_(bytes) {}

  void* data() noexcept { return memory_.get(); }
  std::int64_t bytes() const noexcept { return room_ + label_bytes; }
  /// Hands over what came; `info` is what MPI says of it, and then what the sender would say.
  void open(MessageInfo& info) const {
    std::uint64_t label = dtype_count;
    if (info.bytes >= label_bytes) std::memcpy(&label, memory_.get(), sizeof label);
    if (label >= dtype_count)
      throw Error(ErrorKind::communication, "recv",
                  "the message from rank " + std::to_string(info.source) + " with tag " + std::to_string(info.tag) +
                      " was not sent by a communicator whose check level is full. Send it through one");
    info.bytes -= label_bytes;
    info.has_dtype = true;
    info.dtype = static_cast<DType>(label);
    if (info.bytes != 0) std::memcpy(to_, memory_.get() + label_bytes, static_cast<std::size_t>(info.bytes));
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  void* to_;
  std::int64_t room_;
};

}  // namespace tutti::mpi
