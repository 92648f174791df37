// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory of another process of this machine, read where it lies.

#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>

#include <cstddef>
#include <cstdint>
#include <sys/uio.h>
#include <unistd.h>

namespace tutti::comm::shared {

/// A process, and a number of its own in its memory by which a reader knows that it has read from this process: the
/// system gives numbers of processes that are gone to others.
struct Origin {
  std::int32_t process = 0;
  std::uint64_t token_address = 0;
  std::uint64_t token = 0;
};

/// This process, as long as this object is where it is.
class OwnOrigin {
 public:
  OwnOrigin() noexcept
      : process_(static_cast<std::int32_t>(::getpid())),
        token_(static_cast<std::uint64_t>(exec::now_ns()) * 0x9e3779b97f4a7c15u ^ std::uint64_t(process_)) {}
  OwnOrigin(OwnOrigin const&) = delete;
  OwnOrigin& operator=(OwnOrigin const&) = delete;

  Origin origin() const noexcept {
    return {process_, std::uint64_t{reinterpret_cast<std::uintptr_t>(&token_)}, token_};
  }

 private:
  std::int32_t process_;
  std::uint64_t token_;
};

/// Copies `bytes` from `address` there, and the token, by one call of the system that takes both; the token is not
/// asked for where the process is `known`. False where the system does not let it, where there is nothing, or where it
/// is another process; then part of `to` may have been written.
inline bool read_remote(Origin const& origin, std::uint64_t address, void* to, std::int64_t bytes,
                        bool known = false) noexcept {
  auto const pointer = [](std::uint64_t place) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)); };
  std::uint64_t token = origin.token;
  std::size_t const size = static_cast<std::size_t>(bytes), asked = known ? 0 : sizeof token;
  iovec const here[] = {{to, size}, {&token, asked}};
  iovec const there[] = {{pointer(address), size}, {pointer(origin.token_address), asked}};
  unsigned const parts = known ? 1 : 2;
  auto const read = ::process_vm_readv(origin.process, here, parts, there, parts, 0);
  return read == static_cast<std::ptrdiff_t>(size + asked) && token == origin.token;
}

/// Reads the memory of the other ranks of a communicator. Whether a rank is the process that it was costs half a
/// microsecond, an eighth of what reading 128 KiB takes: it is asked once a second. The system gives the number of a
/// process that is gone to another one only when it has given out all others.
class RemoteReader {
 public:
  explicit RemoteReader(int ranks = 0) : known_until_(static_cast<std::size_t>(ranks)) {}
  /// See read_remote. `origin`: of `rank`, always the same.
  bool read(int rank, Origin const& origin, std::uint64_t address, void* to, std::int64_t bytes) noexcept {
    std::int64_t& known_until = known_until_[static_cast<std::size_t>(rank)];
    std::int64_t const now = exec::now_ns();
    bool const known = now < known_until;
    if (!read_remote(origin, address, to, bytes, known)) return false;
    if (!known) known_until = now + 1'000'000'000;
    return true;
  }

 private:
  List<std::int64_t> known_until_;
};

}  // namespace tutti::comm::shared
