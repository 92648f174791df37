// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/column_sum.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

template <class T>
void check(std::int64_t rows, std::int64_t columns, std::int64_t gap, bool accumulate) {
  CAPTURE(sizeof(T), rows, columns, gap, accumulate);
  Random random(static_cast<std::uint64_t>(rows + columns));
  std::int64_t const stride = columns + gap;
  auto const x = as_stored<T>(random.floats(rows * stride)), before = random.floats(columns);
  std::vector<double> expected(length(columns));
  for (std::int64_t column = 0; column < columns; ++column) {
    if (accumulate) expected[length(column)] = double{before[length(column)]};
    for (std::int64_t row = 0; row < rows; ++row)
      expected[length(column)] += double{x[length(row * stride + column)]};
  }
  OnDevice const on_x(rounded<T>(x));
  auto const run = [&] {
    OnDevice const out(before);
    kernel::cuda::column_sum(cuda_context(), kernel::cuda::ColumnSumOf<T>{.rows = rows,
                                                                          .columns = columns,
                                                                          .stride = stride,
                                                                          .x = on_x.data(),
                                                                          .out = out.data(),
                                                                          .accumulate = accumulate});
    return out.read();
  };
  auto const sums = run();
  require_close_on_device(sums, expected, tolerance<float>(rows), std::sqrt(static_cast<double>(rows) + 1), "sum");
  REQUIRE(bits_equal(sums, run()));
}

}  // namespace

TEST_CASE("Sums of columns agree with double precision for every shape, and have the same bits in every run") {
  for (std::int64_t const rows : {0, 1, 7, 8, 63, 65, 300, 1000})
    for (std::int64_t const columns : {1, 8, 31, 33, 256, 264, 300})
      for (std::int64_t const gap : {0, 3, 8}) {
        if (rows == 1000 && gap != 8) continue;
        check<float>(rows, columns, gap, gap == 8);
        check<bfloat16>(rows, columns, gap, gap != 8);
      }
}
