// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/reduce.hpp> <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/cpu/reduce.hpp>

#include "kernel/reduce_oracle.hpp"
#include "kernel/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;

namespace {

void check(Shape const& shape, Strides const& strides, unsigned axes, std::vector<float> const& x) {
  for (bool maximum : {false, true}) {
    CAPTURE(to_string(shape), axes, maximum);
    ReduceOracle const oracle = reduced(shape, strides, axes, maximum, x.data());
    std::int64_t const terms =
        shape.size() / std::max<std::int64_t>(1, static_cast<std::int64_t>(oracle.values.size()));
    on_every_context(
        [&](exec::Context& context) {
          std::vector<float> out(oracle.values.size(), 77.0f);
          kernel::cpu::reduce(
              context,
              {.shape = shape, .strides = strides, .axes = axes, .maximum = maximum, .x = x.data(), .out = out.data()});
          return out;
        },
        [&](std::vector<float> const& out) {
          if (maximum) require_close(out.data(), oracle.values, 0, 0, "maximum");
          else
            require_close(out.data(), oracle.values, tolerance<float>(terms),
                          oracle.magnitude / std::sqrt(static_cast<double>(terms) + 1) + 1, "sum");
        });
  }
}

}  // namespace

TEST_CASE("Random reductions over any axes of contiguous and transposed tensors agree with double precision") {
  for (int round = 0; round < 300; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    int const rank = static_cast<int>(random.below(5));
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < rank; ++axis)
      extents.push_back(random.below(25) == 0 ? 0 : 1 + random.below(rank == 1 ? 40000 : rank == 2 ? 200 : 20));
    Shape const shape{std::span<std::int64_t const>(extents)};
    Strides strides = shape.row_major_strides();
    if (rank >= 2 && random.below(3) == 0) {  // transposed: the last axis varies slowest
      std::int64_t const last = shape[rank - 1], others = last > 0 ? shape.size() / last : 0;
      for (int axis = 0; axis < rank - 1; ++axis) strides[length(axis)] = last > 0 ? strides[length(axis)] / last : 0;
      strides[length(rank - 1)] = others;
    }
    auto x = random.floats(shape.size(), 2, 0.1f);
    if (rank >= 1 && random.below(8) == 0) {  // equal terms: rounding errors would conspire, so the sums are made exact
      strides[length(random.below(rank))] = 0;
      for (float& value : x) value = std::round(value);
    }
    if (round % 10 == 0 && !x.empty()) x[length(random.below(shape.size()))] = std::nanf("");
    check(shape, strides, static_cast<unsigned>(random.below(1 << rank)), x);
  }
}

TEST_CASE("Long reductions are cut into blocks: whole tensors, few rows, few columns") {
  Random random(6);
  auto const x = random.floats(600'000);
  check({600'000}, {1}, 1, x);
  check({3, 200'000}, {200'000, 1}, 2, x);
  check({200'000, 3}, {3, 1}, 1, x);
  check({1000, 600}, {600, 1}, 1, x);
  check({1000, 600}, {600, 1}, 2, x);
  check({50, 12, 1000}, {12'000, 1000, 1}, 0b101, x);
  check({50, 12, 1000}, {12'000, 1000, 1}, 0b010, x);
  check({600'000}, {1}, 0, x);
}

TEST_CASE("The sum of nothing is zero and its maximum minus infinity") {
  check({3, 0}, {0, 1}, 2, {});
  check({0, 3}, {3, 1}, 1, {});
  check({0, 3}, {3, 1}, 2, {});
  check({}, {}, 0, {4.0f});
}
