// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The rotations that rotary position embedding reads.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::kernel {

/// cos and sin of position * frequency for positions from 0 on: made once by the caller, read by every call.
///
/// Shapes    cosine, sine (positions, pairs)
/// Numerics  angles in double, each entry rounded once to float: within 6e-8 of the exact value up to 2^24 positions.
/// Errors    invalid_argument.
class RotaryTable {
 public:
  /// Frequency i is base^(-2 i / head_size), of head_size / 2.
  RotaryTable(std::int64_t positions, std::int64_t head_size, double base = 10000)
      : RotaryTable(positions, frequencies_of(head_size, base)) {}
  /// One frequency a pair, in radians a position: for models that stretch them.
  RotaryTable(std::int64_t positions, std::span<double const> frequencies)
      : positions_(positions), pairs_(static_cast<std::int64_t>(frequencies.size())) {
    if (positions < 0)
      throw Error(ErrorKind::invalid_argument, "RotaryTable", concat(positions, " positions. Give 0 or more"));
    std::size_t const size = static_cast<std::size_t>(positions) * frequencies.size();
    cosine_.reserve(size);
    sine_.reserve(size);
    for (std::int64_t position = 0; position < positions; ++position)
      for (double frequency : frequencies) {
        double const angle = static_cast<double>(position) * frequency;
        cosine_.push_back(static_cast<float>(std::cos(angle)));
        sine_.push_back(static_cast<float>(std::sin(angle)));
      }
  }

  std::int64_t positions() const noexcept { return positions_; }
  std::int64_t pairs() const noexcept { return pairs_; }
  float const* cosine() const noexcept { return cosine_.data(); }
  float const* sine() const noexcept { return sine_.data(); }

 private:
  static std::vector<double> frequencies_of(std::int64_t head_size, double base) {
    if (head_size < 2 || head_size % 2 != 0)
      throw Error(ErrorKind::invalid_argument, "RotaryTable",
                  concat("heads of ", head_size, " elements do not make pairs. Give an even head size"));
    if (!(base > 0) || std::isinf(base))
      throw Error(ErrorKind::invalid_argument, "RotaryTable",
                  concat("the base is ", base, ". Give a positive number; 10000 is usual"));
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < head_size / 2; ++i)
      frequencies.push_back(std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(head_size)));
    return frequencies;
  }

  std::int64_t positions_, pairs_;
  std::vector<float> cosine_, sine_;
};

}  // namespace tutti::kernel
