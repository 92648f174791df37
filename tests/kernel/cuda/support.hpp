// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What tests of CUDA kernels with float and bfloat16 elements share.

#include <tutti/core/bfloat16.hpp>

#include "cuda/support.hpp"
#include "kernel/support.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti::test {

/// The values rounded to T.
template <class T>
std::vector<T> rounded(std::vector<float> const& values) {
  std::vector<T> result;
  for (float const value : values) result.push_back(T(value));
  return result;
}
template <class T>
std::vector<float> widened(std::vector<T> const& values) {
  return {values.begin(), values.end()};
}
/// What a device holds of values that were rounded to T.
template <class T>
std::vector<float> as_stored(std::vector<float> const& values) {
  return widened(rounded<T>(values));
}

/// |value - exact| <= relative * max(scale, |exact|), element by element, of what a device wrote.
template <class T>
void require_close_on_device(std::vector<T> const& values, std::vector<double> const& exact, double relative,
                             double scale, char const* what) {
  std::vector<float> const wide = widened(values);
  REQUIRE(wide.size() == exact.size());
  require_close(wide.data(), exact, relative, scale, what);
}

/// Whether the two have the same bits, NaN included.
template <class T>
bool bits_equal(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(static_cast<void const*>(a.data()), static_cast<void const*>(b.data()),
                                   a.size() * sizeof(T)) == 0);
}

}  // namespace tutti::test
