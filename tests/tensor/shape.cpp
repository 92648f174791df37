// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/shape.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <span>
#include <vector>

using namespace tutti;

constexpr Shape image{4, 64, 768};
static_assert(image.rank() == 3 && image.size() == 196608 && image[1] == 64);
static_assert(image.row_major_strides()[0] == 49152 && image.row_major_strides()[2] == 1);
static_assert(Shape{}.rank() == 0 && Shape{}.size() == 1 && Shape{3, 0}.size() == 0);
static_assert(image.with(1, 2) == Shape{4, 2, 768} && Shape{2, 3} != Shape{3, 2} && Shape{2} != Shape{2, 1});

TEST_CASE("shapes are written as in Python") {
  CHECK(to_string(Shape{}) == "()");
  CHECK(to_string(Shape{3}) == "(3,)");
  CHECK(to_string(image) == "(4, 64, 768)");
  CHECK(to_string(Shape{0, 1}) == "(0, 1)");
}

TEST_CASE("impossible shapes are refused with a sentence") {
  REQUIRE_ERROR((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), ErrorKind::shape, "rank 9 is above the limit of 8");
  REQUIRE_ERROR((Shape{2, -1}), ErrorKind::shape, "extent -1 is negative");
  REQUIRE_ERROR((Shape{std::int64_t{1} << 40, std::int64_t{1} << 30}), ErrorKind::overflow, "does not fit 64 bits");
  REQUIRE_ERROR(image.with(3, 1), ErrorKind::out_of_range, "axis 3");
  REQUIRE_ERROR(image.with(-1, 1), ErrorKind::out_of_range, "axis -1");
  REQUIRE_ERROR(image.with(0, -5), ErrorKind::shape, "-5");
}

TEST_CASE("an extent of zero does not hide an overflow of the others, in any order") {
  std::int64_t const big = std::int64_t{1} << 62;
  REQUIRE_ERROR((Shape{0, big, 4}), ErrorKind::overflow, "does not fit");
  REQUIRE_ERROR((Shape{big, 4, 0}), ErrorKind::overflow, "does not fit");
  Shape const empty{0, big, 1};
  CHECK(empty.size() == 0);
  CHECK(empty.row_major_strides()[0] == big);
}

TEST_CASE("eight axes of a span") {
  std::vector<std::int64_t> extents{1, 2, 3, 4, 1, 2, 3, 4};
  Shape const shape{std::span<std::int64_t const>(extents)};
  CHECK(shape.size() == 576);
  CHECK(std::vector<std::int64_t>(shape.begin(), shape.end()) == extents);
  CHECK(shape.end() - shape.begin() == 8);
  std::int64_t expected = 1;
  for (int axis = 7; axis >= 0; --axis) {
    CHECK(shape.row_major_strides()[static_cast<std::size_t>(axis)] == expected);
    expected *= shape[axis];
  }
}
