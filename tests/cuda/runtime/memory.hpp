// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A device's memory: a range of addresses that this process can touch only while its device works.

#include <cstddef>
#include <map>
#include <string>

namespace emulated {

/// Blocks of at least 256 bytes, aligned to 256, with a zone around each that nobody may write: looked at after every
/// kernel, and told to the address sanitizer. What is not written, and what is freed, is poison.
class Arena {
 public:
  static constexpr std::size_t capacity = std::size_t{1} << 30;  ///< what may be allocated at a time

  Arena();
  ~Arena();
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;

  /// nullptr when it is full. Poisons the block when `poisoned`, for which the arena must be open.
  void* allocate(std::size_t bytes);
  bool release(void* block);
  /// The block that begins here is no longer to be touched, though it is not yet free.
  void forbid(void* block);
  /// Bytes of the block that begins at this address; `none` when there is no such block.
  static constexpr std::size_t none = ~std::size_t{0};
  std::size_t size_of(void* block) const;
  /// Whether the whole range lies in one block.
  bool holds(void const* at, std::size_t bytes) const;
  bool contains(void const* at) const { return at >= memory_ && at < memory_ + reserved; }
  std::size_t used() const { return used_; }

  void open();
  void close();
  /// Empty, or what was written outside every block, which is then mended.
  std::string damage();

 private:
  static constexpr std::size_t reserved = std::size_t{8} << 30;
  static constexpr std::size_t zone = 256;

  char* memory_;
  std::size_t end_ = 0;  ///< bytes that were ever in use
  std::size_t used_ = 0;
  int opened_ = 0;
  std::map<std::size_t, std::size_t> blocks_;     ///< offset to bytes
  std::multimap<std::size_t, std::size_t> free_;  ///< room, with zones, to offset
};

}  // namespace emulated
