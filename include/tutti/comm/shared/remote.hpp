// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory of another process of this machine, read where it lies.

#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

namespace tutti::comm::shared {

/// A process, and a number of its own in its memory by which a reader knows that it has read from this process: the
/// system gives numbers of processes that are gone to others.
struct Origin {
  std::int32_t process = 0;
  std::uint64_t token_address = 0;
  std::uint64_t token = 0;
};

/// Copies `bytes` from `address` there, by one call of the system that takes both. False where the system does not let
/// it, where there is nothing, or where it is another process; then part of `to` may have been written.
inline bool read_remote(Origin const& origin, std::uint64_t address, void* to, std::int64_t bytes) noexcept {
  auto const pointer = [](std::uint64_t place) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)); };
  std::uint64_t token = 0;
  auto const size = static_cast<std::size_t>(bytes);
  iovec const here[] = {{&token, sizeof token}, {to, size}};
  iovec const there[] = {{pointer(origin.token_address), sizeof token}, {pointer(address), size}};
  auto const read = ::process_vm_readv(origin.process, here, 2, there, 2, 0);
  return read == static_cast<std::ptrdiff_t>(sizeof token + size) && token == origin.token;
}

}  // namespace tutti::comm::shared
