// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/infer.hpp>
// Covers: <tutti/graph/draft.hpp> <tutti/graph/infer_composites.hpp>
// Shapes of results, and the sentence for every mistake.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/infer_types.hpp>

#include "support/catch.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::graph;

namespace {

struct Leaves {
  Builder b;
  Var f(Shape const& shape, DType dtype = DType::float32) { return b.input(reflect_name(), dtype, shape); }
  Var i(Shape const& shape) { return f(shape, DType::int32); }

 private:
  int count_ = 0;
  std::string name_;
  std::string_view reflect_name() { return name_ = "x" + std::to_string(count_++); }
};

}  // namespace

TEST_CASE("a number that no element of the type is, is refused") {
  Leaves l;
  Var const n = l.i({3});
  CHECK((n * 2).dtype() == DType::int32);
  CHECK(full_like(n, -2147483648.0).dtype() == DType::int32);
  REQUIRE_ERROR(n * 0.5, ErrorKind::dtype, "no int32 is 0.5");
  REQUIRE_ERROR(less(n, 2147483648.0), ErrorKind::dtype, "no int32 is 2147483648");
  REQUIRE_ERROR(full_like(n, std::numeric_limits<double>::quiet_NaN()), ErrorKind::dtype, "no int32 is nan");
  REQUIRE_ERROR(constant(l.b, 2, {}, DType::boolean), ErrorKind::dtype, "no bool is 2");
  REQUIRE_ERROR(constant(l.b, -1, {}, DType::uint64), ErrorKind::dtype, "no uint64 is -1");
  CHECK(constant(l.b, 9223372036854775808.0, {}, DType::uint64).dtype() == DType::uint64);
  CHECK(constant(l.b, 0.5, {}, DType::bfloat16).dtype() == DType::bfloat16);
  static_assert(graph::holds(DType::int8, -128) && !graph::holds(DType::int8, 128));
}

TEST_CASE("shapes follow from operands, zero and one included") {
  Leaves l;
  CHECK((l.f({4, 1}) + l.f({3})).shape() == Shape{4, 3});
  CHECK((l.f({0, 3}) * l.f({3})).shape() == Shape{0, 3});
  CHECK(linear(l.f({2, 0, 5}), l.f({7, 5})).shape() == Shape{2, 0, 7});
  CHECK(slice(l.f({7, 3}), {1, 0}, {6, 3}, {2, 1}).shape() == Shape{3, 3});
  CHECK(slice(l.f({7}), {7}, {7}).shape() == Shape{0});
  CHECK(pad(l.f({3}), {1}, {2}, {2}).shape() == Shape{1 + 3 + 4 + 2});
  CHECK(pad(l.f({0}), {1}, {2}, {2}).shape() == Shape{3});
  CHECK(concatenate({l.f({2, 0}), l.f({2, 3})}, 1).shape() == Shape{2, 3});
  CHECK(reduce_sum(l.f({2, 3, 4}), {0, -1}).shape() == Shape{3});
  CHECK(sum_all(l.f({2, 3})).shape() == Shape{});
  CHECK(dot_general(l.f({2, 3, 4}), l.f({5, 4, 2}), {2}, {1}, {0}, {2}).shape() == Shape{2, 3, 5});
  CHECK(gather(l.f({9, 4}), l.i({2, 3})).shape() == Shape{2, 3, 4});
  CHECK(gather(l.f({9}), l.i({})).shape() == Shape{});
  CHECK(attention(l.f({2, 5, 36}), 3).shape() == Shape{2, 5, 12});
  CHECK(embed(l.f({9, 4}), l.f({8, 4}), l.i({2, 5})).shape() == Shape{2, 5, 4});
  CHECK(cross_entropy(l.f({2, 3, 9}), l.i({2, 3})).shape() == Shape{});
  CHECK(linear_cross_entropy_losses(l.f({2, 3, 4}), l.f({9, 4}), l.i({2, 3})).tokens.shape() == Shape{2, 3});
  CHECK(square_sum(l.f({3})).dtype() == DType::float64);
  CHECK(less(l.f({3}), 0.0).dtype() == DType::boolean);
  CHECK(transpose(l.f({2, 3, 4}), {2, 0, 1}).shape() == Shape{4, 2, 3});
}

