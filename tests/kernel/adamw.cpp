// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/adamw.hpp>

#include "kernel/support.hpp"

#include <bit>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("AdamW agrees with double precision over three steps") {
  for (std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 33, 1000, 4095, 4097, 20011}) {
    CAPTURE(n);
    Random random(static_cast<std::uint64_t>(n));
    auto const start = random.floats(n);
    std::vector<std::vector<float>> gradients;
    for (int step = 0; step < 3; ++step) gradients.push_back(random.floats(n, 3));
    kernel::AdamW const base{.size = n,
                             .learning_rate = 0.01f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .gradient_scale = 0.25f};
    double const b1 = double{base.beta1}, b2 = double{base.beta2}, rate = double{base.learning_rate};
    std::vector<double> p(start.begin(), start.end()), m(length(n)), v(length(n));
    for (int step = 1; step <= 3; ++step)
      for (std::size_t i = 0; i < p.size(); ++i) {
        double const g = gradients[length(step - 1)][i] * 0.25;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        double const hat_m = m[i] / (1 - std::pow(b1, step)), hat_v = v[i] / (1 - std::pow(b2, step));
        p[i] -= rate * (hat_m / (std::sqrt(hat_v) + double{base.eps}) + double{base.weight_decay} * p[i]);
      }
    on_every_context(
        [&](exec::Context& context) {
          std::vector<float> out(length(3 * n + 16), -5.0f);
          std::copy(start.begin(), start.end(), out.begin());
          std::fill(out.begin() + n, out.begin() + 3 * n, 0.0f);
          for (int step = 1; step <= 3; ++step) {
            kernel::AdamW args = base;
            args.parameter = out.data(), args.m = out.data() + n, args.v = out.data() + 2 * n;
            args.gradient = gradients[length(step - 1)].data();
            args.correction1 = static_cast<float>(1 - std::pow(b1, step));
            args.correction2 = static_cast<float>(1 - std::pow(b2, step));
            kernel::cpu::adamw(context, args);
          }
          return out;
        },
        [&](std::vector<float> const& out) {
          require_close(out.data(), p, tolerance<float>(9), 1, "parameter");
          require_close(out.data() + n, m, tolerance<float>(9), 0.3, "m");
          require_close(out.data() + 2 * n, v, tolerance<float>(9), 0.1, "v");
          require_close(out.data() + 3 * n, std::vector<double>(16, -5.0), 0, 0, "memory beyond the end");
        });
  }
}

TEST_CASE("AdamW writes a rounded copy and clears the gradient in the same pass") {
  for (std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 33, 1000, 4097, 20011}) {
    CAPTURE(n);
    Random random(static_cast<std::uint64_t>(n + 100));
    auto const parameter = random.floats(n), gradient = random.floats(n, 3), m = random.floats(n),
               v = random.floats(n, 0.5f, 0.5f);
    struct Result {
      std::vector<float> floats;  // parameter, gradient, m, v, and what lies behind
      std::vector<std::uint16_t> copy;
    };
    auto const run = [&](exec::Context& context, bool with_copy, bool cleared) {
      Result result{std::vector<float>(length(4 * n + 16), -5.0f), std::vector<std::uint16_t>(length(n + 16), 0x4321)};
      float* const data = result.floats.data();
      int part = 0;
      for (auto const* array : {&parameter, &gradient, &m, &v})
        std::copy(array->begin(), array->end(), data + part++ * n);
      std::vector<bfloat16> copy(length(n + 16), bfloat16::from_bits(0x4321));
      kernel::cpu::adamw(context, {.size = n,
                                   .parameter = data,
                                   .gradient = data + n,
                                   .m = data + 2 * n,
                                   .v = data + 3 * n,
                                   .learning_rate = 0.01f,
                                   .weight_decay = 0.1f,
                                   .gradient_scale = 0.25f,
                                   .correction1 = 0.5f,
                                   .correction2 = 0.25f,
                                   .copy = with_copy ? copy.data() : nullptr,
                                   .cleared = cleared ? data + n : nullptr});
      for (std::size_t i = 0; i < copy.size(); ++i) result.copy[i] = copy[i].bits;
      return result;
    };
    for (exec::Isa isa : exec::all_isas) {
      if (!exec::available(isa)) continue;
      INFO("instruction set " << std::string(exec::name(isa)));
      Result const plain = run(context_of(isa, 1), false, false);
      for (bool with_copy : {false, true})
        for (bool cleared : {false, true})
          for (int threads : {1, 2, 3}) {
            CAPTURE(with_copy, cleared, threads);
            Result const result = run(context_of(isa, threads), with_copy, cleared);
            std::vector<float> expected = plain.floats;
            if (cleared) std::fill(expected.begin() + n, expected.begin() + 2 * n, 0.0f);
            REQUIRE(same_bits(result.floats, expected));
            for (std::size_t i = 0; i < result.copy.size(); ++i) {
              bool const written = with_copy && i < length(n);
              REQUIRE(result.copy[i] ==
                      (written ? bfloat16(plain.floats[i]).bits : std::uint16_t{0x4321}));
            }
          }
    }
  }
}

TEST_CASE("The copy that AdamW writes is rounded to nearest even, also of halfway cases, infinities and NaN") {
  // Without a gradient, moments and decay the parameter stays.
  std::vector<float> values;
  for (std::uint32_t const bits :
       {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0x00000000u, 0x80000000u, 0x00008000u, 0x00018000u,
        0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00001u, 0x007fffffu})
    values.push_back(std::bit_cast<float>(bits));
  std::vector<float> const zeros(values.size());
  on_every_context(
      [&](exec::Context& context) {
        std::vector<float> parameter = values, m = zeros, v = zeros;
        std::vector<bfloat16> copy(values.size());
        kernel::cpu::adamw(context, {.size = static_cast<std::int64_t>(values.size()),
                                     .parameter = parameter.data(),
                                     .gradient = zeros.data(),
                                     .m = m.data(),
                                     .v = v.data(),
                                     .learning_rate = 0.01f,
                                     .copy = copy.data()});
        return copy;
      },
      [&](std::vector<bfloat16> const& copy) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          CAPTURE(i, values[i]);
          if (std::isnan(values[i])) CHECK(std::isnan(float(copy[i])));
          else CHECK(copy[i].bits == bfloat16(values[i]).bits);
        }
      });
}

TEST_CASE("The sum of squares is that of double precision and accumulates on request") {
  for (std::int64_t n : {0, 1, 15, 16, 17, 8191, 8192, 8193, 100003, 17'000'000}) {
    CAPTURE(n);
    Random random(static_cast<std::uint64_t>(n));
    auto x = random.floats(std::min<std::int64_t>(n, 200000), 1e3f);
    x.resize(length(n), 0.5f);
    if (n > 0) x[0] = 1e25f;  // its square is beyond float
    double exact = 0;
    for (float value : x) exact += double{value} * double{value};
    for (bool accumulate : {false, true})
      on_every_context(
          [&](exec::Context& context) {
            std::vector<double> out{12.5};
            kernel::cpu::square_sum(context, {.size = n, .x = x.data(), .out = out.data(), .accumulate = accumulate});
            return out;
          },
          [&](std::vector<double> const& out) { REQUIRE(close(out[0], exact + (accumulate ? 12.5 : 0), 1e-12)); });
  }
}
