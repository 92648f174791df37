// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rotary embedding as a naive loop in double.

#include <tutti/kernel/rotary.hpp>
#include <tutti/kernel/rotary_table.hpp>

#include "kernel/support.hpp"

#include <cstdint>
#include <vector>

namespace tutti::test {

struct RotaryCase {
  std::int64_t batch, tokens, heads, head_size;
};
inline std::vector<RotaryCase> const rotary_cases{{0, 3, 2, 4},  {1, 1, 1, 2},  {2, 3, 1, 6},   {1, 5, 3, 8},
                                                  {3, 2, 2, 10}, {1, 7, 5, 16}, {2, 4, 3, 30},  {2, 3, 2, 34},
                                                  {1, 33, 12, 64}, {2, 9, 4, 66}, {1, 4, 8, 128}};

/// The definition, in double, from the table as it is stored.
inline std::vector<double> rotated(std::vector<float> const& x, std::int64_t stride, RotaryCase const& c,
                                   kernel::RotaryTable const& table, kernel::RotaryPairing pairing,
                                   std::int64_t first, bool inverse) {
  std::vector<double> y(x.begin(), x.end());
  std::int64_t const pairs = c.head_size / 2;
  for (std::int64_t row = 0; row < c.batch * c.tokens; ++row)
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t i = 0; i < pairs; ++i) {
        bool const half = pairing == kernel::RotaryPairing::half;
        std::size_t const at = length(row * stride + head * c.head_size);
        std::size_t const a = at + length(half ? i : 2 * i), b = at + length(half ? i + pairs : 2 * i + 1);
        std::size_t const entry = length((first + row % c.tokens) * pairs + i);
        double const cosine = table.cosine()[entry], sine = (inverse ? -1.0 : 1.0) * table.sine()[entry];
        y[a] = x[a] * cosine - x[b] * sine;
        y[b] = x[a] * sine + x[b] * cosine;
      }
  return y;
}

}  // namespace tutti::test
