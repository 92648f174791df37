// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Large blocks of memory with an owner: whole pages from the system, huge ones where it has them, a file's, or a
/// communicator's heap.

#include <tutti/comm/port.hpp>
#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/pages.hpp>
#include <tutti/core/shared.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::graph {

/// Move-only. Memory of the system starts as zeros and becomes resident on first touch.
class Memory {
 public:
  Memory() = default;
  /// Errors: out_of_memory. Zero bytes give a null pointer.
  explicit Memory(std::int64_t bytes, comm::Port* port = nullptr) {
    if (bytes <= 0) return;
    auto const refuse = [&] {
      throw Error(ErrorKind::out_of_memory, "graph::Memory",
                  std::to_string(bytes) + " bytes are not available. Use a smaller batch, sequence or model");
    };
    if (!std::in_range<std::ptrdiff_t>(bytes)) refuse();
    if (port != nullptr) {
      data_ = static_cast<std::byte*>(port->allocate(static_cast<std::size_t>(bytes)));
      port_ = port;
      bytes_ = static_cast<std::size_t>(bytes);
      return;
    }
    // Blocks from a few huge pages on start at the bounds of one; the rest of the mapping is never touched.
    bool const large = pages::have_huge && static_cast<std::size_t>(bytes) >= 2 * pages::huge;
    mapped_bytes_ = static_cast<std::size_t>(bytes) + (large ? pages::huge : 0);
    mapped_ = pages::map_zeros(mapped_bytes_);
    if (mapped_ == nullptr) refuse();
    auto const address = reinterpret_cast<std::uintptr_t>(mapped_);
    data_ = reinterpret_cast<std::byte*>(large ? (address + pages::huge - 1) / pages::huge * pages::huge : address);
    bytes_ = static_cast<std::size_t>(bytes);
    if (large) pages::prefer_huge(data_, bytes_);
  }
  /// One block for all ranks of `port`, which it keeps; without memory where they cannot share any. Contents are
  /// indeterminate.
  /// Ranks     all, with the same size. Blocking.
  static Memory shared(std::int64_t bytes, Shared<comm::Port> port,
                       std::source_location where = std::source_location::current()) {
    Memory memory;
    memory.data_ = static_cast<std::byte*>(port->share(static_cast<std::size_t>(bytes), where));
    if (memory.data_ == nullptr) return memory;
    memory.bytes_ = static_cast<std::size_t>(bytes);
    memory.port_ = port.get();
    memory.kept_ = std::move(port);
    return memory;
  }
  /// Zeros in a nameless file in `folder`, which goes with this memory: the system writes there what it has no room
  /// for. Errors: io, which names the folder.
  static Memory in_file(std::int64_t bytes, std::string const& folder,
                        std::source_location where = std::source_location::current()) {
    Memory memory;
    int error = ENOSYS;
    auto const size = static_cast<std::size_t>(bytes);
#if !TUTTI_WASM
    memory.mapped_ = pages::map_file_of_zeros(folder, size, error);
#endif
    if (memory.mapped_ == nullptr)
      throw Error(ErrorKind::io, "graph::Memory",
                  "cannot keep " + std::to_string(bytes) + " bytes in a file in '" + folder + "' (" +
                      std::generic_category().message(error) + "). Choose a folder of a disk with room for them",
                  where);
    memory.mapped_bytes_ = memory.bytes_ = size;
    memory.data_ = static_cast<std::byte*>(memory.mapped_);
    memory.in_file_ = true;
    return memory;
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Memory() {
    if (port_ != nullptr) port_->release(data_);
    if (mapped_ != nullptr) pages::unmap(mapped_, mapped_bytes_);
  }

  /// Zeros again. Whole pages go back to the system, where they came from it, until they are touched.
  void clear(std::int64_t begin, std::int64_t bytes) noexcept {
    if (bytes <= 0) return;
    if (mapped_ == nullptr || in_file_) std::memset(data_ + begin, 0, static_cast<std::size_t>(bytes));
    else pages::clear(data_ + begin, static_cast<std::size_t>(bytes));
  }

  /// For memory of which parts will not be touched: a huge page would have memory under them as well. Nothing for
  /// memory that is not the system's.
  void prefer_small_pages() noexcept {
    if (mapped_ != nullptr && !in_file_) pages::prefer_small(data_, bytes_);
  }
  /// Of small pages, huge ones again where one lies in these bytes as a whole.
  void prefer_huge_pages(std::int64_t begin, std::int64_t bytes) noexcept {
    auto const size = static_cast<std::int64_t>(pages::huge);
    if (!pages::have_huge || mapped_ == nullptr || in_file_ ||
        reinterpret_cast<std::uintptr_t>(data_) % pages::huge != 0)
      return;
    std::int64_t const from = (begin + size - 1) / size * size, to = (begin + bytes) / size * size;
    if (from < to) pages::prefer_huge(data_ + from, static_cast<std::size_t>(to - from));
  }

  std::byte* data() const noexcept { return data_; }
  bool in_file() const noexcept { return in_file_; }
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(bytes_); }

  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(in_file_, other.in_file_);
    std::swap(port_, other.port_);
    std::swap(kept_, other.kept_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  bool in_file_ = false;
  comm::Port* port_ = nullptr;
  Shared<comm::Port> kept_;  // where this memory may outlive whoever has the port
};

}  // namespace tutti::graph
