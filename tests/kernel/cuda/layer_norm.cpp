// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/layer_norm.hpp> <tutti/kernel/cuda/rows.hpp> <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/cuda/layer_norm.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/norm_oracle.hpp"

#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

/// Of every way to divide rows: 1 to 4 accesses held, one and more warps a row, rows too long to hold, odd ones.
std::vector<RowsShape> const shapes{{0, 8},   {1, 1},   {3, 2},     {5, 8},    {7, 31},   {9, 64},   {6, 256},
                                    {5, 768}, {3, 771}, {300, 72},  {700, 3},  {2, 1024}, {3, 1600}, {2, 4104},
                                    {1, 8192}, {2, 16400}, {2500, 16}};

template <class T>
void check_forward(RowsShape const& shape, float offset, bool in_place) {
  auto const [rows, n] = shape;
  CAPTURE(sizeof(T), rows, n, offset, in_place);
  Random random(static_cast<std::uint64_t>(rows * 1000 + n));
  auto const x = as_stored<T>(random.floats(rows * n, 2, offset)), gamma = random.floats(n), beta = random.floats(n);
  NormOracle const oracle = layer_norm_oracle(x, gamma, beta, rows, n, 1e-5);
  OnDevice const on_x(rounded<T>(x)), on_y(std::vector<T>(x.size()));
  OnDevice const on_gamma(gamma), on_beta(beta);
  OnDevice<float> const mean(length(rows)), rstd(length(rows));
  T* const to = in_place ? on_x.data() : on_y.data();
  kernel::cuda::layer_norm(cuda_context(), kernel::LayerNormOf<T>{.rows = rows,
                                                                  .channels = n,
                                                                  .x = on_x.data(),
                                                                  .gamma = on_gamma.data(),
                                                                  .beta = on_beta.data(),
                                                                  .y = to,
                                                                  .mean = mean.data(),
                                                                  .rstd = rstd.data()});
  double const u = tolerance<float>(n), magnitude = 2 + double{offset};
  double const worst_rstd = n == 1 ? 317 : n < 8 ? 100 : 8;  // few channels may be nearly equal
  require_close_on_device((in_place ? on_x : on_y).read(), oracle.y,
                          u * magnitude * worst_rstd + unit_roundoff(dtype_of<T>), 1, "y");
  require_close_on_device(mean.read(), oracle.mean, u, magnitude, "mean");
  require_close_on_device(rstd.read(), oracle.rstd, u * magnitude * worst_rstd, 0, "rstd");
}

enum Form { separate, over_dy, over_add, no_add, parameters_only, dx_only };

template <class T>
void check_gradient(RowsShape const& shape, Form form) {
  auto const [rows, n] = shape;
  CAPTURE(sizeof(T), rows, n, static_cast<int>(form));
  Random random(static_cast<std::uint64_t>(rows * 999 + n));
  auto const x = as_stored<T>(random.floats(rows * n, 2, 0.5f)), dy = as_stored<T>(random.floats(rows * n)),
             add = as_stored<T>(random.floats(rows * n)), gamma = random.floats(n);
  NormGradientOracle const oracle = layer_norm_gradient_oracle(x, dy, gamma, rows, n, 1e-5);
  std::vector<double> dx = oracle.dx;
  if (form != no_add)
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += double{add[i]};
  struct Result {
    std::vector<T> dx;
    std::vector<float> dgamma, dbeta;
  };
  auto const run = [&] {
    OnDevice const on_x(rounded<T>(x)), on_dy(rounded<T>(dy)), on_add(rounded<T>(add)),
        on_dx(rounded<T>(std::vector<float>(x.size(), 7)));
    OnDevice const on_gamma(gamma), mean(oracle.mean), rstd(oracle.rstd), dgamma(std::vector<float>(length(n), 7)),
        dbeta(std::vector<float>(length(n), 7));
    OnDevice<T> const& to = form == over_dy ? on_dy : form == over_add ? on_add : on_dx;
    kernel::cuda::layer_norm_gradient(
        cuda_context(), kernel::LayerNormGradientOf<T>{.rows = rows,
                                                       .channels = n,
                                                       .dy = on_dy.data(),
                                                       .x = on_x.data(),
                                                       .gamma = on_gamma.data(),
                                                       .mean = mean.data(),
                                                       .rstd = rstd.data(),
                                                       .dx_add = form == no_add ? nullptr : on_add.data(),
                                                       .dx = form == parameters_only ? nullptr : to.data(),
                                                       .dgamma = form == dx_only ? nullptr : dgamma.data(),
                                                       .dbeta = form == dx_only ? nullptr : dbeta.data()});
    return Result{to.read(), dgamma.read(), dbeta.read()};
  };
  Result const result = run();
  if (form == parameters_only) REQUIRE(bits_equal(result.dx, rounded<T>(std::vector<float>(x.size(), 7))));
  else
    require_close_on_device(result.dx, dx, tolerance<float>(n) * oracle.largest * 4 + unit_roundoff(dtype_of<T>), 1,
                            "dx");
  if (form == dx_only) {
    REQUIRE(result.dgamma == std::vector<float>(length(n), 7));
    REQUIRE(result.dbeta == std::vector<float>(length(n), 7));
  } else {
    double const v = tolerance<float>(rows) * oracle.largest * std::sqrt(static_cast<double>(rows) + 1);
    require_close_on_device(result.dgamma, oracle.dgamma, v, 2, "dgamma");
    require_close_on_device(result.dbeta, oracle.dbeta, v, 1, "dbeta");
  }
  Result const again = run();
  REQUIRE(bits_equal(result.dx, again.dx));
  REQUIRE(bits_equal(result.dgamma, again.dgamma));
  REQUIRE(bits_equal(result.dbeta, again.dbeta));
}

}  // namespace

