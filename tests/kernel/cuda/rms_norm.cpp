// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/rms_norm.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/norm_oracle.hpp"

#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<RowsShape> const shapes{{0, 8},    {1, 1},    {3, 2},    {5, 8},    {7, 31},    {9, 64},
                                    {5, 768},  {3, 771},  {300, 72}, {700, 3},  {2, 1024},  {3, 1600},
                                    {2, 4104}, {1, 8192}, {2, 16400}};

template <class T>
void check_forward(RowsShape const& shape, bool in_place) {
  auto const [rows, n] = shape;
  CAPTURE(sizeof(T), rows, n, in_place);
  Random random(static_cast<std::uint64_t>(rows * 1000 + n));
  auto const x = as_stored<T>(random.floats(rows * n, 2, in_place ? 50.0f : 0.0f)), weight = random.floats(n);
  NormOracle const oracle = rms_norm_oracle(x, weight, rows, n, 1e-5);
  OnDevice const on_x(rounded<T>(x)), on_y(std::vector<T>(x.size()));
  OnDevice const on_weight(weight);
  OnDevice<float> const rstd(length(rows));
  kernel::RmsNormOf<T> args{.rows = rows,
                            .channels = n,
                            .x = on_x.data(),
                            .weight = on_weight.data(),
                            .y = in_place ? on_x.data() : on_y.data(),
                            .rstd = rstd.data()};
  kernel::cuda::rms_norm(cuda_context(), args);
  auto const y = (in_place ? on_x : on_y).read();
  require_close_on_device(y, oracle.y, tolerance<float>(n) + unit_roundoff(dtype_of<T>), 1, "y");
  require_close_on_device(rstd.read(), oracle.rstd, tolerance<float>(n), 0, "rstd");
  if (in_place) return;
  args.rstd = nullptr;
  kernel::cuda::rms_norm(cuda_context(), args);
  REQUIRE(bits_equal(on_y.read(), y));
}

enum Form { separate, over_dy, over_add, no_add, weight_only, dx_only, accumulated };

template <class T>
void check_gradient(RowsShape const& shape, Form form) {
  auto const [rows, n] = shape;
  CAPTURE(sizeof(T), rows, n, static_cast<int>(form));
  Random random(static_cast<std::uint64_t>(rows * 999 + n));
  auto const x = as_stored<T>(random.floats(rows * n, 2, 0.5f)), dy = as_stored<T>(random.floats(rows * n)),
             add = as_stored<T>(random.floats(rows * n)), weight = random.floats(n), before = random.floats(n);
  NormGradientOracle const oracle = rms_norm_gradient_oracle(x, dy, weight, rows, n, 1e-5);
  std::vector<double> dx = oracle.dx, dweight = oracle.dgamma;
  if (form != no_add)
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += double{add[i]};
  if (form == accumulated)
    for (std::size_t i = 0; i < dweight.size(); ++i) dweight[i] += double{before[i]};
  struct Result {
    std::vector<T> dx;
    std::vector<float> dweight;
  };
  auto const run = [&] {
    OnDevice const on_x(rounded<T>(x)), on_dy(rounded<T>(dy)), on_add(rounded<T>(add)),
        on_dx(rounded<T>(std::vector<float>(x.size(), 7)));
    OnDevice const on_weight(weight), rstd(oracle.rstd), on_dweight(before);
    OnDevice<T> const& to = form == over_dy ? on_dy : form == over_add ? on_add : on_dx;
    kernel::cuda::rms_norm_gradient(cuda_context(),
                                    kernel::RmsNormGradientOf<T>{
                                        .rows = rows,
                                        .channels = n,
                                        .dy = on_dy.data(),
                                        .x = on_x.data(),
                                        .weight = on_weight.data(),
                                        .rstd = rstd.data(),
                                        .dx_add = form == no_add ? nullptr : on_add.data(),
                                        .dx = form == weight_only ? nullptr : to.data(),
                                        .dweight = form == dx_only ? nullptr : on_dweight.data(),
                                        .accumulate = form == accumulated});
    return Result{to.read(), on_dweight.read()};
  };
  Result const result = run(), again = run();
  if (form == weight_only) REQUIRE(bits_equal(result.dx, rounded<T>(std::vector<float>(x.size(), 7))));
  else
    require_close_on_device(result.dx, dx, tolerance<float>(n) * oracle.largest * 4 + unit_roundoff(dtype_of<T>), 1,
                            "dx");
  double const v = tolerance<float>(rows) * oracle.largest * std::sqrt(static_cast<double>(rows) + 1);
  if (form == dx_only) REQUIRE(result.dweight == before);
  else require_close_on_device(result.dweight, dweight, v, 2, "dweight");
  REQUIRE(bits_equal(result.dx, again.dx));
  REQUIRE(bits_equal(result.dweight, again.dweight));
}

}  // namespace

TEST_CASE("RMS normalisation on a GPU agrees with double precision, also where y is x and without the statistic") {
  for (RowsShape const& shape : shapes)
    for (bool const in_place : {false, true}) {
      check_forward<float>(shape, in_place);
      check_forward<bfloat16>(shape, in_place);
    }
}

TEST_CASE("The gradient of RMS normalisation on a GPU agrees with double precision for every promised aliasing") {
  for (RowsShape const& shape : shapes)
    for (Form const form : {separate, over_dy, over_add, no_add, weight_only, dx_only, accumulated}) {
      if (shape.rows * shape.channels > 20'000 && form != accumulated && form != over_dy) continue;
      check_gradient<float>(shape, form);
      check_gradient<bfloat16>(shape, form);
    }
}

TEST_CASE("RMS normalisation of float rows on a GPU gives bfloat16: the floats, rounded; and takes such gradients") {
  check_narrow_results([]<class Y>(std::int64_t rows, std::int64_t channels, float const* x, float const* weight, Y* y,
                                   Y const* dy, float* dx, float* dweight, float*, float* rstd) {
    kernel::cuda::rms_norm(cuda_context(), kernel::RmsNormOf<float, Y>{
                                               .rows = rows, .channels = channels, .x = x, .weight = weight, .y = y,
                                               .rstd = rstd});
    kernel::RmsNormGradientOf<float, Y> g;
    g.rows = rows, g.channels = channels, g.x = x, g.dy = dy, g.dx = dx;
    g.rstd = rstd, g.weight = weight, g.dweight = dweight;
    kernel::cuda::rms_norm_gradient(cuda_context(), g);
  });
}
