// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using namespace tutti;
using kernel::Product;
using std::int64_t;
using test::length;

/// A matrix of bytes, with a gap after each row (or column) that must not count: it holds the largest number.
template <class T>
struct Bytes {
  int64_t row = 1, column = 1;
  std::vector<T> data;
  Bytes(int64_t rows, int64_t columns, bool transposed, test::Random& random, int gap = 3) {
    int64_t const outer = transposed ? columns : rows, inner = transposed ? rows : columns;
    data.assign(length(outer * (inner + gap)), std::numeric_limits<T>::max());
    (transposed ? column : row) = inner + gap;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        // One in eight is an end of the range.
        std::uint64_t const bits = random.bits();
        T const end = bits & 1 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
        (*this)(i, j) = (bits >> 8) % 8 == 0 ? end : static_cast<T>(bits);
      }
  }
  T& operator()(int64_t i, int64_t j) { return data[length(i * row + j * column)]; }
};

template <class T>
std::vector<std::int32_t> exact(Bytes<T>& a, Bytes<std::int8_t>& b, int64_t m, int64_t n, int64_t k) {
  std::vector<std::int32_t> sums(length(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) sums[length(i * n + j)] += std::int32_t{a(i, p)} * std::int32_t{b(p, j)};
  return sums;
}

template <class T>
kernel::Gemm product_of(Bytes<T>& a, Bytes<std::int8_t>& b, int64_t m, int64_t n, int64_t k) {
  kernel::Gemm g;
  g.m = m, g.n = n, g.k = k, g.product = Product::int8;
  g.a = a.data.data(), g.a_row = a.row, g.a_column = a.column;
  g.b = b.data.data(), g.b_row = b.row, g.b_column = b.column;
  g.a_dtype = std::is_signed_v<T> ? DType::int8 : DType::uint8, g.b_dtype = DType::int8;
  return g;
}

/// Sums in int32 on every instruction set, with 1, 2 and 3 threads, of an operand that is packed for the call and of
/// one that is packed before.
template <class T>
void check(int64_t m, int64_t n, int64_t k, int form) {
  test::Random random(static_cast<std::uint64_t>(m * 7919 + n * 104729 + k));
  Bytes<T> a(m, k, (form & 1) != 0, random);
  Bytes<std::int8_t> b(k, n, (form & 2) != 0, random);
  std::vector<std::int32_t> const sums = exact(a, b, m, n, k);
  INFO("m " << m << " n " << n << " k " << k << " form " << form << (std::is_signed_v<T> ? " int8" : " uint8"));
  for (bool const packed : {false, true})
    test::on_every_context(
        [&](exec::Context& context) {
          std::vector<std::int32_t> c(length(m * (n + 2)), 7);
          kernel::Gemm g = product_of(a, b, m, n, k);
          g.c = c.data(), g.c_row = n + 2, g.c_dtype = DType::int32, g.beta = k % 2 == 0 ? 1.0f : 0.0f;
          kernel::cpu::PackedRight panels;
          if (packed) panels = kernel::cpu::PackedRight(context, g), g.b = nullptr, g.b_panels = &panels.panels();
          kernel::cpu::gemm<Product::int8>(context, g);
          return c;
        },
        [&](std::vector<std::int32_t> const& c) {
          bool right = true;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n + 2; ++j)
              right = right && c[length(i * (n + 2) + j)] ==
                                   (j >= n ? 7 : sums[length(i * n + j)] + (k % 2 == 0 ? 7 : 0));
          INFO((packed ? "prepacked" : "packed for the call"));
          REQUIRE(right);
        });
}

}  // namespace

TEST_CASE("int8 products are exact in all orientations, at and around tile edges, signed and unsigned, prepacked") {
  for (int64_t m : {1, 3, 12, 13, 26})
    for (int64_t n : {1, 8, 15, 17, 33, 70})
      for (int64_t k : {0, 1, 2, 3, 4, 5, 16, 21, 50})
        for (int form = 0; form < 4; ++form) {
          check<std::int8_t>(m, n, k, form);
          check<std::uint8_t>(m, n, k, form);
        }
}

