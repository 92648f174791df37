// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/rotary.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/rotary_oracle.hpp"

#include <cstddef>

using namespace tutti;
using namespace tutti::test;
using kernel::RotaryPairing;
using kernel::RotaryTable;

namespace {

/// A table on the device.
struct Table {
  OnDevice<float> cosine, sine;

  explicit Table(RotaryTable const& table)
      : cosine(std::vector<float>(table.cosine(), table.cosine() + table.positions() * table.pairs())),
        sine(std::vector<float>(table.sine(), table.sine() + table.positions() * table.pairs())) {}
};

template <class T>
void check(RotaryCase const& c, RotaryPairing pairing, bool inverse, bool in_place, std::int64_t gap) {
  std::int64_t const first = gap == 0 ? 0 : 11, columns = c.heads * c.head_size, stride = columns + gap;
  CAPTURE(sizeof(T), c.batch, c.tokens, c.heads, c.head_size, static_cast<int>(pairing), inverse, in_place, gap);
  std::int64_t const rows = c.batch * c.tokens;
  RotaryTable const table(first + c.tokens, c.head_size);
  Table const on_table(table);
  Random random(static_cast<std::uint64_t>(columns + gap));
  auto const x = as_stored<T>(random.floats(rows * stride));
  std::vector<double> expected = rotated(x, stride, c, table, pairing, first, inverse);
  if (!in_place)  // what lies between rows is not written
    for (std::int64_t i = 0; i < rows * stride; ++i)
      if (i % stride >= columns) expected[length(i)] = 7;
  OnDevice const on_x(rounded<T>(x)), on_y(rounded<T>(std::vector<float>(x.size(), 7)));
  std::vector<std::int32_t> positions;
  for (std::int64_t row = 0; row < rows; ++row) positions.push_back(static_cast<std::int32_t>(first + row % c.tokens));
  OnDevice const on_positions(positions);
  kernel::RotaryOf<T> args{.rows = rows, .heads = c.heads, .head_size = c.head_size, .tokens = c.tokens,
                           .pairing = pairing, .inverse = inverse};
  args.positions = table.positions();
  args.first_position = first;
  args.row_positions = inverse ? on_positions.data() : nullptr;
  args.cosine = on_table.cosine.data();
  args.sine = on_table.sine.data();
  args.x = on_x.data();
  args.x_stride = args.y_stride = stride;
  args.y = in_place ? on_x.data() : on_y.data();
  kernel::cuda::rotary(cuda_context(), args);
  require_close_on_device((in_place ? on_x : on_y).read(), expected, tolerance<float>() + unit_roundoff(dtype_of<T>), 1,
                          "y");
}

}  // namespace

TEST_CASE("Rotary embedding on a GPU agrees with double precision for both pairings, strides, offsets, and in place") {
  for (RotaryCase const& c : rotary_cases)
    for (RotaryPairing const pairing : {RotaryPairing::half, RotaryPairing::interleaved})
      for (bool const inverse : {false, true})
        for (bool const in_place : {false, true})
          for (std::int64_t const gap : {0, 5, 8}) {
            check<float>(c, pairing, inverse, in_place, gap);
            check<bfloat16>(c, pairing, inverse, in_place, gap);
          }
}

TEST_CASE("Rotary embedding on a GPU refuses what the host can see, and names a position that only the device sees") {
  RotaryTable const table(4, 4);
  Table const on_table(table);
  OnDevice const x(std::vector<float>(12, 1));
  kernel::Rotary args{.rows = 3, .heads = 1, .head_size = 4, .tokens = 3};
  args.positions = 4;
  args.cosine = on_table.cosine.data();
  args.sine = on_table.sine.data();
  args.x = x.data();
  args.y = x.data();
  args.x_stride = args.y_stride = 4;
  args.first_position = 2;
  REQUIRE_ERROR(kernel::cuda::rotary(cuda_context(), args), ErrorKind::out_of_range,
                "row 2 is at position 4, but the table has 4");
  args.head_size = 3;
  REQUIRE_ERROR(kernel::cuda::rotary(cuda_context(), args), ErrorKind::invalid_argument,
                "heads of 3 elements do not make pairs");
  args.head_size = 4;
  args.tokens = 0;
  REQUIRE_ERROR(kernel::cuda::rotary(cuda_context(), args), ErrorKind::invalid_argument, "sequences of 0 rows");
  OnDevice const positions(std::vector<std::int32_t>{0, 4, 0});
  args.row_positions = positions.data();
  kernel::cuda::rotary(cuda_context(), args);
  REQUIRE_ERROR(cuda_context().wait(), ErrorKind::out_of_range, "row 1 is at position 4");
  REQUIRE(x.read() == std::vector<float>(12, 1));  // position 0 turns nothing, the bad row is left alone
}
