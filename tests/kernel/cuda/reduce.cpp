// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/reduce.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/reduce_oracle.hpp"

#include <span>

using namespace tutti;
using namespace tutti::test;

namespace {

void check(Shape const& shape, Strides const& strides, unsigned axes, std::vector<float> const& x) {
  for (bool const maximum : {false, true}) {
    CAPTURE(to_string(shape), axes, maximum);
    ReduceOracle const oracle = reduced(shape, strides, axes, maximum, x.data());
    std::int64_t const terms =
        shape.size() / std::max<std::int64_t>(1, static_cast<std::int64_t>(oracle.values.size()));
    OnDevice const on_x(x);
    auto const run = [&] {
      OnDevice const out(std::vector<float>(oracle.values.size(), 77.0f));
      kernel::cuda::reduce(cuda_context(), {.shape = shape,
                                            .strides = strides,
                                            .axes = axes,
                                            .maximum = maximum,
                                            .x = on_x.data(),
                                            .out = out.data()});
      return out.read();
    };
    auto const out = run();
    if (maximum) require_close_on_device(out, oracle.values, 0, 0, "maximum");
    else
      require_close_on_device(out, oracle.values, tolerance<float>(terms),
                              oracle.magnitude / std::sqrt(static_cast<double>(terms) + 1) + 1, "sum");
    REQUIRE(bits_equal(out, run()));
  }
}

}  // namespace

TEST_CASE("Random reductions on a GPU over any axes of contiguous and transposed tensors agree with double precision") {
  for (int round = 0; round < 120; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    int const rank = static_cast<int>(random.below(5));
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < rank; ++axis)
      extents.push_back(random.below(25) == 0 ? 0 : 1 + random.below(rank == 1 ? 9000 : rank == 2 ? 100 : 9));
    Shape const shape{std::span<std::int64_t const>(extents)};
    Strides strides = shape.row_major_strides();
    if (rank >= 2 && random.below(3) == 0) {  // transposed: the last axis varies slowest
      std::int64_t const last = shape[rank - 1], others = last > 0 ? shape.size() / last : 0;
      for (int axis = 0; axis < rank - 1; ++axis) strides[length(axis)] = last > 0 ? strides[length(axis)] / last : 0;
      strides[length(rank - 1)] = others;
    }
    auto x = random.floats(shape.size(), 2, 0.1f);
    if (round % 10 == 0 && !x.empty()) x[length(random.below(shape.size()))] = std::nanf("");
    check(shape, strides, static_cast<unsigned>(random.below(1 << rank)), x);
  }
}

TEST_CASE("Long reductions on a GPU are cut into parts: whole tensors, few rows, few columns, many outputs") {
  Random random(6);
  auto const x = random.floats(40'000);
  check({40'000}, {1}, 1, x);
  check({3, 10'000}, {10'000, 1}, 2, x);
  check({10'000, 3}, {3, 1}, 1, x);
  check({100, 300}, {300, 1}, 1, x);
  check({300, 100}, {100, 1}, 2, x);
  check({50, 6, 100}, {600, 100, 1}, 0b101, x);
  check({50, 6, 100}, {600, 100, 1}, 0b010, x);
  check({20'000}, {1}, 0, x);
}

TEST_CASE("On a GPU the sum of nothing is zero and its maximum minus infinity") {
  check({3, 0}, {0, 1}, 2, {});
  check({0, 3}, {3, 1}, 1, {});
  check({0, 3}, {3, 1}, 2, {});
  check({}, {}, 0, {4.0f});
}
