// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/swiglu.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

enum Form { separate, in_place, packed };

template <class T>
void check(std::int64_t rows, std::int64_t n, Form form) {
  CAPTURE(sizeof(T), rows, n, static_cast<int>(form));
  std::int64_t const stride = form == packed ? 2 * n : n;
  Random random(static_cast<std::uint64_t>(rows * 100 + n));
  auto const gate = as_stored<T>(random.floats(rows * stride, 12)), up = as_stored<T>(random.floats(rows * n, 2)),
             dy = as_stored<T>(random.floats(rows * n));
  std::vector<double> y, dgate, dup;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < n; ++i) {
      double const g = double{gate[length(row * stride + i)]}, d = double{dy[length(row * n + i)]};
      double const u = double{form == packed ? gate[length(row * stride + n + i)] : up[length(row * n + i)]};
      double const s = 1 / (1 + std::exp(-g));
      y.push_back(g * s * u);
      dup.push_back(d * g * s);
      dgate.push_back(d * u * s * (1 + g * (1 - s)));
    }
  OnDevice const on_gate(rounded<T>(gate)), on_up(rounded<T>(up)), on_dy(rounded<T>(dy));
  OnDevice<T> const to_y(length(rows * n)), to_gate(length(rows * n)), to_up(length(rows * n));
  T const* const from_up = form == packed ? on_gate.data() + n : on_up.data();
  std::int64_t const up_stride = form == packed ? stride : n;
  kernel::SwiGluGradientOf<T> gradient{.rows = rows,
                                       .channels = n,
                                       .dy = on_dy.data(),
                                       .dy_stride = n,
                                       .gate = on_gate.data(),
                                       .gate_stride = stride,
                                       .up = from_up,
                                       .up_stride = up_stride,
                                       .dgate = to_gate.data(),
                                       .dgate_stride = n,
                                       .dup = to_up.data(),
                                       .dup_stride = n};
  kernel::SwiGluOf<T> const forward{.rows = rows,
                                    .channels = n,
                                    .gate = on_gate.data(),
                                    .gate_stride = stride,
                                    .up = from_up,
                                    .up_stride = up_stride,
                                    .y = form == in_place ? on_up.data() : to_y.data(),
                                    .y_stride = n};
  double const u = tolerance<float>(4) + unit_roundoff(dtype_of<T>);
  kernel::cuda::swiglu_gradient(cuda_context(), gradient);
  auto const gate_gradient = to_gate.read(), up_gradient = to_up.read();
  require_close_on_device(gate_gradient, dgate, u, 1, "dgate");
  require_close_on_device(up_gradient, dup, u, 1, "dup");
  if (form == in_place) {  // each output over an input of its own
    gradient.dgate = on_dy.data();
    OnDevice const over_gate(rounded<T>(gate));
    gradient.gate = gradient.dup = over_gate.data();
    kernel::cuda::swiglu_gradient(cuda_context(), gradient);
    REQUIRE(bits_equal(on_dy.read(), gate_gradient));
    REQUIRE(bits_equal(over_gate.read(), up_gradient));
  } else {
    OnDevice const untouched(rounded<T>(dy));
    gradient.dgate = nullptr;
    gradient.dup = untouched.data();
    kernel::cuda::swiglu_gradient(cuda_context(), gradient);
    REQUIRE(bits_equal(untouched.read(), up_gradient));
    gradient.dup = nullptr;
    gradient.dgate = untouched.data();
    kernel::cuda::swiglu_gradient(cuda_context(), gradient);
    REQUIRE(bits_equal(untouched.read(), gate_gradient));
  }
  kernel::cuda::swiglu(cuda_context(), forward);
  require_close_on_device((form == in_place ? on_up : to_y).read(), y, u, 1, "y");
}

}  // namespace

TEST_CASE("SwiGLU on a GPU and its gradient agree with double precision, packed and in place") {
  for (RowsShape const& shape : {RowsShape{0, 5}, {1, 1}, {3, 7}, {5, 8}, {2, 17}, {4, 64}, {3, 1000}, {40, 31}})
    for (Form const form : {separate, in_place, packed}) {
      check<float>(shape.rows, shape.channels, form);
      check<bfloat16>(shape.rows, shape.channels, form);
    }
}
