// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/rotary.hpp> <tutti/kernel/rotary_table.hpp> <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/rotary_table.hpp>

#include "kernel/rotary_oracle.hpp"
#include "kernel/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;
using kernel::RotaryPairing;
using kernel::RotaryTable;

TEST_CASE("The table of rotations holds cos and sin of position times frequency, rounded once") {
  for (std::int64_t head_size : {2, 6, 64, 128})
    for (double base : {10000.0, 500000.0}) {
      RotaryTable const table(300, head_size, base);
      REQUIRE(table.positions() == 300);
      REQUIRE(table.pairs() == head_size / 2);
      for (std::int64_t position : {0, 1, 17, 299})
        for (std::int64_t i = 0; i < head_size / 2; ++i) {
          long double const angle = static_cast<long double>(position) *
                                    std::pow(static_cast<long double>(base),
                                             -2 * static_cast<long double>(i) / static_cast<long double>(head_size));
          std::size_t const at = length(position * table.pairs() + i);
          CAPTURE(head_size, base, position, i);
          REQUIRE(std::abs(table.cosine()[at] - static_cast<double>(std::cos(angle))) <= 6e-8);
          REQUIRE(std::abs(table.sine()[at] - static_cast<double>(std::sin(angle))) <= 6e-8);
        }
    }
  std::vector<double> const frequencies{0.5, 0.125};
  RotaryTable const own(9, frequencies);
  REQUIRE(own.pairs() == 2);
  REQUIRE(own.sine()[8 * 2 + 1] == static_cast<float>(std::sin(1.0)));
}

TEST_CASE("Far positions of the table keep their precision") {
  std::int64_t const far = 1 << 20;
  RotaryTable const table(far + 1, 4);
  long double const angle = static_cast<long double>(far) * 0.01L;
  REQUIRE(std::abs(table.cosine()[2 * far + 1] - static_cast<double>(std::cos(angle))) <= 6e-8);
  REQUIRE(std::abs(table.sine()[2 * far] - static_cast<double>(std::sin(static_cast<long double>(far)))) <= 6e-8);
}

TEST_CASE("Rotary embedding agrees with double precision for both pairings, strides, offsets, and in place") {
  for (RotaryCase const& c : rotary_cases)
    for (RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
      for (bool inverse : {false, true})
        for (bool in_place : {false, true})
          for (std::int64_t gap : {0, 5}) {
            std::int64_t const first = gap == 0 ? 0 : 11, columns = c.heads * c.head_size, stride = columns + gap;
            CAPTURE(c.batch, c.tokens, c.heads, c.head_size, static_cast<int>(pairing), inverse, in_place, gap);
            std::int64_t const rows = c.batch * c.tokens;
            RotaryTable const table(first + c.tokens, c.head_size);
            Random random(static_cast<std::uint64_t>(columns + gap));
            auto const x = random.floats(rows * stride);
            std::vector<double> expected = rotated(x, stride, c, table, pairing, first, inverse);
            if (!in_place)  // what lies between rows is not written
              for (std::int64_t i = 0; i < rows * stride; ++i)
                if (i % stride >= columns) expected[length(i)] = 7;
            on_every_context(
                [&](exec::Context& context) {
                  std::vector<float> y = in_place ? x : std::vector<float>(x.size(), 7.0f);
                  kernel::Rotary args{.rows = rows, .heads = c.heads, .head_size = c.head_size, .tokens = c.tokens,
                                      .pairing = pairing, .inverse = inverse};
                  args.positions = table.positions();
                  args.first_position = first;
                  args.cosine = table.cosine();
                  args.sine = table.sine();
                  args.x = in_place ? y.data() : x.data();
                  args.x_stride = stride;
                  args.y = y.data();
                  args.y_stride = stride;
                  kernel::cpu::rotary(context, args);
                  return y;
                },
                [&](std::vector<float> const& y) { require_close(y.data(), expected, tolerance<float>(), 1, "y"); });
          }
}

TEST_CASE("The inverse rotation undoes the rotation, and is its gradient: <R x, y> == <x, R^-1 y>") {
  std::int64_t const tokens = 6, heads = 3, size = 20, count = tokens * heads * size;
  RotaryTable const table(tokens, size);
  Random random(12);
  auto const x = random.floats(count), y = random.floats(count);
  for (RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
    auto const turn = [&](std::vector<float> const& from, bool inverse) {
      std::vector<float> to(from.size());
      kernel::Rotary args{.rows = tokens, .heads = heads, .head_size = size, .tokens = tokens, .pairing = pairing,
                          .inverse = inverse, .positions = tokens};
      args.cosine = table.cosine();
      args.sine = table.sine();
      args.x = from.data();
      args.y = to.data();
      args.x_stride = args.y_stride = heads * size;
      kernel::cpu::rotary(context_of(exec::best_isa(), 1), args);
      return to;
    };
    auto const turned = turn(x, false), back = turn(turned, true), pulled = turn(y, true);
    double left = 0, right = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(close(back[i], x[i], 2 * tolerance<float>(), 2));
      left += double{turned[i]} * y[i];
      right += double{x[i]} * pulled[i];
    }
    REQUIRE(close(left, right, tolerance<float>(count), static_cast<double>(count)));
  }
}

