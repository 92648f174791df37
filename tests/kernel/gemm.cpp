// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/entries.hpp> <tutti/kernel/cpu/packed_right.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;

std::vector<exec::Isa> isas() {
  std::vector<exec::Isa> all;
  for (exec::Isa isa : exec::all_isas)
    if (exec::available(isa)) all.push_back(isa);
  return all;
}

double exact_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double exact_gelu_gradient(double x) {
  double const u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// A matrix with a gap between its rows (or columns) that holds NaN: reading it shows in the result.
struct Matrix {
  int64_t row = 1, column = 1;
  std::vector<float> data;
  Matrix(int64_t rows, int64_t columns, bool transposed, std::mt19937& random, int gap = 3) {
    int64_t const outer = transposed ? columns : rows, inner = transposed ? rows : columns;
    data.assign(static_cast<std::size_t>(outer * (inner + gap)), std::numeric_limits<float>::quiet_NaN());
    (transposed ? column : row) = inner + gap;
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) (*this)(i, j) = draw(random);
  }
  float& operator()(int64_t i, int64_t j) { return data[static_cast<std::size_t>(i * row + j * column)]; }
};

enum Extras { plain, accumulate, bias_gelu, residual_in_place, gradient, everything };

/// One product against the naive loop, for every instruction set; 1 and 3 threads must agree to the last bit.
void check(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, Extras extras) {
  std::mt19937 random(static_cast<unsigned>(m * 7919 + n * 104729 + k));
  Matrix a(m, k, a_transposed, random), b(k, n, b_transposed, random), c0(m, n, false, random),
      residual(m, n, false, random, 5);
  Matrix bias(1, n, false, random), pre(m, n, false, random);
  float const untouched = c0.data.empty() ? 0 : 12345.0f;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t g = 0; g < 3; ++g) c0(i, n + g) = untouched;
  float const alpha = extras == plain ? 1.0f : 0.75f,
              beta = extras == accumulate || extras == everything ? -0.5f : 0.0f;
  double const tolerance = test::tolerance<float>(k + 4);
  for (exec::Isa isa : isas()) {
    std::vector<float> first, first_saved;
    for (int threads : {1, 3}) {
      exec::ContextOptions options;
      options.threads = threads;
      options.isa = isa;
      exec::Context context(options);
      Matrix c = c0, saved = c0;
      kernel::Gemm g;
      g.m = m, g.n = n, g.k = k;
      g.a = a.data.data(), g.a_row = a.row, g.a_column = a.column;
      g.b = b.data.data(), g.b_row = b.row, g.b_column = b.column;
      g.c = c.data.data(), g.c_row = c.row;
      g.alpha = alpha, g.beta = beta;
      if (beta == 0.0f && extras != residual_in_place)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) c(i, j) = std::numeric_limits<float>::quiet_NaN();
      kernel::GemmEpilogue& e = g.epilogue;
      if (extras == bias_gelu || extras == everything)
        e.bias = bias.data.data(), e.gelu = true, e.saved = saved.data.data();
      if (extras == everything) e.residual = residual.data.data(), e.residual_stride = residual.row;
      if (extras == residual_in_place) e.residual = c.data.data(), e.residual_stride = c.row;
      if (extras == gradient) e.gelu_gradient = pre.data.data();
      kernel::cpu::gemm(context, g);
      if (threads == 1) {
        first = c.data, first_saved = saved.data;
      } else {
        INFO("threads change the result: " << exec::name(isa) << " m " << m << " n " << n << " k " << k);
        REQUIRE(test::same_bits(first, c.data));
        REQUIRE(test::same_bits(first_saved, saved.data));
        continue;
      }
      bool right = true;
      for (int64_t i = 0; i < m && right; ++i) {
        for (int64_t j = 0; j < n && right; ++j) {
          double sum = 0, scale = 0;
          for (int64_t p = 0; p < k; ++p) {
            sum += double(a(i, p)) * double(b(p, j));
            scale += std::abs(double(a(i, p)) * double(b(p, j)));
          }
          double value = double(alpha) * sum + (beta == 0.0f ? 0.0 : double(beta) * double(c0(i, j)));
          scale += std::abs(double(c0(i, j))) + 1;
          if (e.bias != nullptr) value += double(bias(0, j));
          if (e.gelu) {
            right = right && test::close(double(saved(i, j)), value, tolerance, scale);
            value = exact_gelu(value);
          }
          if (extras == gradient) value *= exact_gelu_gradient(double(pre(i, j)));
          if (extras == everything) value += double(residual(i, j));
          if (extras == residual_in_place) value += double(c0(i, j));
          right = right && test::close(double(c(i, j)), value, tolerance, scale);
          if (!right) {
            INFO(exec::name(isa) << " m " << m << " n " << n << " k " << k << " A" << (a_transposed ? "^T" : "") << " B"
                                 << (b_transposed ? "^T" : "") << " extras " << int(extras) << " at " << i << ", "
                                 << j);
            CHECK(double(c(i, j)) == Approx(value));
            REQUIRE(right);
          }
        }
        for (int64_t gap = 0; gap < 3; ++gap)
          right = right && c(i, n + gap) == untouched && saved(i, n + gap) == untouched;
        INFO("wrote beyond column " << n << " of row " << i);
        REQUIRE(right);
      }
    }
  }
}

}  // namespace

