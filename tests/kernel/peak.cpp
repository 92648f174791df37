// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu/peak.hpp>
#include "support/catch.hpp"

#include <tutti/kernel/cpu/peak.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

using namespace tutti;

TEST_CASE("the loop behind the measured peak computes what it says, on every instruction set") {
  // Every chain tends to b / (1 - a) = 1; the sum is over 12 chains in every lane.
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(name(isa));
    using kernel::Product;
    double const lanes = kernel::cpu::detail::peak_flops_per_round(isa, Product::float32) / 24;
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float32, 40000)) == Approx(12 * lanes).epsilon(1e-3));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float32, 0)) == Approx(90 * lanes));  // 2 + 3 + ... + 13
    bool const pairs = isa == exec::Isa::avx512_bf16;
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::bfloat16) == 24 * lanes * (pairs ? 2 : 1));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::bfloat16, 40000)) ==
          Approx((pairs ? 90 : 12) * lanes).epsilon(1e-3));
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::int8) == 24 * lanes * (pairs ? 4 : 2));
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::int8, 4)) == 16 * 90 * lanes);  // doubled four times
    double const wide = isa == exec::Isa::scalar ? 1 : lanes / 2;
    CHECK(kernel::cpu::detail::peak_flops_per_round(isa, Product::float64) == 24 * wide);
    CHECK(double(kernel::cpu::detail::peak_loop(isa, Product::float64, 40000)) == Approx(12 * wide).epsilon(1e-3));
  }
}

TEST_CASE("the loop behind the measured reads adds every word, on every instruction set") {
  std::vector<std::int32_t> words(8 * 16 * 5);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int32_t>(1 << (i % 20));
  std::uint32_t expected = 0;
  for (std::int32_t const word : words) expected += static_cast<std::uint32_t>(word);
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(name(isa));
    CHECK(kernel::cpu::detail::read_loop_of(isa, words.data(), static_cast<std::int64_t>(words.size())) ==
          static_cast<std::int32_t>(expected));
    CHECK(kernel::cpu::detail::read_loop_of(isa, words.data(), 0) == 0);
  }
}

TEST_CASE("every byte of a copy belongs to one thread") {
  for (std::size_t const bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{10000}, std::size_t{1} << 20})
    for (int const threads : {1, 2, 3, 7}) {
      CAPTURE(bytes, threads);
      std::size_t next = 0;
      for (int thread = 0; thread < threads; ++thread) {
        kernel::cpu::detail::BytePart const part(bytes, thread, threads);
        CHECK(part.first == next);
        next += part.size;
      }
      CHECK(next == bytes);
    }
}

TEST_CASE("a peak is measured on any number of threads") {
  auto const sensible = [](double value) { return std::isfinite(value) && value > 0; };
  for (int threads : {1, 2}) {
    exec::Context context({.threads = threads});
    CHECK(sensible(kernel::cpu::measure_copy_bandwidth(context, 1, std::size_t{1} << 20)));
    CHECK(sensible(kernel::cpu::measure_read_bandwidth(context, 1, std::size_t{1} << 20)));
    for (kernel::Product const product : {kernel::Product::float32, kernel::Product::bfloat16, kernel::Product::int8,
                                          kernel::Product::float64})
      CHECK(sensible(kernel::cpu::measure_peak_flops(context, 1, product)));
    kernel::cpu::TeamCost const cost = kernel::cpu::measure_team_cost(context, 1);
    CHECK(sensible(cost.region));
    CHECK(sensible(cost.barrier));
  }
}