TEST_CASE("int8 products of random shapes are exact") {
  test::Random random(77);
  for (int round = 0; round < 30; ++round) {
    int64_t const m = 1 + random.below(150), n = 1 + random.below(200), k = random.below(300);
    check<std::int8_t>(m, n, k, static_cast<int>(random.below(4)));
    check<std::uint8_t>(m, n, k, static_cast<int>(random.below(4)));
  }
}

TEST_CASE("int8 products sum 7000 terms exactly, and over long K the ends of the range do not saturate") {
  check<std::int8_t>(26, 45, 7000, 2);
  check<std::uint8_t>(26, 45, 7001, 1);
  struct Extreme {
    bool is_signed;
    int left;
    std::int8_t right;
    int64_t k;  // the most whose sum is in int32
  };
  for (Extreme const e : {Extreme{true, -128, -128, 131071}, {true, -128, 127, 132103}, {true, 127, -128, 132103},
                          {false, 255, -128, 65793}, {false, 255, 127, 66311}, {true, -128, -128, 3}})
    for (bool transposed : {false, true}) {
      int64_t const m = 5, n = 18, k = e.k;
      std::vector<std::uint8_t> const a(length(m * k), static_cast<std::uint8_t>(e.left));
      std::vector<std::int8_t> const b(length(k * n), e.right);
      auto const sum = static_cast<std::int32_t>(k * e.left * e.right);
      INFO(e.left << " x " << int(e.right) << ", " << k << " times");
      test::on_every_context(
          [&](exec::Context& context) {
            std::vector<std::int32_t> c(length(m * n));
            kernel::Gemm g;
            g.m = m, g.n = n, g.k = k, g.product = Product::int8, g.a = a.data(), g.b = b.data(), g.c = c.data();
            g.a_dtype = e.is_signed ? DType::int8 : DType::uint8, g.b_dtype = DType::int8, g.c_dtype = DType::int32;
            g.a_row = k, g.b_row = transposed ? 1 : n, g.b_column = transposed ? k : 1, g.c_row = n;
            kernel::cpu::gemm<Product::int8>(context, g);
            return c;
          },
          [&](std::vector<std::int32_t> const& c) {
            for (std::int32_t const value : c) REQUIRE(value == sum);
          });
    }
}

TEST_CASE("scales of rows and columns turn sums of bytes into floats, before the epilogue") {
  for (int64_t m : {1, 9, 30})
    for (int64_t n : {1, 31, 65})
      for (int const form : {0, 1, 2})
        for (bool const rows : {false, true})
          for (bool const columns : {false, true}) {
            int64_t const k = 133;
            test::Random random(static_cast<std::uint64_t>(m * 1000 + n));
            Bytes<std::int8_t> a(m, k, form == 1, random), b(k, n, form == 2, random);
            std::vector<std::int32_t> const sums = exact(a, b, m, n, k);
            std::vector<float> const row_scales = random.floats(m, 1e-2f), column_scales = random.floats(n, 1e-2f);
            std::vector<float> const bias = random.floats(n), residual = random.floats(m * n),
                                     start = random.floats(m * n);
            double const alpha = 0.5, beta = m == 9 ? 0.25 : 0.0;
            INFO("m " << m << " n " << n << " form " << form << " row scales " << rows << " column scales " << columns);
            test::on_every_context(
                [&](exec::Context& context) {
                  std::vector<float> c = start;
                  kernel::Gemm g = product_of(a, b, m, n, k);
                  g.c = c.data(), g.c_row = n, g.alpha = float(alpha), g.beta = float(beta);
                  if (rows) g.epilogue.row_scales = row_scales.data();
                  if (columns) g.epilogue.column_scales = column_scales.data();
                  g.epilogue.bias = bias.data(), g.epilogue.residual = residual.data(), g.epilogue.residual_stride = n;
                  kernel::cpu::gemm<Product::int8>(context, g);
                  return c;
                },
                [&](std::vector<float> const& c) {
                  for (int64_t i = 0; i < m; ++i)
                    for (int64_t j = 0; j < n; ++j) {
                      std::size_t const at = length(i * n + j);
                      double const row_scale = rows ? double(row_scales[length(i)]) : 1.0,
                                   column_scale = columns ? double(column_scales[length(j)]) : 1.0;
                      double const scaled = alpha * sums[at] * row_scale * column_scale;
                      double const value =
                          scaled + beta * double(start[at]) + double(bias[length(j)]) + double(residual[at]);
                      if (!test::close(double(c[at]), value, 1e-6, std::abs(scaled) + 3)) {
                        INFO("at " << i << ", " << j);
                        REQUIRE(double(c[at]) == Approx(value));
                      }
                    }
                });
          }
}