TEST_CASE("gemm equals the naive product in all four orientations, at and around tile edges") {
  for (int64_t m : {1, 2, 5, 8, 9, 12, 13, 25, 38})
    for (int64_t n : {1, 3, 15, 16, 17, 32, 33, 70})
      for (int64_t k : {1, 3, 16, 37})
        for (int form = 0; form < 4; ++form) check(m, n, k, (form & 1) != 0, (form & 2) != 0, plain);
}

TEST_CASE("gemm scales and accumulates, and applies every epilogue") {
  for (Extras extras : {accumulate, bias_gelu, residual_in_place, gradient, everything})
    for (int64_t m : {1, 7, 8, 30})
      for (int64_t n : {1, 31, 48, 65})
        for (int form : {0, 1, 2}) check(m, n, 50, form == 1, form == 2, extras);
}

TEST_CASE("gemm sums over more terms than one block of packed operands holds") {
  for (Extras extras : {plain, everything, residual_in_place})
    for (int form = 0; form < 4; ++form) check(26, 45, 1700, (form & 1) != 0, (form & 2) != 0, extras);
  check(5, 45, 1700, false, true, everything);
}

TEST_CASE("gemm of a shape that several threads share by rows and by columns") {
  for (int form = 0; form < 4; ++form) {
    check(300, 40, 64, (form & 1) != 0, (form & 2) != 0, everything);
    check(20, 500, 64, (form & 1) != 0, (form & 2) != 0, everything);
    check(130, 170, 64, (form & 1) != 0, (form & 2) != 0, accumulate);
  }
}

TEST_CASE("gemm with no rows or columns does nothing, with no terms scales c and applies the epilogue") {
  check(0, 5, 3, false, false, plain);
  check(5, 0, 3, false, false, plain);
  for (bool transposed : {false, true})
    for (int64_t m : {3, 20}) {
      check(m, 20, 0, false, transposed, plain);
      check(m, 20, 0, false, transposed, accumulate);
      check(m, 20, 0, false, transposed, everything);
    }
}

TEST_CASE("gemm on one thread with its own working memory equals the team's") {
  std::mt19937 random(5);
  Matrix a(40, 33, false, random), b(33, 50, true, random), c(40, 50, false, random), d = c;
  for (exec::Isa isa : isas()) {
    kernel::Gemm g;
    g.m = 40, g.n = 50, g.k = 33;
    g.a = a.data.data(), g.a_row = a.row, g.b = b.data.data(), g.b_row = b.row, g.b_column = b.column;
    g.c = c.data.data(), g.c_row = c.row;
    exec::ContextOptions options;
    options.threads = 2, options.isa = isa;
    exec::Context context(options);
    kernel::cpu::gemm(context, g);
    std::vector<float> scratch(static_cast<std::size_t>(kernel::cpu::gemm_scratch(g, g.m, g.n)));
    g.c = d.data.data();
    kernel::cpu::gemm_on_thread(isa, g, scratch.data());
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t j = 0; j < 50; ++j) REQUIRE(c(i, j) == d(i, j));
  }
}

