// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/layer_norm.hpp>

#include "kernel/norm_oracle.hpp"
#include "kernel/support.hpp"

using namespace tutti;
using namespace tutti::test;

TEST_CASE("Layer normalisation agrees with double precision, also where y is x") {
  for (RowsShape const& shape : rows_shapes)
    for (float offset : {0.0f, 50.0f}) {
      auto const [rows, n] = shape;
      CAPTURE(rows, n, offset);
      Random random(static_cast<std::uint64_t>(rows * 1000 + n));
      auto const x = random.floats(rows * n, 2, offset);
      auto const gamma = random.floats(n), beta = random.floats(n);
      NormOracle const oracle = layer_norm_oracle(x, gamma, beta, rows, n, 1e-5);
      for (bool in_place : {false, true})
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> out(length(rows * n + 2 * rows));
              float* const to = out.data();
              if (in_place) std::copy(x.begin(), x.end(), out.begin());
              kernel::cpu::layer_norm(context, {.rows = rows,
                                                .channels = n,
                                                .x = in_place ? to : x.data(),
                                                .gamma = gamma.data(),
                                                .beta = beta.data(),
                                                .y = to,
                                                .mean = to + rows * n,
                                                .rstd = to + rows * n + rows});
              return out;
            },
            [&](std::vector<float> const& out) {
              double const u = tolerance<float>(n);
              double const magnitude = 2 + double{offset};
              double const worst_rstd = n == 1 ? 317 : n < 8 ? 100 : 8;  // few channels may be nearly equal
              require_close(out.data(), oracle.y, u * magnitude * worst_rstd, 1, "y");
              require_close(out.data() + rows * n, oracle.mean, u, magnitude, "mean");
              require_close(out.data() + rows * n + rows, oracle.rstd, u * magnitude * worst_rstd, 0, "rstd");
            });
    }
}

TEST_CASE("Layer normalisation skips statistics that nobody wants") {
  Random random(3);
  auto const x = random.floats(21), gamma = random.floats(7), beta = random.floats(7);
  std::vector<float> with(21), without(21), mean(3), rstd(3);
  auto& context = context_of(exec::best_isa(), 1);
  kernel::cpu::layer_norm(context, {.rows = 3, .channels = 7, .x = x.data(), .gamma = gamma.data(), .beta = beta.data(),
                                    .y = with.data(), .mean = mean.data(), .rstd = rstd.data()});
  kernel::cpu::layer_norm(
      context,
      {.rows = 3, .channels = 7, .x = x.data(), .gamma = gamma.data(), .beta = beta.data(), .y = without.data()});
  REQUIRE(same_bits(with, without));
}

TEST_CASE("The gradient of layer normalisation agrees with double precision for every promised aliasing") {
  for (RowsShape const& shape : rows_shapes) {
    auto const [rows, n] = shape;
    CAPTURE(rows, n);
    Random random(static_cast<std::uint64_t>(rows * 999 + n));
    auto const x = random.floats(rows * n, 2, 0.5f), dy = random.floats(rows * n), add = random.floats(rows * n);
    auto const gamma = random.floats(n);
    NormGradientOracle const oracle = layer_norm_gradient_oracle(x, dy, gamma, rows, n, 1e-5);
    enum { separate, over_dy, over_add, no_add, parameters_only };
    for (int form : {separate, over_dy, over_add, no_add, parameters_only}) {
      CAPTURE(form);
      std::vector<double> expected = oracle.dx;
      if (form != no_add)
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += add[i];
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(rows * n + 2 * n), 7.0f);
            float* const to = out.data();
            if (form == over_dy) std::copy(dy.begin(), dy.end(), out.begin());
            if (form == over_add) std::copy(add.begin(), add.end(), out.begin());
            kernel::LayerNormGradient args{.rows = rows,
                                           .channels = n,
                                           .dy = dy.data(),
                                           .x = x.data(),
                                           .gamma = gamma.data(),
                                           .mean = oracle.mean.data(),
                                           .rstd = oracle.rstd.data(),
                                           .dx_add = add.data(),
                                           .dx = to,
                                           .dgamma = to + rows * n,
                                           .dbeta = to + rows * n + n};
            if (form == over_dy) args.dy = to;
            if (form == over_add) args.dx_add = to;
            if (form == no_add) args.dx_add = nullptr;
            if (form == parameters_only) args.dx = nullptr;
            kernel::cpu::layer_norm_gradient(context, args);
            return out;
          },
          [&](std::vector<float> const& out) {
            double const u = tolerance<float>(n);
            if (form != parameters_only) require_close(out.data(), expected, u * oracle.largest * 4, 1, "dx");
            double const v = tolerance<float>(rows) * oracle.largest * std::sqrt(static_cast<double>(rows) + 1);
            require_close(out.data() + rows * n, oracle.dgamma, v, 2, "dgamma");
            require_close(out.data() + rows * n + n, oracle.dbeta, v, 1, "dbeta");
          });
    }
  }
}

TEST_CASE("Outputs of the gradient can be left out one by one") {
  Random random(5);
  std::int64_t const rows = 5, n = 19;
  auto const x = random.floats(rows * n), dy = random.floats(rows * n), gamma = random.floats(n),
             mean = random.floats(rows, 0.1f), rstd = random.floats(rows, 0.1f, 1);
  auto const run = [&](bool with_dx, bool with_gamma, bool with_beta) {
    std::vector<float> out(length(rows * n + 2 * n), -3.0f);
    kernel::cpu::layer_norm_gradient(context_of(exec::best_isa(), 2),
                                     {.rows = rows,
                                      .channels = n,
                                      .dy = dy.data(),
                                      .x = x.data(),
                                      .gamma = gamma.data(),
                                      .mean = mean.data(),
                                      .rstd = rstd.data(),
                                      .dx = with_dx ? out.data() : nullptr,
                                      .dgamma = with_gamma ? out.data() + rows * n : nullptr,
                                      .dbeta = with_beta ? out.data() + rows * n + n : nullptr});
    return out;
  };
  auto const all = run(true, true, true);
  for (int mask = 0; mask < 8; ++mask) {
    auto expected = all;
    if (!(mask & 1)) std::fill(expected.begin(), expected.begin() + rows * n, -3.0f);
    if (!(mask & 2)) std::fill(expected.begin() + rows * n, expected.begin() + rows * n + n, -3.0f);
    if (!(mask & 4)) std::fill(expected.begin() + rows * n + n, expected.end(), -3.0f);
    CAPTURE(mask);
    REQUIRE(same_bits(run(mask & 1, mask & 2, mask & 4), expected));
  }
}
