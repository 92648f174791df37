// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/convert.hpp>

#include "support/catch.hpp"

#include <cstdint>

using namespace tutti;

TEST_CASE("convert_elements converts every element of a view, in its order") {
  Tensor<double> t({3, 5});
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) t(i, j) = static_cast<double>(i) + static_cast<double>(j) / 10;
  auto const narrow = convert_elements<bfloat16>(t.transpose());
  CHECK(narrow.shape() == Shape{5, 3});
  auto const whole = convert_elements<std::int32_t>(t, Rounding::nearest_even);
  int wrong = 0;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      wrong += narrow(j, i).bits != convert<bfloat16>(t(i, j)).bits;
      wrong += whole(i, j) != i;
    }
  CHECK(wrong == 0);
  CHECK(convert_elements<float>(Tensor<int>({0, 2})).size() == 0);
  CHECK(convert_elements<float>(full<int>({}, 3))() == 3.0f);
  REQUIRE_ERROR(convert_elements<std::int32_t>(t), ErrorKind::overflow, "is not a whole number");
}