TEST_CASE("Layer normalisation on a GPU agrees with double precision, also where y is x") {
  for (RowsShape const& shape : shapes)
    for (float const offset : {0.0f, 50.0f}) {
      check_forward<float>(shape, offset, offset == 0);
      check_forward<bfloat16>(shape, offset, offset != 0);
    }
}

TEST_CASE("The gradient of layer normalisation on a GPU agrees with double precision for every promised aliasing") {
  for (RowsShape const& shape : shapes)
    for (Form const form : {separate, over_dy, over_add, no_add, parameters_only, dx_only}) {
      if (shape.rows * shape.channels > 20'000 && form != separate && form != over_dy) continue;
      check_gradient<float>(shape, form);
      check_gradient<bfloat16>(shape, form);
    }
}

TEST_CASE("Layer normalisation on a GPU skips statistics that nobody wants, and takes rows at any alignment") {
  Random random(3);
  std::int64_t const rows = 3, n = 64;
  auto const x = random.floats(rows * n + 1), gamma = random.floats(n), beta = random.floats(n);
  OnDevice const on_x(x), on_gamma(gamma), on_beta(beta);
  OnDevice<float> const aligned(length(rows * n)), shifted(length(rows * n + 1));
  std::vector<float> const moved(x.begin() + 1, x.end());
  OnDevice const on_moved(moved);
  kernel::LayerNorm args{.rows = rows,
                         .channels = n,
                         .x = on_moved.data(),
                         .gamma = on_gamma.data(),
                         .beta = on_beta.data(),
                         .y = aligned.data()};
  kernel::cuda::layer_norm(cuda_context(), args);
  args.x = on_x.data() + 1;
  args.y = shifted.data() + 1;
  kernel::cuda::layer_norm(cuda_context(), args);
  auto const expected = aligned.read(), result = shifted.read();
  require_close(result.data() + 1, {expected.begin(), expected.end()}, tolerance<float>(n), 1, "y");
}

TEST_CASE("Layer normalisation of float rows on a GPU gives bfloat16: the floats, rounded; and takes such gradients") {
  check_narrow_results([]<class Y>(std::int64_t rows, std::int64_t channels, float const* x, float const* gamma, Y* y,
                                   Y const* dy, float* dx, float* dgamma, float* mean, float* rstd) {
    kernel::cuda::layer_norm(cuda_context(), kernel::LayerNormOf<float, Y>{.rows = rows,
                                                                           .channels = channels,
                                                                           .x = x,
                                                                           .gamma = gamma,
                                                                           .beta = gamma,
                                                                           .y = y,
                                                                           .mean = mean,
                                                                           .rstd = rstd});
    kernel::LayerNormGradientOf<float, Y> g;
    g.rows = rows, g.channels = channels, g.x = x, g.dy = dy, g.dx = dx;
    g.mean = mean, g.rstd = rstd, g.gamma = gamma, g.dgamma = dgamma;
    kernel::cuda::layer_norm_gradient(cuda_context(), g);
  });
}