TEST_CASE("a wrong shape is named with both shapes and the user's line") {
  Leaves l;
  auto const shape = ErrorKind::shape;
  REQUIRE_ERROR(linear(l.f({2, 4}), l.f({3, 5})), shape,
                "the last extents must be equal (shapes here: (2, 4) and (3, 5))");
  REQUIRE_ERROR(linear(l.f({2, 4}), l.f({3, 5})), shape, "infer_types.cpp:" + std::to_string(__LINE__));
  REQUIRE_ERROR(linear(l.f({2, 4}), l.f({3, 4}), l.f({4})), shape, "the bias needs one element per row of the weight");
  REQUIRE_ERROR(l.f({2, 3}) + l.f({2}), shape,
                "operands do not broadcast: extents, aligned at the last axis, must be equal or 1 (shapes here: (2, 3) "
                "and (2,))");
  REQUIRE_ERROR(broadcast_to(l.f({2, 3}), {3}), shape, "a broadcast cannot drop axes");
  REQUIRE_ERROR(broadcast_in_dim(l.f({2}), {3}, {0}), shape, "extents must be equal or 1 (shapes here: (2,) and (3,))");
  REQUIRE_ERROR(reshape(l.f({2, 3}), {5}), shape,
                "a reshape keeps the number of elements (shapes here: (2, 3) and (5,))");
  REQUIRE_ERROR(transpose(l.f({2, 3}), {0, 0}), shape, "a permutation names every axis of the operand once");
  REQUIRE_ERROR(transpose(l.f({2, 3}), {1}), shape, "a permutation names every axis of the operand once");
  REQUIRE_ERROR(slice(l.f({3}), {1}, {4}), shape, "starts and limits must lie within the operand");
  REQUIRE_ERROR(slice(l.f({3}), {1, 1}, {2, 2}), shape, "one start, limit and stride per axis");
  REQUIRE_ERROR(pad(l.f({3}), {-1}, {0}), shape, "padding must not be negative; use slice");
  REQUIRE_ERROR(concatenate({l.f({2, 3}), l.f({3, 3})}, 1), shape,
                "may differ along the concatenated axis only (shapes here: (2, 3) and (3, 3))");
  REQUIRE_ERROR(concatenate({l.f({2, 3})}, 2), shape, "the axis is not below the rank");
  REQUIRE_ERROR(concatenate({}, 0), ErrorKind::invalid_argument, "nothing to concatenate");
  REQUIRE_ERROR(reduce_sum(l.f({2, 3}), {2}), shape, "every axis must stand once and be below the rank");
  REQUIRE_ERROR(reduce_sum(l.f({2, 3}), {1, 1}), shape, "every axis must stand once");
  REQUIRE_ERROR(dot_general(l.f({2, 3}), l.f({4, 5}), {1}, {0}), shape,
                "paired axes differ in extent (shapes here: (2, 3) and (4, 5))");
  REQUIRE_ERROR(dot_general(l.f({2, 3}), l.f({3, 5}), {1, 1}, {0, 0}), shape, "an axis is named twice");
  REQUIRE_ERROR(dot_general(l.f({2, 3}), l.f({3, 5}), {1}, {}), shape, "as many batch and contracted axes");
  REQUIRE_ERROR(scatter_add(l.f({4, 3}), l.i({2}), l.f({3, 3})), shape, "one row of the base's width per index");
  REQUIRE_ERROR(dynamic_slice(l.f({3}), {l.i({})}, {4}), shape, "the slice is larger than the tensor");
  REQUIRE_ERROR(dynamic_slice(l.f({3}), {l.i({1})}, {2}), shape, "must be a scalar (shape here: (1,))");
  REQUIRE_ERROR(layer_norm(l.f({2, 3}), l.f({2}), l.f({3})), shape,
                "must be the last extent of the tensor that it belongs to");
  REQUIRE_ERROR(rms_norm(l.f({2, 3}), l.f({2})), shape, "must be the last extent of the tensor that it belongs to");
  REQUIRE_ERROR(rms_norm(l.f({}), l.f({1})), shape, "x must have a last axis to normalise");
  REQUIRE_ERROR(rotary(l.f({8}), {l.f({1, 4}), l.f({1, 4})}), shape, "x must have shape (..., T, C)");
  REQUIRE_ERROR(rotary(l.f({3, 8}), {l.f({2, 4}), l.f({2, 4})}), shape,
                "needs rotations (T, head size / 2) (shapes here: (3, 8) and (2, 4))");
  REQUIRE_ERROR(rotary(l.f({3, 8}), {l.f({3, 4}), l.f({3, 2})}), shape, "operands differ in shape");
  REQUIRE_ERROR(rotary(l.f({3, 8}), {l.f({3, 3}), l.f({3, 3})}), shape, "must divide by the head size");
  REQUIRE_ERROR(swiglu(l.f({3, 8}), l.f({3, 4})), shape, "operands differ in shape");
  REQUIRE_ERROR(swiglu(l.f({}), l.f({})), shape, "gate and up must have shape (..., C)");
  Builder other;
  REQUIRE_ERROR(rotations(other, 3, 5), shape, "the head size must be even and positive (shape here: (5,))");
  REQUIRE_ERROR(rotations(other, 3, 4, 0), ErrorKind::invalid_argument, "the base must be positive");
}