namespace {

/// Rounded to bfloat16, and stored so or as float32; the gaps stay NaN.
struct Rounded {
  std::vector<bfloat16> narrow;
  std::vector<float> exact;
  explicit Rounded(Matrix const& x) {
    for (float const value : x.data) {
      narrow.push_back(bfloat16(value));
      exact.push_back(float(narrow.back()));
    }
  }
};

/// A product of bfloat16 terms: operands that are stored so, or as float32 that still has to be rounded, or one of
/// each.
void check_bfloat16(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, bool narrow_a, bool narrow_b,
                    bool rounds) {
  std::mt19937 random(static_cast<unsigned>(m * 7919 + n * 104729 + k));
  // An odd gap: rows of bfloat16 begin between words.
  Matrix a(m, k, a_transposed, random), b(k, n, b_transposed, random), c0(m, n, false, random),
      bias(1, n, false, random);
  Rounded const ra(a), rb(b);
  float const beta = k % 2 == 0 ? 0.5f : 0.0f;
  double const tolerance = test::tolerance<float>(k + 4);
  for (exec::Isa isa : isas()) {
    std::vector<float> first;
    for (int threads : {1, 3}) {
      exec::Context context({.threads = threads, .isa = isa});
      Matrix c = c0;
      kernel::Gemm g;
      g.m = m, g.n = n, g.k = k;
      g.a = narrow_a ? static_cast<void const*>(ra.narrow.data()) : a.data.data(), g.a_row = a.row,
      g.a_column = a.column;
      g.b = narrow_b ? static_cast<void const*>(rb.narrow.data()) : b.data.data(), g.b_row = b.row,
      g.b_column = b.column;
      g.a_dtype = narrow_a ? DType::bfloat16 : DType::float32, g.b_dtype = narrow_b ? DType::bfloat16 : DType::float32;
      g.product = rounds ? kernel::Product::bfloat16 : kernel::Product::float32;
      g.c = c.data.data(), g.c_row = c.row, g.beta = beta, g.epilogue.bias = bias.data.data();
      kernel::cpu::gemm(context, g);
      if (threads == 1) first = c.data;
      INFO(exec::name(isa) << " m " << m << " n " << n << " k " << k << " A" << (a_transposed ? "^T" : "") << " B"
                           << (b_transposed ? "^T" : "") << (narrow_a ? " narrow A" : "")
                           << (narrow_b ? " narrow B" : "") << (rounds ? " rounds" : "") << " on " << threads
                           << " threads");
      REQUIRE(test::same_bits(first, c.data));
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = double(beta) * double(c0(i, j)) + double(bias(0, j)), scale = std::abs(sum) + 1;
          for (int64_t p = 0; p < k; ++p) {
            auto const at_a = static_cast<std::size_t>(i * a.row + p * a.column);
            auto const at_b = static_cast<std::size_t>(p * b.row + j * b.column);
            double const term = double(rounds || narrow_a ? ra.exact[at_a] : a.data[at_a]) *
                                double(rounds || narrow_b ? rb.exact[at_b] : b.data[at_b]);
            sum += term, scale += std::abs(term);
          }
          if (!test::close(double(c(i, j)), sum, tolerance, scale)) {
            INFO("at " << i << ", " << j);
            REQUIRE(double(c(i, j)) == Approx(sum));
          }
        }
    }
  }
}

}  // namespace

TEST_CASE("gemm of bfloat16 operands, and of float32 rounded to it, at and around tile edges in all orientations") {
  for (int64_t m : {1, 8, 9, 12, 25})
    for (int64_t n : {1, 16, 17, 32, 70})
      for (int64_t k : {1, 2, 7, 16, 37})
        for (int form = 0; form < 4; ++form)
          for (int types = 0; types < 4; ++types)
            check_bfloat16(m, n, k, (form & 1) != 0, (form & 2) != 0, (types & 1) != 0, (types & 2) != 0, true);
}

TEST_CASE("gemm of bfloat16 sums over several blocks, and is shared by threads") {
  for (int form = 0; form < 4; ++form)
    for (bool narrow : {false, true}) {
      check_bfloat16(26, 45, 3301, (form & 1) != 0, (form & 2) != 0, narrow, !narrow, true);
      check_bfloat16(130, 170, 64, (form & 1) != 0, (form & 2) != 0, narrow, narrow, true);
    }
}

TEST_CASE("gemm widens bfloat16 operands without rounding the other") {
  for (int64_t m : {3, 30})
    for (int form = 0; form < 4; ++form)
      for (int types = 1; types < 4; ++types)
        check_bfloat16(m, 45, 50, (form & 1) != 0, (form & 2) != 0, (types & 1) != 0, (types & 2) != 0, false);
}

