// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A matrix product of `./tutti bench kernels`: its operands in every type, its contenders, and what is right.

#include <tutti/kernel/gemm.hpp>

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tutti::bench {

inline std::vector<float> random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = draw(engine);
  return result;
}

enum class Form { nt, nn, tn };  // y = x w^T; dx = dy w; dw = dy^T x

/// Types of which a product has operands. One as large as the head has no room for float64, nor a use for int8.
enum class Types { all, float32_and_bfloat16 };

struct MatrixProduct {
  std::int64_t m, n, k;
  Form form;
  std::vector<float> a, b, c;
  std::vector<bfloat16> narrow_a, narrow_b;
  std::vector<double> wide_a, wide_b, wide_c;
  std::vector<std::int8_t> bytes_a, bytes_b;
  std::vector<float> scales_a, scales_b;  // of rows of the left operand and columns of the right one

  MatrixProduct(std::int64_t rows, std::int64_t columns, std::int64_t terms, Form which, Types types = Types::all)
      : m(rows),
        n(columns),
        k(terms),
        form(which),
        a(random_floats(rows * terms, 1)),
        b(random_floats(terms * columns, 2)),
        c(static_cast<std::size_t>(rows * columns), NAN) {
    for (float& value : a) narrow_a.push_back(bfloat16(value)), value = narrow_a.back();
    for (float& value : b) narrow_b.push_back(bfloat16(value)), value = narrow_b.back();
    if (types != Types::all) return;
    wide_a.assign(a.begin(), a.end()), wide_b.assign(b.begin(), b.end()), wide_c.assign(c.size(), NAN);
    // The values of a whole operand have one range: any scales do.
    auto const to_bytes = [](std::vector<float> const& from) {
      std::vector<std::int8_t> bytes;
      for (float const value : from) bytes.push_back(static_cast<std::int8_t>(std::lrint(value * 127)));
      return bytes;
    };
    bytes_a = to_bytes(a), bytes_b = to_bytes(b);
    scales_a.assign(static_cast<std::size_t>(m), 1.0f / 127), scales_b.assign(static_cast<std::size_t>(n), 1.0f / 127);
  }

  std::string name() const {
    char const* const forms[] = {"nt", "nn", "tn"};
    return std::string("gemm_") + forms[static_cast<int>(form)] + "/" + std::to_string(m) + "x" + std::to_string(n) +
           "x" + std::to_string(k);
  }
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }

  kernel::Gemm float32_product() {
    kernel::Gemm g;
    g.m = m, g.n = n, g.k = k, g.a = a.data(), g.b = b.data(), g.c = c.data(), g.c_row = n;
    g.a_row = form == Form::tn ? 1 : k;
    g.a_column = form == Form::tn ? m : 1;
    g.b_row = form == Form::nt ? 1 : n;
    g.b_column = form == Form::nt ? k : 1;
    return g;
  }
  /// The same of bfloat16 operands, stored so or rounded from float32 on the way.
  kernel::Gemm bfloat16_product(bool stored) {
    kernel::Gemm g = float32_product();
    g.product = kernel::Product::bfloat16;
    if (!stored) return g;
    g.a = narrow_a.data(), g.b = narrow_b.data();
    g.a_dtype = g.b_dtype = DType::bfloat16;
    return g;
  }
  kernel::Gemm float64_product() {
    kernel::Gemm g = float32_product();
    g.product = kernel::Product::float64;
    g.a = wide_a.data(), g.b = wide_b.data(), g.c = wide_c.data();
    g.a_dtype = g.b_dtype = g.c_dtype = DType::float64;
    return g;
  }
  /// The same of int8 operands, with scales.
  kernel::Gemm int8_product() {
    kernel::Gemm g = float32_product();
    g.product = kernel::Product::int8;
    g.a = bytes_a.data(), g.b = bytes_b.data();
    g.a_dtype = g.b_dtype = DType::int8;
    g.epilogue.row_scales = scales_a.data(), g.epilogue.column_scales = scales_b.data();
    return g;
  }

  void openblas() {
    cblas_sgemm(CblasRowMajor, left(), right(), size(m), size(n), size(k), 1.0f, a.data(), left_row(), b.data(),
                right_row(), 0.0f, c.data(), size(n));
  }
  void openblas_float64() {
    cblas_dgemm(CblasRowMajor, left(), right(), size(m), size(n), size(k), 1.0, wide_a.data(), left_row(),
                wide_b.data(), right_row(), 0.0, wide_c.data(), size(n));
  }

  /// Whether sampled elements of a result are near sums in double. Operands are numbers of bfloat16 in any case, or
  /// `bytes`. The result is cleared for the next contender.
  bool is_right(bool float64, bool bytes) {
    kernel::Gemm const g = float32_product();
    std::mt19937_64 engine(3);
    bool result = true;
    for (int sample = 0; sample < 200; ++sample) {
      std::int64_t const i = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(m)),
                         j = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n));
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        auto const l = static_cast<std::size_t>(i * g.a_row + p * g.a_column),
                   r = static_cast<std::size_t>(p * g.b_row + j * g.b_column);
        sum += bytes ? bytes_a[l] * bytes_b[r] / (127.0 * 127.0) : double(a[l]) * double(b[r]);
      }
      auto const at = static_cast<std::size_t>(i * n + j);
      double const value = float64 ? wide_c[at] : double(c[at]);
      result = result && std::abs(sum - value) <= (float64 ? 1e-13 : 1e-6) * static_cast<double>(k);
    }
    std::fill(c.begin(), c.end(), NAN), std::fill(wide_c.begin(), wide_c.end(), NAN);
    return result;
  }

 private:
  static blasint size(std::int64_t x) { return static_cast<blasint>(x); }
  CBLAS_TRANSPOSE left() const { return form == Form::tn ? CblasTrans : CblasNoTrans; }
  CBLAS_TRANSPOSE right() const { return form == Form::nt ? CblasTrans : CblasNoTrans; }
  blasint left_row() const { return size(form == Form::tn ? m : k); }
  blasint right_row() const { return size(form == Form::nt ? k : n); }
};

}  // namespace tutti::bench
