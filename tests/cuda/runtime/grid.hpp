// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs grids, block by block. Only the thread that plays the device calls it.

#include "emulated/vectors.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace emulated {

/// Orders are drawn from it. With seed 0 every order is the one as written.
class Dice {
 public:
  void seed(std::uint64_t value) {
    seed_ = value;
    state_ = value;
  }
  bool idle() const { return seed_ == 0; }
  std::uint64_t roll() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, bound).
  unsigned below(unsigned bound) { return static_cast<unsigned>((roll() >> 32) * bound >> 32); }
  void shuffle(std::vector<unsigned>& order) {
    if (idle()) return;
    for (unsigned last = static_cast<unsigned>(order.size()); last > 1; --last)
      std::swap(order[last - 1], order[below(last)]);
  }

 private:
  std::uint64_t seed_ = 0, state_ = 0;
};

struct Grid {
  dim3 size, block;
  std::size_t shared_bytes;
  std::function<void()> body;
};

/// Empty, or why the grid failed.
std::string run_grid(Grid const&, Dice&);

/// What memory holds before anything is written: NaN as a float, -1 as an integer.
inline constexpr int poison = 0xff;

}  // namespace emulated
