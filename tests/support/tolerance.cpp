// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/tolerance.hpp"
#include "support/catch.hpp"

#include <limits>
#include <vector>

using namespace tutti::test;
using tutti::DType;

TEST_CASE("a tolerance covers the rounding of a float sum and not much more") {
  for (int n : {1, 10, 1000, 100000}) {
    float sum = 0;
    double exact = 0;
    double scale = 0;
    unsigned state = 1;
    for (int i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      float const x = static_cast<float>(state >> 8) / float(1 << 24) - 0.5f;
      sum += x;
      exact += x;
      scale += x < 0 ? -double{x} : double{x};
    }
    CHECK(close(sum, exact, tolerance<float>(n), scale));
    CHECK_FALSE(close(sum + scale * 1e-3, exact, tolerance<float>(n), scale));
  }
  CHECK(tolerance(DType::bfloat16, 1) > tolerance(DType::float16, 1));
  CHECK(tolerance(DType::int32, 100) == 0);
}

TEST_CASE("closeness treats the ends of the number line as themselves") {
  double const inf = std::numeric_limits<double>::infinity();
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(close(inf, inf, 0.1));
  CHECK_FALSE(close(-inf, inf, 0.1));
  CHECK_FALSE(close(1e300, inf, 0.1));
  CHECK(close(nan, nan, 0.1));
  CHECK_FALSE(close(nan, 0, 0.1));
  CHECK_FALSE(close(0, nan, 0.1));
  CHECK(close(0, 0, 0));
}

TEST_CASE("ulps counts representable floats, across zero too") {
  CHECK(ulps(1.0f, 1.0f) == 0);
  CHECK(ulps(1.0f, std::nextafter(1.0f, 2.0f)) == 1);
  CHECK(ulps(0.0f, -0.0f) == 0);
  CHECK(ulps(std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::denorm_min()) == 2);
}
