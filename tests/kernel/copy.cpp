// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/copy.hpp>
#include <tutti/kernel/cpu/copy.hpp>

#include "kernel/strides.hpp"
#include "kernel/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

template <class T>
void check_copies(std::int64_t size) {
  Random random(static_cast<std::uint64_t>(size));
  for (int round = 0; round < 150; ++round) {
    int const rank = static_cast<int>(random.below(5));
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < rank; ++axis)
      extents.push_back(random.below(20) == 0 ? 0 : 1 + random.below(rank <= 2 ? 90 : 12));
    Shape const shape{std::span<std::int64_t const>(extents)};
    std::int64_t from_span = 0, to_span = 0;
    Strides from_strides = random_strides(random, shape, random.below(3) == 0, random.below(2) == 0, from_span);
    Strides const to_strides = random_strides(random, shape, random.below(2) == 0, random.below(2) == 0, to_span);
    if (rank > 0 && random.below(4) == 0) from_strides[length(random.below(rank))] = 0;
    CAPTURE(size, round, to_string(shape));
    std::vector<T> from(length(from_span));
    for (T& value : from)
      for (std::size_t byte = 0; byte < sizeof(T); ++byte)
        reinterpret_cast<unsigned char*>(&value)[byte] = static_cast<unsigned char>(random.bits());
    std::vector<T> expected(length(to_span));
    std::memset(static_cast<void*>(expected.data()), 0x55, expected.size() * sizeof(T));
    auto const blank = expected;
    std::int64_t index[Shape::max_rank] = {};
    for (std::int64_t count = shape.size(); count > 0; --count) {
      std::int64_t source = 0, target = 0;
      for (int axis = 0; axis < rank; ++axis) {
        source += index[axis] * from_strides[length(axis)];
        target += index[axis] * to_strides[length(axis)];
      }
      expected[length(target)] = from[length(source)];
      for (int axis = rank - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
    }
    for (int threads : {1, 2, 3}) {
      CAPTURE(threads);
      auto to = blank;
      kernel::cpu::strided_copy(context_of(exec::best_isa(), threads), {.shape = shape,
                                                                        .element_size = size,
                                                                        .from = from.data(),
                                                                        .from_strides = from_strides,
                                                                        .to = to.data(),
                                                                        .to_strides = to_strides});
      REQUIRE(same_bits(to, expected));
    }
  }
}

}  // namespace

TEST_CASE("Strided copies move every element of random boxes and nothing else") {
  check_copies<std::uint8_t>(1);
  check_copies<std::uint16_t>(2);
  check_copies<float>(4);
  check_copies<double>(8);
  check_copies<std::array<std::uint64_t, 2>>(16);
}

TEST_CASE("Large copies and transposes are exact on any number of threads") {
  std::int64_t const rows = 517, columns = 1031;
  Random random(1);
  auto const from = random.floats(rows * columns);
  for (int threads : {1, 2, 3}) {
    std::vector<float> whole(from.size()), transposed(from.size()), back(from.size());
    auto& context = context_of(exec::best_isa(), threads);
    kernel::cpu::strided_copy(context, {.shape = {rows, columns},
                                        .from = from.data(),
                                        .from_strides = {columns, 1},
                                        .to = whole.data(),
                                        .to_strides = {columns, 1}});
    kernel::cpu::strided_copy(context, {.shape = {columns, rows},
                                        .from = from.data(),
                                        .from_strides = {1, columns},
                                        .to = transposed.data(),
                                        .to_strides = {rows, 1}});
    kernel::cpu::strided_copy(context, {.shape = {columns, rows},
                                        .from = transposed.data(),
                                        .from_strides = {rows, 1},
                                        .to = back.data(),
                                        .to_strides = {1, columns}});
    REQUIRE(same_bits(whole, from));
    REQUIRE(transposed[3] == from[length(3 * columns)]);
    REQUIRE(same_bits(back, from));
  }
}

TEST_CASE("A reversed axis is a copy with a negative stride") {
  std::vector<std::int32_t> const from{1, 2, 3, 4, 5};
  std::vector<std::int32_t> to(5);
  kernel::cpu::strided_copy(
      context_of(exec::best_isa(), 1),
      {.shape = {5}, .from = from.data() + 4, .from_strides = {-1}, .to = to.data(), .to_strides = {1}});
  REQUIRE(to == std::vector<std::int32_t>{5, 4, 3, 2, 1});
}

TEST_CASE("Elements of an odd size are refused with a sentence") {
  char bytes[6] = {};
  REQUIRE_ERROR(kernel::cpu::strided_copy(context_of(exec::best_isa(), 1),
                                          {.shape = {1}, .element_size = 3, .from = bytes, .to = bytes + 3}),
                ErrorKind::internal, "elements of 3 bytes: 1, 2, 4, 8 and 16 are possible");
}
