// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of rotary position embedding (Su et al. 2021, arXiv 2104.09864).

#include <cstdint>

namespace tutti::kernel {

/// Which two elements of a head are rotated together.
enum class RotaryPairing : std::uint8_t {
  half,         ///< i and i + head_size / 2: GPT-NeoX, and LLaMA as Hugging Face stores it
  interleaved,  ///< 2 i and 2 i + 1: the paper, and LLaMA as Meta and GGUF store it
};

/// Shapes    x, y (rows, heads, head_size), rows `x_stride` and `y_stride` elements apart, so that Q or K may lie in a
///           packed projection; T float, on a GPU also bfloat16; cosine, sine (positions, head_size / 2), for example
///           those of a RotaryTable (kernel/rotary_table.hpp)
/// Computes  every pair (a, b) becomes (a cos - b sin, a sin + b cos); `inverse` rotates back, which is the gradient.
///           Row r is at position first_position + r % tokens, or row_positions[r] where that is given.
/// Requires  an even head size; any number of heads: Q and K are separate calls, and may differ in it
/// Aliasing  y may be x where the strides are equal.
/// Errors    invalid_argument (head size), out_of_range (a position that the table lacks); nothing is written then.
template <class T>
struct RotaryOf {
  std::int64_t rows = 0, heads = 0, head_size = 0;
  std::int64_t tokens = 1;  ///< rows of a sequence
  RotaryPairing pairing = RotaryPairing::half;
  bool inverse = false;
  std::int64_t positions = 0, first_position = 0;
  std::int32_t const* row_positions = nullptr;
  float const* cosine = nullptr;
  float const* sine = nullptr;
  T const* x = nullptr;
  std::int64_t x_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;
};
using Rotary = RotaryOf<float>;

}  // namespace tutti::kernel
