// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/quantize.hpp>

#include "kernel/support.hpp"

#include <tutti/kernel/cpu/gemm.hpp>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;
using test::length;

struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> scales;
};
Quantized quantize(exec::Context& context, std::vector<float> const& x, int64_t m, int64_t k, int64_t gap = 0) {
  Quantized result{std::vector<std::int8_t>(length(m * (k + gap)), 99), std::vector<float>(length(m))};
  kernel::cpu::quantize_rows(context, {m, k, x.data(), k, result.q.data(), k + gap, result.scales.data()});
  return result;
}

}  // namespace

TEST_CASE("quantize_rows gives the nearest of 255 steps, ties to even, the same on every instruction set") {
  for (int64_t m : {0, 1, 7, 200})
    for (int64_t k : {0, 1, 2, 15, 16, 17, 70, 300}) {
      test::Random random(static_cast<std::uint64_t>(m * 1000 + k));
      std::vector<float> const x = random.floats(m * k, 3.0f);
      INFO("m " << m << " k " << k);
      std::vector<std::int8_t> first;
      test::on_every_context(
          [&](exec::Context& context) {
            Quantized result = quantize(context, x, m, k, 3);
            for (float const scale : result.scales)
              for (std::size_t byte = 0; byte < 4; ++byte)
                result.q.push_back(static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(scale) >> (8 * byte)));
            return result.q;
          },
          [&](std::vector<std::int8_t> const& result) {
            if (first.empty()) first = result;
            REQUIRE(test::same_bits(first, result));
          });
      Quantized const result = quantize(test::context_of(exec::best_isa(), 2), x, m, k, 3);
      for (int64_t i = 0; i < m; ++i) {
        float largest = 0;
        for (int64_t p = 0; p < k; ++p) largest = std::max(largest, std::abs(x[length(i * k + p)]));
        REQUIRE(result.scales[length(i)] == largest / 127.0f);
        for (int64_t p = 0; p < k; ++p) {
          float const steps = x[length(i * k + p)] * (largest == 0 ? 0 : 127.0f / largest);
          REQUIRE(float(result.q[length(i * (k + 3) + p)]) == std::nearbyint(steps));
          REQUIRE(std::abs(double(result.scales[length(i)]) * result.q[length(i * (k + 3) + p)] -
                           double(x[length(i * k + p)])) <= 0.5001 * double(result.scales[length(i)]));
        }
        for (int64_t p = k; p < k + 3; ++p) REQUIRE(result.q[length(i * (k + 3) + p)] == 99);
      }
    }
}

TEST_CASE("quantize_rows rounds ties to even, keeps zeros and tiny rows at zero, and shows what is not finite") {
  float const infinity = std::numeric_limits<float>::infinity();
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(exec::name(isa));
    exec::Context& context = test::context_of(isa, 1);
    Quantized const ties = quantize(context, {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127}, 1, 8);
    CHECK(ties.scales[0] == 1);
    CHECK(ties.q == std::vector<std::int8_t>{127, 0, 2, 2, 0, -2, -2, -127});
    Quantized const zeros = quantize(context, {0, -0.0f, 0x1p-121f, -0x1p-140f, 0x1p-120f, 0}, 3, 2);
    CHECK(zeros.scales == std::vector<float>{0, 0, 0x1p-120f / 127.0f});
    CHECK(zeros.q == std::vector<std::int8_t>{0, 0, 0, 0, 127, 0});
    Quantized const large = quantize(context, {std::numeric_limits<float>::max(), -1e38f}, 1, 2);
    CHECK(large.q == std::vector<std::int8_t>{127, -37});
    Quantized const wrong = quantize(context, {1, std::nanf(""), 2, infinity, 1, -infinity}, 2, 3);
    CHECK(std::isnan(wrong.scales[0]));
    CHECK(wrong.scales[1] == infinity);
  }
}

TEST_CASE("a product of quantized rows is near the float32 product") {
  int64_t const m = 33, n = 50, k = 400;
  test::Random random(8);
  std::vector<float> const x = random.floats(m * k), weight = random.floats(n * k);
  test::on_every_context(
      [&](exec::Context& context) {
        Quantized const left = quantize(context, x, m, k), right = quantize(context, weight, n, k);
        std::vector<float> c(length(m * n));
        kernel::Gemm g;
        g.m = m, g.n = n, g.k = k, g.product = kernel::Product::int8, g.a_dtype = g.b_dtype = DType::int8;
        g.a = left.q.data(), g.a_row = k, g.b = right.q.data(), g.b_row = 1, g.b_column = k;
        g.c = c.data(), g.c_row = n;
        g.epilogue.row_scales = left.scales.data(), g.epilogue.column_scales = right.scales.data();
        kernel::cpu::gemm<kernel::Product::int8>(context, g);
        return c;
      },
      [&](std::vector<float> const& c) {
        double error = 0, size = 0;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += double(x[length(i * k + p)]) * double(weight[length(j * k + p)]);
            error += std::pow(sum - double(c[length(i * n + j)]), 2), size += sum * sum;
          }
        CHECK(std::sqrt(error / size) < 0.01);
      });
}
