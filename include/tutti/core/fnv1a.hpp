// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A hash of a few numbers or letters, also in constant expressions: what ranks compare in place of what it stands for.
/// Files and large buffers have hash_bytes.

#include <cstdint>
#include <string_view>

namespace tutti {

/// Source    FNV-1a (Fowler, Noll, Vo), over numbers in place of bytes.
class Fnv1a {
 public:
  constexpr Fnv1a& add(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 1099511628211u;
    return *this;
  }
  constexpr Fnv1a& add(std::string_view text) noexcept {
    for (char const letter : text) add(std::uint64_t{static_cast<unsigned char>(letter)});
    return *this;
  }
  constexpr std::uint64_t value() const noexcept { return hash_; }
  /// Not negative.
  constexpr std::int64_t number() const noexcept { return static_cast<std::int64_t>(hash_ >> 1); }

 private:
  std::uint64_t hash_ = 14695981039346656037u;
};

}  // namespace tutti
