// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of rotary position embedding (Su et al. 2021, arXiv 2104.09864), and the table of its rotations.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::kernel {

/// Which two elements of a head are rotated together.
enum class RotaryPairing : std::uint8_t {
  half,         ///< i and i + head_size / 2: GPT-NeoX, and LLaMA as Hugging Face stores it
  interleaved,  ///< 2 i and 2 i + 1: the paper, and LLaMA as Meta and GGUF store it
};

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

/// Shapes    x, y (rows, heads, head_size), rows `x_stride` and `y_stride` floats apart, so that Q or K may lie in a
///           packed projection; cosine, sine (positions, head_size / 2), for example of a RotaryTable
/// Computes  every pair (a, b) becomes (a cos - b sin, a sin + b cos); `inverse` rotates back, which is the gradient.
///           Row r is at position first_position + r % tokens, or row_positions[r] where that is given.
/// Requires  an even head size; any number of heads: Q and K are separate calls, and may differ in it
/// Aliasing  y may be x where the strides are equal.
/// Errors    invalid_argument (head size), out_of_range (a position that the table lacks); nothing is written then.
struct Rotary {
  std::int64_t rows = 0, heads = 0, head_size = 0;
  std::int64_t tokens = 1;  ///< rows of a sequence
  RotaryPairing pairing = RotaryPairing::half;
  bool inverse = false;
  std::int64_t positions = 0, first_position = 0;
  std::int32_t const* row_positions = nullptr;
  float const* cosine = nullptr;
  float const* sine = nullptr;
  float const* x = nullptr;
  std::int64_t x_stride = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

}  // namespace tutti::kernel