TEST_CASE("a right operand that is packed once gives the same product, to the last bit where the other is packed too") {
  for (exec::Isa isa : isas())
    for (kernel::Product const product : {kernel::Product::float32, kernel::Product::bfloat16})
      for (int64_t m : {1, 3, 8, 40, 130})
        for (int64_t n : {1, 16, 33, 200})
          for (int64_t k : {0, 1, 50, 1703})
            for (bool transposed : {false, true}) {
              std::mt19937 random(static_cast<unsigned>(m + n + k));
              Matrix a(m, k, false, random), b(k, n, transposed, random), c(m, n, false, random),
                  bias(1, n, false, random);
              Matrix d = c;
              exec::Context context({.threads = 2, .isa = isa});
              kernel::Gemm g;
              g.m = m, g.n = n, g.k = k, g.product = product;
              g.a = a.data.data(), g.a_row = a.row, g.a_column = a.column;
              g.b = b.data.data(), g.b_row = b.row, g.b_column = b.column;
              g.c = c.data.data(), g.c_row = c.row, g.beta = 0.5f, g.epilogue.bias = bias.data.data();
              kernel::cpu::gemm(context, g);
              kernel::cpu::PackedRight made(context, g);
              kernel::cpu::PackedRight const packed = std::move(made);
              g.b = nullptr;
              g.b_panels = &packed.panels();
              g.c = d.data.data();
              kernel::cpu::gemm(context, g);
              INFO(exec::name(isa) << " m " << m << " n " << n << " k " << k << " product " << int(product));
              bool equal = true;
              for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < n; ++j) {
                  if (m > 24) equal = equal && c(i, j) == d(i, j);
                  else
                    equal = equal &&
                            test::close(double(c(i, j)), double(d(i, j)), test::tolerance<float>(k + 4), double(k) + 4);
                }
              REQUIRE(equal);
            }
}

TEST_CASE("a packed operand is refused by products that it was not packed for") {
  std::vector<float> a(50), b(50), c(25);
  exec::Context context({.threads = 1, .isa = exec::best_isa()}), other({.threads = 1, .isa = exec::Isa::scalar});
  kernel::Gemm g;
  g.m = 5, g.n = 5, g.k = 10, g.a = a.data(), g.a_row = 10, g.b = b.data(), g.b_row = 5, g.c = c.data(), g.c_row = 5;
  kernel::cpu::PackedRight const packed(context, g);
  CHECK(packed.bytes() >= 200);
  g.b_panels = &packed.panels();
  CHECK_NOTHROW(kernel::cpu::gemm(context, g));
  kernel::Gemm wrong = g;
  wrong.n = 4;
  REQUIRE_ERROR(kernel::cpu::gemm(context, wrong), ErrorKind::invalid_argument, "b is packed as 10 x 5");
  wrong = g, wrong.product = kernel::Product::bfloat16;
  REQUIRE_ERROR(kernel::cpu::gemm(context, wrong), ErrorKind::invalid_argument, "rounded otherwise");
  if (exec::best_isa() != exec::Isa::scalar)
    REQUIRE_ERROR(kernel::cpu::gemm(other, g), ErrorKind::invalid_argument, "and the product needs 10 x 5 on scalar");
}

TEST_CASE("column_sum adds all rows, in an order that threads do not change") {
  for (exec::Isa isa : isas())
    for (int64_t m : {0, 1, 2, 127, 129, 1000})
      for (int64_t n : {0, 1, 15, 16, 65, 200})
        for (float beta : {0.0f, 0.5f}) {
          std::mt19937 random(static_cast<unsigned>(m + n));
          std::uniform_real_distribution<float> draw(-1, 1);
          std::vector<float> x(static_cast<std::size_t>(m * n)), start(static_cast<std::size_t>(n + 1)), first;
          for (float& value : x) value = draw(random);
          for (float& value : start) value = draw(random);
          for (int threads : {1, 3}) {
            exec::ContextOptions options;
            options.threads = threads, options.isa = isa;
            exec::Context context(options);
            std::vector<float> out = start;
            if (beta == 0.0f)
              for (int64_t j = 0; j < n; ++j)
                out[static_cast<std::size_t>(j)] = std::numeric_limits<float>::quiet_NaN();
            kernel::cpu::column_sum(context, {m, n, x.data(), out.data(), beta});
            if (threads == 1) first = out;
            REQUIRE(test::same_bits(first, out));
            for (int64_t j = 0; j < n; ++j) {
              double sum = double(beta) * double(start[static_cast<std::size_t>(j)]), scale = std::abs(sum);
              for (int64_t i = 0; i < m; ++i) {
                double const value = double(x[static_cast<std::size_t>(i * n + j)]);
                sum += value;
                scale += std::abs(value);
              }
              REQUIRE(test::close(double(out[static_cast<std::size_t>(j)]), sum, test::tolerance<float>(m), scale));
            }
            REQUIRE(out.back() == start.back());
          }
        }
}
