// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A random order of [0, n) that needs no table: element i is computed from (seed, stream, i).

#include <tutti/tensor/random.hpp>

#include <bit>
#include <cstdint>

namespace tutti::data {

/// A bijection of [0, size). Six Feistel rounds of Philox on the smallest square power of two that holds the range; an
/// image outside the range is sent through again until it is inside, fewer than four times on average.
class Permutation {
 public:
  /// Size at least 0; streams (epochs, say) of one seed give independent orders.
  constexpr Permutation(std::uint64_t seed, std::uint64_t stream, std::int64_t size) noexcept
      : seed_(seed), stream_(stream), size_(static_cast<std::uint64_t>(size)) {
    int const bits = size > 1 ? static_cast<int>(std::bit_width(size_ - 1)) : 0;
    half_ = (bits + 1) / 2;
  }

  /// Requires 0 <= index < size.
  constexpr std::int64_t operator()(std::int64_t index) const noexcept {
    auto value = static_cast<std::uint64_t>(index);
    do value = shuffle(value);
    while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

 private:
  constexpr std::uint64_t shuffle(std::uint64_t value) const noexcept {
    std::uint64_t const mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = value >> half_, right = value & mask;
    for (std::uint32_t round = 0; round < 6; ++round) {
      // Halves have at most 32 bits. The constant keeps these words apart from other uses of the same seed.
      std::uint64_t const mixed =
          philox4x32({static_cast<std::uint32_t>(right), 0x5045524du + round, static_cast<std::uint32_t>(stream_),
                      static_cast<std::uint32_t>(stream_ >> 32)},
                     {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)})[0];
      std::uint64_t const next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  std::uint64_t seed_, stream_, size_;
  int half_ = 0;
};

}  // namespace tutti::data