TEST_CASE("Rows of a decoding batch may each have a position of their own") {
  std::int64_t const rows = 4, heads = 2, size = 12;
  RotaryTable const table(50, size);
  Random random(3);
  auto const x = random.floats(rows * heads * size);
  std::vector<std::int32_t> const positions{49, 0, 7, 7};
  kernel::Rotary args{.rows = rows, .heads = heads, .head_size = size, .positions = 50};
  args.cosine = table.cosine();
  args.sine = table.sine();
  args.x_stride = args.y_stride = heads * size;
  std::vector<float> together(x.size()), alone(x.size());
  args.row_positions = positions.data();
  args.x = x.data();
  args.y = together.data();
  kernel::cpu::rotary(context_of(exec::best_isa(), 2), args);
  args.row_positions = nullptr;
  args.rows = 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    args.first_position = positions[length(row)];
    args.x = x.data() + row * heads * size;
    args.y = alone.data() + row * heads * size;
    kernel::cpu::rotary(context_of(exec::best_isa(), 1), args);
  }
  REQUIRE(same_bits(together, alone));
}

TEST_CASE("Scores of rotated queries and keys depend on the distance of their positions alone") {
  std::int64_t const size = 64;
  RotaryTable const table(200, size);
  Random random(1);
  auto const q = random.floats(size), k = random.floats(size);
  for (RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
    auto const at = [&](std::vector<float> const& from, std::int64_t position) {
      std::vector<float> to(from.size());
      kernel::Rotary args{.rows = 1, .heads = 1, .head_size = size, .pairing = pairing, .positions = 200,
                          .first_position = position};
      args.cosine = table.cosine();
      args.sine = table.sine();
      args.x = from.data();
      args.y = to.data();
      kernel::cpu::rotary(context_of(exec::best_isa(), 1), args);
      return to;
    };
    auto const score = [&](std::int64_t i, std::int64_t j) {
      auto const a = at(q, i), b = at(k, j);
      double sum = 0;
      for (std::size_t e = 0; e < a.size(); ++e) sum += double{a[e]} * b[e];
      return sum;
    };
    for (std::int64_t shift : {1, 50, 180}) REQUIRE(close(score(12 + shift, 3 + shift), score(12, 3), 1e-5, 8));
  }
}

TEST_CASE("Odd heads, unreasonable bases and positions beyond the table are refused before anything is written") {
  REQUIRE_ERROR(RotaryTable(4, 7), ErrorKind::invalid_argument, "heads of 7 elements do not make pairs");
  REQUIRE_ERROR(RotaryTable(4, 0), ErrorKind::invalid_argument, "heads of 0 elements");
  REQUIRE_ERROR(RotaryTable(-1, 8), ErrorKind::invalid_argument, "-1 positions");
  REQUIRE_ERROR(RotaryTable(4, 8, 0), ErrorKind::invalid_argument, "the base is 0");
  REQUIRE_ERROR(RotaryTable(4, 8, std::numeric_limits<double>::infinity()), ErrorKind::invalid_argument, "base");
  RotaryTable const table(5, 4);
  std::vector<float> x(24, 1.0f);
  auto& context = context_of(exec::best_isa(), 1);
  kernel::Rotary args{.rows = 6, .heads = 1, .head_size = 4, .tokens = 6, .positions = 5};
  args.cosine = table.cosine();
  args.sine = table.sine();
  args.x = x.data();
  args.y = x.data();
  args.x_stride = args.y_stride = 4;
  REQUIRE_ERROR(kernel::cpu::rotary(context, args), ErrorKind::out_of_range,
                "row 5 is at position 5, but the table has 5");
  args.tokens = 3;
  args.first_position = -1;
  REQUIRE_ERROR(kernel::cpu::rotary(context, args), ErrorKind::out_of_range, "row 0 is at position -1");
  std::vector<std::int32_t> const positions{0, 1, 2, 9, 0, 0};
  args.row_positions = positions.data();
  REQUIRE_ERROR(kernel::cpu::rotary(context, args), ErrorKind::out_of_range, "row 3 is at position 9");
  args.row_positions = nullptr;
  args.tokens = 0;
  REQUIRE_ERROR(kernel::cpu::rotary(context, args), ErrorKind::invalid_argument, "sequences of 0 rows");
  args.head_size = 3;
  REQUIRE_ERROR(kernel::cpu::rotary(context, args), ErrorKind::invalid_argument, "heads of 3 elements");
  for (float value : x) REQUIRE(value == 1.0f);
}
