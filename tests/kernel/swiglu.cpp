// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/swiglu.hpp> <tutti/kernel/cpu/swiglu.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include "kernel/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;

namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) { return (1 + x / (1 + std::exp(x))) / (1 + std::exp(-x)); }

struct Case {
  std::int64_t rows, channels;
};
std::vector<Case> const cases{{0, 3},  {3, 0},  {1, 1},   {5, 3},    {2, 15},   {3, 16},
                              {2, 17}, {7, 33}, {3, 100}, {50, 257}, {1, 9001}, {3, 2731}};

}  // namespace

TEST_CASE("SwiGLU agrees with double precision, on packed rows and in place") {
  for (Case const& c : cases)
    for (bool in_place : {false, true}) {
      auto const [rows, n] = c;
      CAPTURE(rows, n, in_place);
      Random random(static_cast<std::uint64_t>(rows + 100 * n));
      auto const packed = random.floats(rows * 2 * n, 12);
      std::vector<double> expected(packed.begin(), packed.end());
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < n; ++i) {
          std::size_t const gate = length(2 * row * n + i), up = gate + length(n);
          expected[gate] = silu(packed[gate]) * packed[up];
          if (!in_place) expected[up] = -5;
        }
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out = in_place ? packed : std::vector<float>(packed.size(), -5.0f);
            float const* const from = in_place ? out.data() : packed.data();
            kernel::cpu::swiglu(context, {.rows = rows,
                                          .channels = n,
                                          .gate = from,
                                          .gate_stride = 2 * n,
                                          .up = from + n,
                                          .up_stride = 2 * n,
                                          .y = out.data(),
                                          .y_stride = 2 * n});
            return out;
          },
          [&](std::vector<float> const& out) { require_close(out.data(), expected, tolerance<float>(), 0, "y"); });
    }
}

TEST_CASE("The gradient of SwiGLU agrees with double precision, over its inputs and with outputs left out") {
  enum { separate, over_inputs, over_dy, only_gate, only_up };
  for (Case const& c : cases)
    for (int form : {separate, over_inputs, over_dy, only_gate, only_up}) {
      auto const [rows, n] = c;
      CAPTURE(rows, n, form);
      Random random(static_cast<std::uint64_t>(rows + 100 * n));
      auto const gate = random.floats(rows * n, 9), up = random.floats(rows * n, 2), dy = random.floats(rows * n);
      std::vector<double> dgate, dup;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        dgate.push_back(form == only_up ? 3 : double{dy[i]} * up[i] * silu_slope(gate[i]));
        dup.push_back(form == only_gate ? 3 : dy[i] * silu(gate[i]));
      }
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(length(2 * rows * n), 3.0f);
            float *const to_gate = out.data(), *const to_up = out.data() + rows * n;
            kernel::SwiGluGradient args{.rows = rows, .channels = n, .dy = dy.data()};
            args.gate = gate.data();
            args.up = up.data();
            args.dgate = form == only_up ? nullptr : to_gate;
            args.dup = form == only_gate ? nullptr : to_up;
            args.dy_stride = args.gate_stride = args.up_stride = args.dgate_stride = args.dup_stride = n;
            if (form == over_inputs) {
              std::copy(gate.begin(), gate.end(), to_gate);
              std::copy(up.begin(), up.end(), to_up);
              args.gate = to_gate;
              args.up = to_up;
            }
            if (form == over_dy) {
              std::copy(dy.begin(), dy.end(), to_up);
              args.dy = to_up;
            }
            kernel::cpu::swiglu_gradient(context, args);
            return out;
          },
          [&](std::vector<float> const& out) {
            require_close(out.data(), dgate, tolerance<float>(), 2, "dgate");
            require_close(out.data() + rows * n, dup, tolerance<float>(), 1e-3, "dup");
          });
    }
}

TEST_CASE("SwiGLU of infinities and NaN is what the limits are") {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> const gate{infinity, -infinity, std::nanf(""), 0.0f, -200.0f}, up(5, 2.0f), dy(5, 1.0f);
  on_every_context(
      [&](exec::Context& context) {
        std::vector<float> out(10);
        kernel::cpu::swiglu(context, {1, 5, gate.data(), 5, up.data(), 5, out.data(), 5});
        kernel::cpu::swiglu_gradient(
            context, {1, 5, dy.data(), 5, gate.data(), 5, up.data(), 5, out.data() + 5, 5, nullptr, 0});
        return out;
      },
      [&](std::vector<float> const& out) {
        REQUIRE(out[0] == infinity);
        REQUIRE(out[1] == 0);
        REQUIRE(std::isnan(out[2]));
        REQUIRE(out[3] == 0);
        REQUIRE(out[4] == 0);
        REQUIRE(out[5] == 2);
        REQUIRE(out[6] == 0);
        REQUIRE(std::isnan(out[7]));
        REQUIRE(out[8] == 1);
        REQUIRE(out[9] == 0);
      });
}
