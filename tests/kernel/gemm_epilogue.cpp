// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/gemm.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using namespace tutti;
using kernel::Product;
using std::int64_t;
using test::length;

/// The operands of one product in every type, and what epilogues read.
struct Operands {
  int64_t m, n, k;
  std::vector<float> a, b, bias, pre, start, row_scales, column_scales;
  std::vector<std::int8_t> bytes_a, bytes_b;
  Operands(int64_t rows, int64_t columns, int64_t terms) : m(rows), n(columns), k(terms) {
    test::Random random(static_cast<std::uint64_t>(m * 7919 + n * 104729 + k));
    a = random.floats(m * k), b = random.floats(k * n), bias = random.floats(n), pre = rounded(random.floats(m * n, 3));
    start = rounded(random.floats(m * n));
    row_scales = random.floats(m, 1e-2f), column_scales = random.floats(n, 1e-2f);
    for (std::size_t i = 0; i < a.size(); ++i) bytes_a.push_back(static_cast<std::int8_t>(random.bits()));
    for (std::size_t i = 0; i < b.size(); ++i) bytes_b.push_back(static_cast<std::int8_t>(random.bits()));
  }
  static std::vector<float> rounded(std::vector<float> x) {
    for (float& value : x) value = float(bfloat16(value));
    return x;
  }
  /// b is (N, K): its columns are contiguous.
  kernel::Gemm product(Product kind) const {
    kernel::Gemm g;
    g.m = m, g.n = n, g.k = k, g.product = kind, g.a = a.data(), g.b = b.data();
    g.a_row = k, g.b_row = 1, g.b_column = k, g.c_row = n, g.alpha = 0.5f;
    if (kind != Product::int8) return g;
    g.a = bytes_a.data(), g.b = bytes_b.data(), g.a_dtype = g.b_dtype = DType::int8;
    g.epilogue.row_scales = row_scales.data(), g.epilogue.column_scales = column_scales.data();
    return g;
  }
};

void multiply(exec::Context& context, kernel::Gemm const& g) {
  if (g.product == Product::int8) kernel::cpu::gemm<Product::int8>(context, g);
  else kernel::cpu::gemm(context, g);
}

template <class T>
std::vector<T> converted(std::vector<float> const& x) {
  std::vector<T> result;
  for (float const value : x) result.push_back(T(value));
  return result;
}

/// c, the saved value before GELU, and row sums, of one product whose results have the type T.
template <class T>
struct Results {
  std::vector<T> c, saved;
  std::vector<float> row_sums;
};
enum Case { nothing, bias_gelu, gradient, residual_in_place, accumulate };
template <class T>
Results<T> run(exec::Context& context, Operands const& x, Product kind, Case which, bool sums) {
  Results<T> result{converted<T>(x.start), std::vector<T>(x.start.size()), std::vector<float>(length(x.m), -1.0f)};
  std::vector<T> const pre = converted<T>(x.pre);
  kernel::Gemm g = x.product(kind);
  g.c = result.c.data(), g.c_dtype = std::is_same_v<T, float> ? DType::float32 : DType::bfloat16;
  if (which == bias_gelu)
    g.epilogue.bias = x.bias.data(), g.epilogue.gelu = true, g.epilogue.saved = result.saved.data();
  if (which == gradient) g.epilogue.gelu_gradient = pre.data();
  if (which == residual_in_place) g.epilogue.residual = result.c.data(), g.epilogue.residual_stride = x.n;
  if (which == accumulate) g.beta = 0.75f;
  if (sums) g.epilogue.row_sums = result.row_sums.data();
  multiply(context, g);
  return result;
}

}  // namespace

