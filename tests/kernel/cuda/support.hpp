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
#include <tuple>
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

/// That a normalisation of float rows gives bfloat16 results, those in float rounded, and takes such gradients:
/// f(rows, channels, x, gamma, y, dy, dx, dgamma, mean, rstd) computes a form and its gradient in device memory, of
/// the type that y and dy have.
template <class F>
void check_narrow_results(F const& f) {
  for (std::int64_t const channels : {33, 768, 20000}) {
    CAPTURE(channels);
    std::int64_t const rows = 5, count = rows * channels;
    OnDevice<float> const x(Random(1).floats(count)), gamma(Random(2).floats(channels));
    std::vector<float> const slopes = as_stored<bfloat16>(Random(3).floats(count));
    auto const run = [&]<class Y>(Y) {
      OnDevice<Y> const y(length(count)), dy(rounded<Y>(slopes));
      OnDevice<float> const mean(length(rows)), rstd(length(rows)), dx(length(count)), dgamma(length(channels));
      f(rows, channels, x.data(), gamma.data(), y.data(), dy.data(), dx.data(), dgamma.data(), mean.data(),
        rstd.data());
      return std::tuple(widened(y.read()), dx.read(), dgamma.read());
    };
    auto const [wide, wide_dx, wide_dgamma] = run(float{});
    auto const [narrow, narrow_dx, narrow_dgamma] = run(bfloat16{});
    CHECK(bits_equal(narrow, as_stored<bfloat16>(wide)));
    CHECK(bits_equal(narrow_dx, wide_dx));
    CHECK(bits_equal(narrow_dgamma, wide_dgamma));
  }
}

}  // namespace tutti::test
