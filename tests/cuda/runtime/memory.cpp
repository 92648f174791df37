// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "memory.hpp"

#include "grid.hpp"

#include <sys/mman.h>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#endif

namespace emulated {
namespace {

constexpr int zone_byte = 0xfb;

std::size_t room_of(std::size_t bytes, std::size_t zone) { return (bytes + zone - 1) / zone * zone + zone; }

}  // namespace

Arena::Arena()
    : memory_(static_cast<char*>(
          ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  // The zone in front of the first block.
  open();
  std::memset(memory_, zone_byte, zone);
  end_ = zone;
  ASAN_POISON_MEMORY_REGION(memory_, reserved);
  close();
}

Arena::~Arena() {
  ASAN_UNPOISON_MEMORY_REGION(memory_, reserved);
  ::munmap(memory_, reserved);
}

void Arena::open() {
  if (opened_++ == 0) ::mprotect(memory_, end_ + zone, PROT_READ | PROT_WRITE);
}
void Arena::close() {
  if (--opened_ == 0) ::mprotect(memory_, end_ + zone, PROT_NONE);
}

void* Arena::allocate(std::size_t bytes) {
  std::size_t const room = room_of(bytes, zone);
  if (bytes > capacity - used_) return nullptr;
  std::size_t offset = end_;
  if (auto const fit = free_.lower_bound(room); fit != free_.end() && fit->first <= 2 * room) {
    offset = fit->second;
    if (fit->first > room) free_.emplace(fit->first - room, offset + room);
    free_.erase(fit);
  } else {
    if (room > reserved - zone - end_) return nullptr;
    if (opened_ != 0) ::mprotect(memory_ + end_, room + zone, PROT_READ | PROT_WRITE);
    end_ += room;
  }
  blocks_.emplace(offset, bytes);
  used_ += bytes;
  open();
  ASAN_UNPOISON_MEMORY_REGION(memory_ + offset, room);
  std::memset(memory_ + offset, poison, bytes);
  std::memset(memory_ + offset + bytes, zone_byte, room - bytes);
  ASAN_POISON_MEMORY_REGION(memory_ + offset + bytes, room - bytes);
  close();
  return memory_ + offset;
}

std::size_t Arena::size_of(void* block) const {
  if (!contains(block)) return none;
  auto const found = blocks_.find(static_cast<std::size_t>(static_cast<char*>(block) - memory_));
  return found == blocks_.end() ? none : found->second;
}

void Arena::forbid(void* block) {
  [[maybe_unused]] std::size_t const bytes = size_of(block);
  open();
  std::memset(block, poison, bytes);
  ASAN_POISON_MEMORY_REGION(block, bytes);
  close();
}

bool Arena::release(void* block) {
  std::size_t const bytes = size_of(block);
  if (bytes == none) return false;
  forbid(block);
  auto const offset = static_cast<std::size_t>(static_cast<char*>(block) - memory_);
  blocks_.erase(offset);
  free_.emplace(room_of(bytes, zone), offset);
  used_ -= bytes;
  return true;
}

bool Arena::holds(void const* at, std::size_t bytes) const {
  if (!contains(at)) return false;
  auto const offset = static_cast<std::size_t>(static_cast<char const*>(at) - memory_);
  auto found = blocks_.upper_bound(offset);
  if (found == blocks_.begin()) return false;
  --found;
  return offset - found->first <= found->second && bytes <= found->second - (offset - found->first);
}

std::string Arena::damage() {
#if !defined(__SANITIZE_ADDRESS__)
  for (auto const& [offset, bytes] : blocks_) {
    char* const from = memory_ + offset + bytes;
    std::size_t const length = room_of(bytes, zone) - bytes;
    for (std::size_t index = 0; index < length; ++index)
      if (static_cast<unsigned char>(from[index]) != zone_byte) {
        std::memset(from, zone_byte, length);
        return "memory was written " + std::to_string(index) + " bytes beyond the end of a block of " +
               std::to_string(bytes) + " bytes";
      }
  }
  for (std::size_t index = 0; index < zone; ++index)
    if (static_cast<unsigned char>(memory_[index]) != zone_byte) {
      std::memset(memory_, zone_byte, zone);
      return "memory was written in front of the first block";
    }
#endif
  return {};
}

}  // namespace emulated