TEST_CASE("a composite's mistakes are named") {
  Leaves l;
  auto const shape = ErrorKind::shape;
  REQUIRE_ERROR(attention(l.f({2, 5, 35}), 3), shape,
                "the width of packed projections must divide by the heads of Q, K and V together (shapes here: "
                "(2, 5, 35) and (9,))");
  REQUIRE_ERROR(attention(l.f({2, 36}), 3), shape, "must have shape (B, T, (heads + 2 kv heads) size)");
  REQUIRE_ERROR(attention(l.f({2, 5, 36}), 5), shape, "(shapes here: (2, 5, 36) and (15,))");
  REQUIRE_ERROR(attention(l.f({2, 5, 36}), 0), shape, "must be at least 1 and divide the heads of queries");
  REQUIRE_ERROR(attention(l.f({2, 5, 40}), 4, 3), shape, "divide the heads of queries (shapes here: (4,) and (3,))");
  CHECK(attention(l.f({2, 5, 40}), 6, 2).shape() == Shape{2, 5, 24});
  REQUIRE_ERROR(embed(l.f({9, 4}), l.f({4, 4}), l.i({2, 5})), shape, "positions must have shape (T or more, C)");
  CHECK(embed(l.f({9, 4}), l.i({5})).shape() == Shape{5, 4});
  REQUIRE_ERROR(embed(l.f({9, 4}), l.f({2, 5})), ErrorKind::dtype, "indices must be integers");
  REQUIRE_ERROR(cross_entropy(l.f({2, 3, 9}), l.i({2})), shape, "one target per row (shapes here: (2, 3, 9) and (2,))");
  REQUIRE_ERROR(linear_cross_entropy(l.f({2, 4}), l.f({9, 5}), l.i({2})), shape, "the last extents must be equal");
  REQUIRE_ERROR(linear_cross_entropy(l.f({2, 4}), l.f({9, 4}), l.i({3})), shape, "one target per row");
  REQUIRE_ERROR(linear_cross_entropy(l.f({2, 4}), l.f({9, 4}), l.i({2}), 10), shape,
                "the vocabulary must be between 1 and the rows of the weight");
  REQUIRE_ERROR(square_sum(l.f({3}), l.f({})), ErrorKind::dtype, "must be a float64 scalar");
}

TEST_CASE("mixed dtypes are named, numbers take the other side's") {
  Leaves l;
  auto const dtype = ErrorKind::dtype;
  REQUIRE_ERROR(l.f({3}) + l.i({3}), dtype, "operands differ in dtype; convert one of them (here: float32 and int32)");
  REQUIRE_ERROR(exp(l.i({3})), dtype, "must be of a floating type; convert it");
  REQUIRE_ERROR(select(l.f({3}), l.f({3}), l.f({3})), dtype, "the predicate must be boolean");
  REQUIRE_ERROR(gather(l.f({3}), l.f({3})), dtype, "indices must be integers");
  CHECK((l.f({3}, DType::float64) * 2).dtype() == DType::float64);
  CHECK((l.i({3}) * 2).dtype() == DType::int32);
}
