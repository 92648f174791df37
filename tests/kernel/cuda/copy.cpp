// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/copy.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/strides.hpp"

#include <span>

using namespace tutti;
using namespace tutti::test;

namespace {

struct alignas(16) Sixteen {
  std::uint64_t words[2];
};

template <class T>
void check_copies() {
  std::int64_t const size = sizeof(T);
  Random random(static_cast<std::uint64_t>(size));
  for (int round = 0; round < 80; ++round) {
    int const rank = static_cast<int>(random.below(5));
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < rank; ++axis)
      extents.push_back(random.below(20) == 0 ? 0 : 1 + random.below(rank <= 2 ? 90 : 12));
    Shape const shape{std::span<std::int64_t const>(extents)};
    std::int64_t from_span = 0, to_span = 0;
    Strides from_strides = random_strides(random, shape, random.below(3) == 0, random.below(2) == 0, from_span);
    Strides const to_strides = random_strides(random, shape, random.below(2) == 0, random.below(2) == 0, to_span);
    if (rank > 0 && random.below(4) == 0) from_strides[length(random.below(rank))] = 0;
    std::int64_t const shift = random.below(2);  // rows that begin at any multiple of the element
    CAPTURE(size, round, to_string(shape), shift);
    std::vector<T> from(length(from_span + shift)), expected(length(to_span + shift));
    for (T& value : from)
      for (std::size_t byte = 0; byte < sizeof(T); ++byte)
        reinterpret_cast<unsigned char*>(&value)[byte] = static_cast<unsigned char>(random.bits());
    std::memset(static_cast<void*>(expected.data()), 0x55, expected.size() * sizeof(T));
    OnDevice const on_from(from), on_to(expected);
    std::int64_t index[Shape::max_rank] = {};
    for (std::int64_t count = shape.size(); count > 0; --count) {
      std::int64_t source = shift, target = shift;
      for (int axis = 0; axis < rank; ++axis) {
        source += index[axis] * from_strides[length(axis)];
        target += index[axis] * to_strides[length(axis)];
      }
      expected[length(target)] = from[length(source)];
      for (int axis = rank - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
    }
    kernel::cuda::strided_copy(cuda_context(), {.shape = shape,
                                                .element_size = size,
                                                .from = on_from.data() + shift,
                                                .from_strides = from_strides,
                                                .to = on_to.data() + shift,
                                                .to_strides = to_strides});
    REQUIRE(bits_equal(on_to.read(), expected));
  }
}

}  // namespace

TEST_CASE("Strided copies on a GPU move every element of random boxes and nothing else") {
  check_copies<std::uint8_t>();
  check_copies<std::uint16_t>();
  check_copies<float>();
  check_copies<double>();
  check_copies<Sixteen>();
}

TEST_CASE("A batch of matrices is transposed on a GPU by tiles, and back") {
  std::int64_t const batch = 2, rows = 70, columns = 131;
  Random random(1);
  auto const from = random.floats(batch * rows * columns);
  OnDevice const on_from(from);
  OnDevice<float> const transposed(from.size()), back(from.size());
  Strides const straight{rows * columns, 1, columns}, turned{rows * columns, rows, 1};
  kernel::cuda::strided_copy(cuda_context(), {.shape = {batch, columns, rows},
                                              .from = on_from.data(),
                                              .from_strides = straight,
                                              .to = transposed.data(),
                                              .to_strides = turned});
  kernel::cuda::strided_copy(cuda_context(), {.shape = {batch, columns, rows},
                                              .from = transposed.data(),
                                              .from_strides = turned,
                                              .to = back.data(),
                                              .to_strides = straight});
  REQUIRE(transposed.read()[3] == from[length(3 * columns)]);
  REQUIRE(bits_equal(back.read(), from));
}

TEST_CASE("A reversed axis is a copy with a negative stride, also on a GPU") {
  OnDevice const from(std::vector<std::int32_t>{1, 2, 3, 4, 5}), to(std::vector<std::int32_t>(5));
  kernel::cuda::strided_copy(
      cuda_context(),
      {.shape = {5}, .from = from.data() + 4, .from_strides = {-1}, .to = to.data(), .to_strides = {1}});
  REQUIRE(to.read() == std::vector<std::int32_t>{5, 4, 3, 2, 1});
}

TEST_CASE("Memory is filled and cleared on a GPU, and nothing beside it") {
  for (std::int64_t const count : {0, 1, 255, 256, 1000}) {
    CAPTURE(count);
    OnDevice const filled(std::vector<float>(length(count) + 1, 3)), cleared(std::vector<float>(length(count) + 1, 3));
    kernel::cuda::fill(cuda_context(), filled.data(), count, 2.5f);
    kernel::cuda::zero(cuda_context(), cleared.data(), count);
    std::vector<float> expected(length(count), 2.5f), zeros(length(count));
    expected.push_back(3);
    zeros.push_back(3);
    REQUIRE(filled.read() == expected);
    REQUIRE(cleared.read() == zeros);
  }
}

TEST_CASE("Elements of an odd size are refused with a sentence on a GPU") {
  OnDevice const bytes(std::vector<std::uint8_t>(6));
  REQUIRE_ERROR(kernel::cuda::strided_copy(cuda_context(), {.shape = {1}, .element_size = 3, .from = bytes.data(),
                                                            .to = bytes.data() + 3}),
                ErrorKind::internal, "elements of 3 bytes: 1, 2, 4, 8 and 16 are possible");
}