TEST_CASE("c in bfloat16, and what is saved before GELU, are the float32 results rounded to nearest even") {
  for (Product const kind : {Product::float32, Product::bfloat16, Product::int8})
    for (Case const which : {nothing, bias_gelu, gradient, residual_in_place, accumulate})
      for (int64_t m : {1, 8, 13, 40})
        for (int64_t n : {1, 16, 33, 70}) {
          Operands const x(m, n, 51);
          INFO("product " << int(kind) << " case " << int(which) << " m " << m << " n " << n);
          test::on_every_context(
              [&](exec::Context& context) {
                Results<float> const wide = run<float>(context, x, kind, which, false);
                Results<bfloat16> const narrow = run<bfloat16>(context, x, kind, which, false);
                REQUIRE(test::same_bits(converted<bfloat16>(wide.c), narrow.c));
                REQUIRE(test::same_bits(converted<bfloat16>(wide.saved), narrow.saved));
                return narrow.c;
              },
              [](std::vector<bfloat16> const&) {});
        }
}

TEST_CASE("c in bfloat16 is rounded once, however many terms there are") {
  for (Product const kind : {Product::float32, Product::bfloat16}) {
    Operands const x(20, 40, 4000);
    std::vector<double> oracle(x.start.size());
    auto const to_doubles = [&](std::vector<float> const& from) {
      std::vector<float> const terms = kind == Product::bfloat16 ? Operands::rounded(from) : from;
      return std::vector<double>(terms.begin(), terms.end());
    };
    std::vector<double> const a = to_doubles(x.a), b = to_doubles(x.b);
    kernel::Gemm exact = x.product(Product::float64);
    exact.a = a.data(), exact.b = b.data(), exact.c = oracle.data();
    exact.a_dtype = exact.b_dtype = exact.c_dtype = DType::float64;
    kernel::cpu::gemm<Product::float64>(test::context_of(exec::best_isa(), 2), exact);
    test::on_every_context([&](exec::Context& context) { return run<bfloat16>(context, x, kind, nothing, false).c; },
                           [&](std::vector<bfloat16> const& c) {
                             for (std::size_t i = 0; i < c.size(); ++i)
                               REQUIRE(test::close(double(float(c[i])), oracle[i], 0x1p-8, std::abs(oracle[i]) + 0.1));
                           });
  }
}

TEST_CASE("row sums add the results of each row, before their rounding, in an order that threads do not change") {
  for (Product const kind : {Product::float32, Product::bfloat16, Product::int8})
    for (Case const which : {nothing, bias_gelu, residual_in_place})
      for (int64_t m : {1, 8, 13, 200})
        for (int64_t n : {1, 15, 32, 33, 500})
          for (int64_t k : {0, 40}) {
            Operands const x(m, n, k);
            INFO("product " << int(kind) << " case " << int(which) << " m " << m << " n " << n << " k " << k);
            test::on_every_context(
                [&](exec::Context& context) {
                  Results<float> const wide = run<float>(context, x, kind, which, true);
                  Results<float> const without = run<float>(context, x, kind, which, false);
                  REQUIRE(test::same_bits(wide.c, without.c));
                  for (int64_t i = 0; i < m; ++i) {
                    double sum = 0, scale = 1;
                    for (int64_t j = 0; j < n; ++j) {
                      sum += double(wide.c[length(i * n + j)]);
                      scale += std::abs(double(wide.c[length(i * n + j)]));
                    }
                    REQUIRE(test::close(double(wide.row_sums[length(i)]), sum, test::tolerance<float>(n), scale));
                  }
                  REQUIRE(test::same_bits(wide.row_sums, run<bfloat16>(context, x, kind, which, true).row_sums));
                  return wide.row_sums;
                },
                [](std::vector<float> const&) {});
          }
}

TEST_CASE("float32 and bfloat16 products refuse results of other types") {
  Operands const x(5, 6, 7);
  std::vector<float> c(30);
  kernel::Gemm g = x.product(Product::float32);
  g.c = c.data(), g.c_dtype = DType::int32;
  exec::Context& context = test::context_of(exec::best_isa(), 1);
  REQUIRE_ERROR(kernel::cpu::gemm(context, g), ErrorKind::invalid_argument, "c as int32");
  g.product = Product::bfloat16, g.c_dtype = DType::float32, g.a_dtype = DType::int8;
  REQUIRE_ERROR(kernel::cpu::gemm(context, g), ErrorKind::invalid_argument, "A as int8");
}
