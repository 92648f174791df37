// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/peak.hpp>
#include "support/catch.hpp"

#include <tutti/kernel/cpu/peak.hpp>

#include <cmath>

using namespace tutti;

TEST_CASE("the loop behind the measured peak computes what it says, on every instruction set") {
  // Every chain tends to b / (1 - a) = 1; the sum is over 12 chains in every lane.
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(name(isa));
    using kernel::Product;
    double const lanes = kernel::cpu::detail::peak_flops_per_round(isa, Product::float32) / 24;
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float32, 40000)) == Approx(12 * lanes).epsilon(1e-3));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float32, 0)) == Approx(66 * lanes));  // 0 + 1 + ... + 11
    bool const pairs = isa == exec::Isa::avx512_bf16;
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::bfloat16) == 24 * lanes * (pairs ? 2 : 1));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::bfloat16, 40000)) ==
          Approx((pairs ? 66 : 12) * lanes).epsilon(1e-3));
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::int8) == 24 * lanes * (pairs ? 4 : 2));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::int8, 4)) == 16 * 66 * lanes);  // doubled four times
    double const wide = isa == exec::Isa::scalar ? 1 : lanes / 2;
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::float64) == 24 * wide);
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float64, 40000)) == Approx(12 * wide).epsilon(1e-3));
  }
}

TEST_CASE("a peak is measured on any number of threads") {
  for (int threads : {1, 2}) {
    exec::Context context({.threads = threads});
    double const copies = kernel::cpu::measure_copy_bandwidth(context, 1, std::size_t{1} << 20);
    CHECK(std::isfinite(copies));
    CHECK(copies > 0);
    for (kernel::Product const product : {kernel::Product::float32, kernel::Product::bfloat16, kernel::Product::int8,
                                          kernel::Product::float64}) {
      double const peak = kernel::cpu::measure_peak_flops(context, 1, product);
      CHECK(std::isfinite(peak));
      CHECK(peak > 0);
    }
  }
}
