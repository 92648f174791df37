// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/rms_norm.hpp> <tutti/kernel/cpu/rms_norm.hpp>
#include <tutti/kernel/cpu/rms_norm.hpp>

#include "kernel/norm_oracle.hpp"
#include "kernel/support.hpp"

using namespace tutti;
using namespace tutti::test;

TEST_CASE("RMS normalisation agrees with double precision, also where y is x") {
  for (RowsShape const& shape : rows_shapes)
    for (float offset : {0.0f, 50.0f}) {
      auto const [rows, n] = shape;
      CAPTURE(rows, n, offset);
      Random random(static_cast<std::uint64_t>(rows * 1000 + n));
      auto const x = random.floats(rows * n, 2, offset), weight = random.floats(n);
      NormOracle const oracle = rms_norm_oracle(x, weight, rows, n, 1e-5);
      for (bool in_place : {false, true})
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> out(length(rows * n + rows + 1), std::nanf(""));
              float* const to = out.data();
              out.back() = 9;
              if (in_place) std::copy(x.begin(), x.end(), out.begin());
              kernel::cpu::rms_norm(context, {.rows = rows,
                                              .channels = n,
                                              .x = in_place ? to : x.data(),
                                              .weight = weight.data(),
                                              .y = to,
                                              .rstd = to + rows * n});
              return out;
            },
            [&](std::vector<float> const& out) {
              double const u = tolerance<float>(n);
              require_close(out.data(), oracle.y, u, 1, "y");
              require_close(out.data() + rows * n, oracle.rstd, u, 0, "rstd");
              REQUIRE(out.back() == 9);
            });
    }
}

TEST_CASE("RMS normalisation of zeros is zero, and its epsilon counts") {
  std::vector<float> const x{0, 0, 0, 3e-3f, -3e-3f, 3e-3f}, weight{1, 2, 3};
  std::vector<float> y(6, 7), rstd(2, 7);
  kernel::cpu::rms_norm(context_of(exec::best_isa(), 1), {.rows = 2,
                                                          .channels = 3,
                                                          .eps = 1e-4f,
                                                          .x = x.data(),
                                                          .weight = weight.data(),
                                                          .y = y.data(),
                                                          .rstd = rstd.data()});
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(y[i] == 0);
  REQUIRE(close(rstd[0], 100, 1e-6));
  REQUIRE(close(rstd[1], 1 / std::sqrt(9e-6 + 1e-4), 1e-6));
}

TEST_CASE("RMS normalisation skips the statistic that nobody wants") {
  Random random(3);
  auto const x = random.floats(21), weight = random.floats(7);
  std::vector<float> with(21), without(21), rstd(3);
  auto& context = context_of(exec::best_isa(), 1);
  kernel::RmsNorm args{
      .rows = 3, .channels = 7, .x = x.data(), .weight = weight.data(), .y = with.data(), .rstd = rstd.data()};
  kernel::cpu::rms_norm(context, args);
  args.y = without.data();
  args.rstd = nullptr;
  kernel::cpu::rms_norm(context, args);
  REQUIRE(same_bits(with, without));
}

TEST_CASE("The gradient of RMS normalisation agrees with double precision for every promised aliasing") {
  for (RowsShape const& shape : rows_shapes) {
    auto const [rows, n] = shape;
    CAPTURE(rows, n);
    Random random(static_cast<std::uint64_t>(rows * 999 + n));
    auto const x = random.floats(rows * n, 2, 0.5f), dy = random.floats(rows * n), add = random.floats(rows * n);
    auto const weight = random.floats(n), before = random.floats(n);
    NormGradientOracle const oracle = rms_norm_gradient_oracle(x, dy, weight, rows, n, 1e-5);
    enum { separate, over_dy, over_add, no_add, weight_only, accumulated };
    for (int form : {separate, over_dy, over_add, no_add, weight_only, accumulated}) {
      CAPTURE(form);
      std::vector<double> expected = oracle.dx, expected_weight = oracle.dgamma;
      if (form != no_add)
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += add[i];
      if (form == accumulated)
        for (std::size_t i = 0; i < before.size(); ++i) expected_weight[i] += before[i];
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(rows * n + n), 7.0f);
            float* const to = out.data();
            if (form == over_dy) std::copy(dy.begin(), dy.end(), out.begin());
            if (form == over_add) std::copy(add.begin(), add.end(), out.begin());
            if (form == accumulated) std::copy(before.begin(), before.end(), out.begin() + rows * n);
            kernel::RmsNormGradient args{.rows = rows,
                                         .channels = n,
                                         .dy = dy.data(),
                                         .x = x.data(),
                                         .weight = weight.data(),
                                         .rstd = oracle.rstd.data(),
                                         .dx_add = add.data(),
                                         .dx = to,
                                         .dweight = to + rows * n,
                                         .accumulate = form == accumulated};
            if (form == over_dy) args.dy = to;
            if (form == over_add) args.dx_add = to;
            if (form == no_add) args.dx_add = nullptr;
            if (form == weight_only) args.dx = nullptr;
            kernel::cpu::rms_norm_gradient(context, args);
            return out;
          },
          [&](std::vector<float> const& out) {
            if (form != weight_only)
              require_close(out.data(), expected, tolerance<float>(n) * oracle.largest * 4, 1, "dx");
            double const v = tolerance<float>(rows) * oracle.largest * std::sqrt(static_cast<double>(rows) + 1);
            require_close(out.data() + rows * n, expected_weight, v, 2, "dweight");
          });
    }
  }
}

TEST_CASE("Outputs of the gradient of RMS normalisation can be left out one by one") {
  Random random(5);
  std::int64_t const rows = 5, n = 19;
  auto const x = random.floats(rows * n), dy = random.floats(rows * n), weight = random.floats(n),
             rstd = random.floats(rows, 0.1f, 1);
  auto const run = [&](bool with_dx, bool with_weight) {
    std::vector<float> out(length(rows * n + n), -3.0f);
    kernel::cpu::rms_norm_gradient(context_of(exec::best_isa(), 2),
                                   {.rows = rows,
                                    .channels = n,
                                    .dy = dy.data(),
                                    .x = x.data(),
                                    .weight = weight.data(),
                                    .rstd = rstd.data(),
                                    .dx = with_dx ? out.data() : nullptr,
                                    .dweight = with_weight ? out.data() + rows * n : nullptr});
    return out;
  };
  auto const all = run(true, true);
  for (int mask = 0; mask < 4; ++mask) {
    auto expected = all;
    if (!(mask & 1)) std::fill(expected.begin(), expected.begin() + rows * n, -3.0f);
    if (!(mask & 2)) std::fill(expected.begin() + rows * n, expected.end(), -3.0f);
    CAPTURE(mask);
    REQUIRE(same_bits(run(mask & 1, mask & 2), expected));
  }
}
