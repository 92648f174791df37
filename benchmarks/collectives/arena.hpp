// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A rank's memory for all cases: warm calls use its beginning again and again, cold ones walk through all of it, so
/// that a place comes back only after the whole arena was touched.

#include "case.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::bench {

class Arena {
 public:
  /// What the owner allocates for an arena of so many bytes: it begins on a page, whoever allocates it.
  static std::int64_t allocation(std::int64_t bytes) { return bytes + page; }
  Arena(std::byte* memory, std::int64_t bytes)
      : memory_(memory + (page - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory)) % page) % page),
        bytes_(bytes) {}

  /// Bytes that one call's place takes: whole pages, the second buffer half a page off, so that equal indices of the
  /// two do not alias in the store buffer.
  static std::int64_t slot_bytes(std::int64_t bytes) { return 2 * pages(bytes) + page; }

  Slot next(Case const& what) {
    std::int64_t const size = slot_bytes(what.bytes());
    if (at_ + size > bytes_) at_ = 0;
    std::byte* const place = memory_ + (what.cold ? at_ : 0);
    if (what.cold) at_ += size;
    return {place, place + pages(what.bytes()) + page / 2};
  }

  /// Writes ones where the case's calls will work, which also brings cold places out of the caches. Ones stay numbers
  /// under every operator: sums and products never become slow denormal ones. Left out where it would change nothing:
  /// large messages sweep the arena by themselves, and small ones may go on in a part that was not touched since.
  void prepare(Case const& what) {
    bool const untouched = what.bytes() >= 4 * page || at_ < bytes_ / 2;
    if (what.cold && filled_ == what.dtype && untouched) return;
    if (what.cold) at_ = 0;
    filled_ = what.cold || filled_ == what.dtype ? what.dtype : DType::byte;
    std::int64_t const size = what.cold ? bytes_ : slot_bytes(what.bytes());
    with_type(what.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const elements = reinterpret_cast<T*>(memory_);
      std::int64_t const count = size / std::int64_t{sizeof(T)};
      T const one = static_cast<T>(1.0f);
      for (std::int64_t i = 0; i < count; ++i) elements[i] = one;
    });
  }

 private:
  static constexpr std::int64_t page = 4096;
  static std::int64_t pages(std::int64_t bytes) { return (bytes + page - 1) / page * page; }

  std::byte* memory_;
  std::int64_t bytes_;
  std::int64_t at_ = 0;
  DType filled_ = DType::byte;  ///< type of the ones that fill all of it; byte where they do not
};

}  // namespace tutti::bench