TEST_CASE("an int8 product without scales is its sum, rounded to float32 once") {
  test::Random random(3);
  Bytes<std::uint8_t> a(14, 4000, false, random);
  Bytes<std::int8_t> b(4000, 40, true, random);
  std::vector<std::int32_t> const sums = exact(a, b, 14, 40, 4000);
  test::on_every_context(
      [&](exec::Context& context) {
        std::vector<float> c(14 * 40);
        kernel::Gemm g = product_of(a, b, 14, 40, 4000);
        g.c = c.data(), g.c_row = 40;
        kernel::cpu::gemm<Product::int8>(context, g);
        return c;
      },
      [&](std::vector<float> const& c) {
        for (std::size_t i = 0; i < c.size(); ++i) REQUIRE(c[i] == static_cast<float>(sums[i]));
      });
}

TEST_CASE("int8 products refuse types, scales and panels that do not go together") {
  exec::Context& context = test::context_of(exec::best_isa(), 1);
  test::Random random(1);
  Bytes<std::int8_t> a(5, 10, false, random, 0), b(10, 5, false, random, 0);
  std::vector<float> c(25), scales(5);
  kernel::Gemm g = product_of(a, b, 5, 5, 10);
  g.c = c.data(), g.c_row = 5;
  auto const run = [&](kernel::Gemm const& product) { kernel::cpu::gemm<Product::int8>(context, product); };
  CHECK_NOTHROW(run(g));
  kernel::Gemm wrong = g;
  wrong.b_dtype = DType::uint8;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "does not take A as int8, B as uint8 and c as float32");
  REQUIRE_ERROR(kernel::cpu::PackedRight(context, wrong), ErrorKind::invalid_argument, "does not take B as uint8");
  wrong = g, wrong.a_dtype = DType::float32;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "A as float32");
  wrong = g, wrong.c_dtype = DType::int32, wrong.epilogue.row_scales = scales.data();
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "with such scales and epilogue");
  wrong = g, wrong.c_dtype = DType::int32, wrong.alpha = 0.5f;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "c as int32");
  wrong = g, wrong.product = Product::float32;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "another one");
  REQUIRE_ERROR(kernel::cpu::gemm(context, g), ErrorKind::invalid_argument, "gemm<Product::int8>");

  kernel::cpu::PackedRight const packed(context, g);
  wrong = g, wrong.b_panels = &packed.panels(), wrong.k = 9;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "b is packed as 10 x 5");
  std::vector<float> floats(50);
  kernel::Gemm other;
  other.m = 5, other.n = 5, other.k = 10, other.a = floats.data(), other.a_row = 10;
  other.c = c.data(), other.c_row = 5;
  other.epilogue.row_scales = scales.data();
  REQUIRE_ERROR(kernel::cpu::gemm(context, other), ErrorKind::invalid_argument, "with such scales");
  other.epilogue = {}, other.b_panels = &packed.panels();
  REQUIRE_ERROR(kernel::cpu::gemm(context, other), ErrorKind::invalid_argument, "rounded otherwise");
}
