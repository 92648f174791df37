// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace tutti;
using kernel::Product;
using std::int64_t;
using test::length;

/// A matrix of doubles that float32 cannot hold, with NaN in the gaps.
struct Doubles {
  int64_t row = 1, column = 1;
  std::vector<double> data;
  Doubles(int64_t rows, int64_t columns, bool transposed, test::Random& random) {
    int64_t const outer = transposed ? columns : rows, inner = transposed ? rows : columns, gap = 3;
    data.assign(length(outer * (inner + gap)), std::numeric_limits<double>::quiet_NaN());
    (transposed ? column : row) = inner + gap;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        (*this)(i, j) = double(random.uniform()) + 0x1p-30 * double(random.uniform());
  }
  double& operator()(int64_t i, int64_t j) { return data[length(i * row + j * column)]; }
};

/// On every instruction set, with 1, 2 and 3 threads, of operands packed for the call or before.
void check(int64_t m, int64_t n, int64_t k, int form, bool packed) {
  test::Random random(static_cast<std::uint64_t>(m * 7919 + n * 104729 + k));
  Doubles a(m, k, (form & 1) != 0, random), b(k, n, (form & 2) != 0, random), start(m, n, false, random);
  double const alpha = 0.75, beta = k % 2 == 0 ? -0.5 : 0.0;
  INFO("m " << m << " n " << n << " k " << k << " form " << form << (packed ? " prepacked" : ""));
  test::on_every_context(
      [&](exec::Context& context) {
        std::vector<double> c = start.data;
        if (beta == 0)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) c[length(i * start.row + j)] = std::nan("");
        kernel::Gemm g;
        g.m = m, g.n = n, g.k = k, g.product = Product::float64, g.alpha = float(alpha), g.beta = float(beta);
        g.a = a.data.data(), g.a_row = a.row, g.a_column = a.column;
        g.b = b.data.data(), g.b_row = b.row, g.b_column = b.column;
        g.c = c.data(), g.c_row = start.row;
        g.a_dtype = g.b_dtype = g.c_dtype = DType::float64;
        kernel::cpu::PackedRight panels;
        if (packed) panels = kernel::cpu::PackedRight(context, g), g.b = nullptr, g.b_panels = &panels.panels();
        kernel::cpu::gemm<Product::float64>(context, g);
        return c;
      },
      [&](std::vector<double> const& c) {
        bool right = true;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            long double sum = 0, scale = 1;
            for (int64_t p = 0; p < k; ++p) {
              long double const term = static_cast<long double>(a(i, p)) * static_cast<long double>(b(p, j));
              sum += term, scale += std::abs(term);
            }
            auto const value = static_cast<double>(alpha * sum + (beta == 0 ? 0 : beta * start(i, j)));
            right = right && std::abs(c[length(i * start.row + j)] - value) <=
                                 std::numeric_limits<double>::epsilon() * double(k + 4) * double(scale);
          }
          for (int64_t j = n; j < start.row; ++j) right = right && std::isnan(c[length(i * start.row + j)]);
        }
        REQUIRE(right);
      });
}

}  // namespace

TEST_CASE("float64 products equal sums in long double in all orientations, at and around tile edges, prepacked too") {
  for (int64_t m : {1, 3, 6, 7, 13, 26})
    for (int64_t n : {1, 4, 8, 9, 17, 33, 70})
      for (int64_t k : {0, 1, 2, 7, 16, 37})
        for (int form = 0; form < 4; ++form)
          for (bool packed : {false, true}) check(m, n, k, form, packed);
}

TEST_CASE("float64 products of random shapes, and of more terms than one block holds") {
  test::Random random(78);
  for (int round = 0; round < 20; ++round)
    check(1 + random.below(150), 1 + random.below(200), random.below(100), static_cast<int>(random.below(4)), false);
  for (int form = 0; form < 4; ++form) check(26, 45, 1703, form, form == 2);
}

TEST_CASE("float64 products take nothing but float64, and no epilogue") {
  exec::Context& context = test::context_of(exec::best_isa(), 1);
  std::vector<double> a(25), b(25), c(25);
  kernel::Gemm g;
  g.m = g.n = g.k = 5, g.a_row = g.b_row = g.c_row = 5, g.a = a.data(), g.b = b.data(), g.c = c.data();
  g.product = Product::float64, g.a_dtype = g.b_dtype = g.c_dtype = DType::float64;
  auto const run = [&](kernel::Gemm const& product) { kernel::cpu::gemm<Product::float64>(context, product); };
  CHECK_NOTHROW(run(g));
  kernel::Gemm wrong = g;
  wrong.c_dtype = DType::float32;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "A as float64, B as float64 and c as float32");
  wrong = g, wrong.b_dtype = DType::float32;
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "B as float32");
  std::vector<float> const floats(5);
  wrong = g, wrong.epilogue.bias = floats.data();
  REQUIRE_ERROR(run(wrong), ErrorKind::invalid_argument, "with such scales and epilogue");
  REQUIRE_ERROR(kernel::cpu::gemm(context, g), ErrorKind::invalid_argument, "gemm<Product::float64>");
}
