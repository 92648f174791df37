// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/isa/levels.hpp>
#include <tutti/exec/processors.hpp>

// Covers: <tutti/exec/isa/levels.hpp>
#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY "exec/isa_body.inl"
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

inline void map(exec::Isa isa, int function, float const* x, float* y, int n) {
  TUTTI_DISPATCH_ALL(isa, map(function, x, y, n));
}
inline void reduce(exec::Isa isa, float const* x, float* out) { TUTTI_DISPATCH_ALL(isa, reduce(x, out)); }
inline void compare(exec::Isa isa, float const* a, float const* b, int n, float* out) {
  TUTTI_DISPATCH_ALL(isa, compare(a, b, n, out));
}
inline void integers(exec::Isa isa, std::int32_t const* a, std::int32_t const* b, int n, std::int32_t* out) {
  TUTTI_DISPATCH_ALL(isa, integers(a, b, n, out));
}
inline void dots(exec::Isa isa, std::int32_t const* a, std::int32_t const* b, int n, float* two, std::int32_t* four,
                 std::int32_t* small) {
  TUTTI_DISPATCH_ALL(isa, dots(a, b, n, two, four, small));
}
inline void bytes(exec::Isa isa, std::int8_t const* a, std::uint8_t const* b, int n, std::int32_t* wide,
                  std::int8_t* low, std::int32_t* two) {
  TUTTI_DISPATCH_ALL(isa, bytes(a, b, n, wide, low, two));
}
inline void doubles(exec::Isa isa, double const* a, double const* b, int n, double* out) {
  TUTTI_DISPATCH_ALL(isa, doubles(a, b, n, out));
}
inline void transpose(exec::Isa isa, double const* p, std::int64_t stride, int rows, double* out) {
  TUTTI_DISPATCH_ALL(isa, transpose(p, stride, rows, out));
}
inline int double_lanes(exec::Isa isa) { TUTTI_DISPATCH_ALL(isa, double_lanes()); }
inline void transpose(exec::Isa isa, float const* p, std::int64_t stride, int rows, float* out) {
  TUTTI_DISPATCH_ALL(isa, transpose(p, stride, rows, out));
}
inline void interleaving(exec::Isa isa, float const* x, float* even, float* odd, float* again) {
  TUTTI_DISPATCH_ALL(isa, interleaving(x, even, odd, again));
}
inline int lanes(exec::Isa isa) { TUTTI_DISPATCH_ALL(isa, lanes()); }
template <class T>
inline void round_trip(exec::Isa isa, float const* x, T* narrow, float* wide, int n) {
  TUTTI_DISPATCH_ALL(isa, round_trip(x, narrow, wide, n));
}

}  // namespace tutti::kernel::cpu

namespace {

using namespace tutti;
namespace cpu = tutti::kernel::cpu;

std::vector<exec::Isa> isas() {
  std::vector<exec::Isa> all;
  for (exec::Isa isa : exec::all_isas)
    if (exec::available(isa)) all.push_back(isa);
  return all;
}

float constexpr infinity = std::numeric_limits<float>::infinity();
float constexpr not_a_number = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Every 2^16 / `per_binade`-th float of both signs between the smallest subnormal and `largest`, and all special
/// values.
std::vector<float> samples(float largest, std::uint32_t step = 9973) {
  std::vector<float> all{0.0f, -0.0f, infinity, -infinity, not_a_number, -not_a_number,
                         1.0f, -1.0f, 0.625f,   -0.625f,   from_bits(1), from_bits(0x00800000)};
  for (std::uint32_t bits = 1; bits < 0x7f800000u && from_bits(bits) <= largest; bits += step) {
    all.push_back(from_bits(bits));
    all.push_back(-from_bits(bits));
  }
  return all;
}

/// Distance in units of the last place of the correctly rounded result, at the subnormal range's fixed spacing below.
double error_ulp(float value, double exact) {
  if (std::isnan(exact)) return std::isnan(value) ? 0 : 1e30;
  if (std::isinf(exact) || std::abs(exact) > 3.4028235677973366e38)
    return double(value) == (exact > 0 ? double(infinity) : -double(infinity)) ? 0 : 1e30;
  if (!std::isfinite(value)) return std::abs(exact) > 3.402823e38 ? 0 : 1e30;
  // From the bits, because the exhaustive test measures billions: 1 / spacing is a power of two.
  auto const exponent = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(exact) >> 52 & 0x7ff) - 1023;
  auto const inverse = static_cast<std::uint64_t>(1023 + std::min<std::int64_t>(23 - exponent, 149)) << 52;
  return std::abs(double(value) - exact) * std::bit_cast<double>(inverse);
}

struct Function {
  char const* name;
  double (*exact)(double);
  double ulp, absolute;
  float largest;
};
double exact_logistic(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_argument(double x) { return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
double exact_gelu(double x) {
  if (x == -HUGE_VAL) return -0.0;
  return x * exact_logistic(gelu_argument(x));
}
double exact_gelu_gradient(double x) {
  if (std::abs(x) > 100) return x > 0 ? 1 : 0;
  double const s = exact_logistic(gelu_argument(x));
  return s + x * s * (1 - s) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
double exact_silu_gradient(double x) {
  if (std::abs(x) > 1000) return x > 0 ? 1 : 0;
  return exact_logistic(x) * (1 + x * exact_logistic(-x));
}
/// In the order of `apply` in isa_body.inl, with the bounds that math.inl promises.
Function const functions[] = {
    {"exp", [](double x) { return std::exp(x); }, 2, 0, infinity},
    {"log", [](double x) { return std::log(x); }, 1, 0, infinity},
    {"tanh", [](double x) { return std::tanh(x); }, 2, 0, infinity},
    {"logistic", exact_logistic, 4, 3e-39, infinity},
    {"gelu", exact_gelu, 4, 1e-7, infinity},
    {"gelu_gradient", exact_gelu_gradient, 4, 1e-7, infinity},
    {"sin", [](double x) { return std::sin(x); }, 4, 3e-11, infinity},
    {"cos", [](double x) { return std::cos(x); }, 4, 3e-11, infinity},
    {"silu", [](double x) { return x == -HUGE_VAL ? -0.0 : x * exact_logistic(x); }, 4, 1e-43, infinity},
    {"silu_gradient", exact_silu_gradient, 4, 1e-7, infinity},
};
int const function_count = static_cast<int>(std::size(functions));

/// The largest error in ulp among results that are not within the absolute bound, and where it is.
struct Worst {
  double error = 0;
  float at = 0;

  void add(Function const& function, float x, float y, double exact) {
    if (error >= 0.5 && y == static_cast<float>(exact)) return;  // rounded correctly: no need to measure
    double const e = error_ulp(y, exact);
    if (e > error && (e <= function.ulp || !(std::abs(double(y) - exact) <= function.absolute))) error = e, at = x;
  }
};

/// All floats whose bits are in [begin, end), through every instruction set that has functions of its own.
void measure(int f, std::uint64_t begin, std::uint64_t end, std::vector<exec::Isa> const& levels, Worst* worst) {
  constexpr std::uint64_t block = 4096;
  std::vector<float> x(block), y(block);
  std::vector<double> exact(block);
  for (std::uint64_t first = begin; first < end; first += block) {
    for (std::uint64_t i = 0; i < block; ++i) {
      x[i] = from_bits(static_cast<std::uint32_t>(first + i));
      exact[i] = functions[f].exact(double(x[i]));
    }
    for (std::size_t level = 0; level < levels.size(); ++level) {
      cpu::map(levels[level], f, x.data(), y.data(), static_cast<int>(block));
      for (std::uint64_t i = 0; i < block; ++i) worst[level].add(functions[f], x[i], y[i], exact[i]);
    }
  }
}

}  // namespace

TEST_CASE("elementary functions stay within their bounds over the whole range, for every instruction set") {
  for (exec::Isa isa : isas())
    for (int f = 0; f < function_count; ++f) {
      Function const& function = functions[f];
      std::vector<float> const x = samples(function.largest);
      std::vector<float> y(x.size());
      cpu::map(isa, f, x.data(), y.data(), static_cast<int>(x.size()));
      Worst worst;
      for (std::size_t i = 0; i < x.size(); ++i) worst.add(function, x[i], y[i], function.exact(double(x[i])));
      INFO(exec::name(isa) << " " << function.name << " is off by " << worst.error << " ulp at " << worst.at);
      CHECK(worst.error <= function.ulp);
    }
}

// By hand, minutes for each function:  build/tests/test_exec "[exhaustive]" -c silu
TEST_CASE("elementary functions stay within their bounds for every float there is", "[.exhaustive]") {
  std::vector<exec::Isa> levels;  // the highest has the functions of the one below it
  for (exec::Isa isa : isas())
    if (isa != exec::Isa::avx512_bf16) levels.push_back(isa);
  for (int f = 0; f < function_count; ++f)
    SECTION(functions[f].name) {
      std::vector<std::vector<Worst>> parts(
          static_cast<std::size_t>(exec::available_processors()), std::vector<Worst>(levels.size()));
      std::uint64_t const size = (std::uint64_t{1} << 32) / 4096 / parts.size() * 4096;
      std::vector<std::thread> threads;
      for (std::size_t part = 0; part < parts.size(); ++part)
        threads.emplace_back([&, f, part] {
          std::uint64_t const end = part + 1 == parts.size() ? std::uint64_t{1} << 32 : (part + 1) * size;
          measure(f, part * size, end, levels, parts[part].data());
        });
      for (std::thread& thread : threads) thread.join();
      for (std::size_t level = 0; level < levels.size(); ++level) {
        Worst worst;
        for (auto const& part : parts)
          if (part[level].error > worst.error) worst = part[level];
        WARN(exec::name(levels[level]) << " " << functions[f].name << ": at most " << worst.error << " ulp, at "
                                       << worst.at);
        CHECK(worst.error <= functions[f].ulp);
      }
    }
}

TEST_CASE("exp is within 2 ulp densely where its results are subnormal, and exact at the ends") {
  for (exec::Isa isa : isas()) {
    std::vector<float> x, y;
    for (float v = -110; v < -80; v += 0.000487f) x.push_back(v);
    for (float v = 88; v < 90; v += 0.0001f) x.push_back(v);
    for (float v = -1; v < 1; v += 0.00002f) x.push_back(v);
    y.resize(x.size());
    cpu::map(isa, 0, x.data(), y.data(), static_cast<int>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, error_ulp(y[i], std::exp(double(x[i]))));
    INFO(exec::name(isa));
    CHECK(worst <= 2);
    float const ends[] = {-infinity, -1000, -104, 0, -0.0f, 89, 1000, infinity, not_a_number};
    float out[9];
    cpu::map(isa, 0, ends, out, 9);
    for (int i = 0; i < 3; ++i) CHECK(out[i] == 0);
    CHECK(out[3] == 1);
    CHECK(out[4] == 1);
    for (int i = 5; i < 8; ++i) CHECK(out[i] == infinity);
    CHECK(std::isnan(out[8]));
  }
}

TEST_CASE("horizontal sums, maxima and minima cover every lane") {
  for (exec::Isa isa : isas()) {
    int const lanes = cpu::lanes(isa);
    for (int special = 0; special < lanes; ++special) {
      std::vector<float> x(16, 1.0f);
      x[static_cast<std::size_t>(special)] = 5;
      float out[3];
      cpu::reduce(isa, x.data(), out);
      CHECK(out[0] == static_cast<float>(lanes + 4));
      CHECK(out[1] == 5);
      CHECK(out[2] == (lanes == 1 ? 5 : 1));
      x[static_cast<std::size_t>(special)] = -5;
      cpu::reduce(isa, x.data(), out);
      CHECK(out[2] == -5);
    }
  }
}

TEST_CASE("comparisons, selections, extremes and signs agree with the language, NaN included") {
  float const values[] = {0, -0.0f, 1, -1, 2.5f, infinity, -infinity, not_a_number};
  for (exec::Isa isa : isas()) {
    std::vector<float> a, b;
    for (float x : values)
      for (float y : values) a.push_back(x), b.push_back(y);
    int const n = static_cast<int>(a.size());
    std::vector<float> out(a.size() * 9);
    cpu::compare(isa, a.data(), b.data(), n, out.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      float const* const o = out.data() + 9 * i;
      INFO(exec::name(isa) << " " << a[i] << " " << b[i]);
      CHECK(o[0] == (a[i] < b[i] ? 1.0f : 2.0f));
      CHECK(o[1] == (a[i] <= b[i] ? 1.0f : 2.0f));
      CHECK(o[2] == (a[i] == b[i] ? 1.0f : 2.0f));
      CHECK(o[3] == (a[i] != b[i] ? 1.0f : 2.0f));
      CHECK(test::ulps(o[4], a[i] < b[i] ? a[i] : b[i]) == 0);
      CHECK(test::ulps(o[5], a[i] > b[i] ? a[i] : b[i]) == 0);
      CHECK(test::ulps(o[6], std::copysign(a[i], b[i])) == 0);
      CHECK(test::ulps(o[7], std::sqrt(std::abs(a[i]))) == 0);
      CHECK(test::ulps(o[8], -a[i]) == 0);
    }
  }
}

TEST_CASE("integer lanes wrap, shift and convert alike on every instruction set") {
  std::vector<std::int32_t> a, b;
  for (std::int32_t x : {0, 1, -1, 7, -8, 0x7fffffff, -0x7fffffff - 1, 0x3f800000, 123456789})
    for (std::int32_t y : {0, 1, -1, 31, 0x00ff00ff, 0x7fffffff}) a.push_back(x), b.push_back(y);
  int const n = static_cast<int>(a.size());
  for (exec::Isa isa : isas()) {
    std::vector<std::int32_t> out(a.size() * 9);
    cpu::integers(isa, a.data(), b.data(), n, out.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      std::int32_t const* const o = out.data() + 9 * i;
      auto const ua = static_cast<std::uint32_t>(a[i]), ub = static_cast<std::uint32_t>(b[i]);
      INFO(exec::name(isa) << " " << a[i] << " " << b[i]);
      CHECK(static_cast<std::uint32_t>(o[0]) == ua + ub);
      CHECK(static_cast<std::uint32_t>(o[1]) == ua - ub);
      CHECK(static_cast<std::uint32_t>(o[2]) == ua * ub);
      CHECK(static_cast<std::uint32_t>(o[3]) == (ua ^ (ua & ub)));
      CHECK(static_cast<std::uint32_t>(o[4]) == ua << 3);
      CHECK(o[5] == a[i] >> 3);
      CHECK(static_cast<std::uint32_t>(o[6]) == ua >> 3);
      CHECK(o[7] == (a[i] < b[i] ? a[i] : b[i]));
      CHECK(o[8] == static_cast<std::int32_t>(std::lrint(static_cast<float>(b[i] >> 8))));
    }
  }
}

TEST_CASE("bfloat16 and float16 are stored and loaded as the scalar types do, in whole and partial vectors") {
  std::vector<float> x = samples(infinity, 31013);
  for (float v : {65504.0f, 65519.0f, 65520.0f, 1.0f / 3, 3.3895314e38f, 3.4e38f}) x.push_back(v);
  for (std::uint32_t low : {0x8000u, 0x18000u, 0x7fffu, 0x8001u}) x.push_back(from_bits(0x3f800000u + low));
  for (exec::Isa isa : isas())
    for (std::size_t n : {x.size(), std::size_t{1}, std::size_t{7}, std::size_t{13}}) {
      std::vector<bfloat16> b(n + 1, bfloat16::from_bits(0x1234));
      std::vector<float16> h(n + 1, float16::from_bits(0x1234));
      std::vector<float> wide_b(n), wide_h(n);
      cpu::round_trip(isa, x.data(), b.data(), wide_b.data(), static_cast<int>(n));
      cpu::round_trip(isa, x.data(), h.data(), wide_h.data(), static_cast<int>(n));
      INFO(exec::name(isa));
      bool right = b[n].bits == 0x1234 && h[n].bits == 0x1234;
      for (std::size_t i = 0; i < n; ++i) {
        right = right && b[i].bits == bfloat16(x[i]).bits && test::ulps(wide_b[i], float(b[i])) == 0;
        right = right && h[i].bits == float16(x[i]).bits && test::ulps(wide_h[i], float(h[i])) == 0;
      }
      CHECK(right);
    }
}

TEST_CASE("dot2 sums products of bfloat16 pairs, dot4 products of bytes exactly") {
  std::vector<std::int32_t> a, b;
  std::uint32_t state = 12345;
  for (int i = 0; i < 64; ++i) {
    state = state * 1664525u + 1013904223u;
    a.push_back(static_cast<std::int32_t>(state));
    state = state * 1664525u + 1013904223u;
    b.push_back(static_cast<std::int32_t>(state));
  }
  for (std::int32_t extreme : {-1, 0x7f7f7f7f, static_cast<std::int32_t>(0x80808080u)})
    a[static_cast<std::size_t>(extreme & 31)] = -1, b[static_cast<std::size_t>(extreme & 31)] = extreme;
  std::vector<std::int32_t> pairs_a, pairs_b;
  for (int i = 0; i < 64; ++i) {
    auto const pair = [](float low, float high) {
      return static_cast<std::int32_t>(std::uint32_t{bfloat16(low).bits} | std::uint32_t{bfloat16(high).bits} << 16);
    };
    pairs_a.push_back(pair(0.25f * static_cast<float>(i - 20), 1.5f));
    pairs_b.push_back(pair(2.0f, static_cast<float>(i)));
  }
  for (exec::Isa isa : isas()) {
    std::vector<float> two(64);
    std::vector<std::int32_t> four(64), small(64), unused(64);
    std::vector<float> unused_two(64);
    cpu::dots(isa, pairs_a.data(), pairs_b.data(), 64, two.data(), unused.data(), unused.data());
    cpu::dots(isa, a.data(), b.data(), 64, unused_two.data(), four.data(), small.data());
    for (std::size_t i = 0; i < 64; ++i) {
      INFO(exec::name(isa) << " lane " << i);
      CHECK(two[i] == 1.0f + 0.5f * (static_cast<float>(i) - 20) + 1.5f * static_cast<float>(i));
      std::int32_t sum = 1, low = 1;
      for (int byte = 0; byte < 4; ++byte) {
        auto const left = static_cast<std::int32_t>((static_cast<std::uint32_t>(a[i]) >> (8 * byte)) & 0xff);
        auto const right = static_cast<std::int8_t>((static_cast<std::uint32_t>(b[i]) >> (8 * byte)) & 0xff);
        sum += left * right;
        low += 2 * (left & 0x3f) * right;
      }
      CHECK(four[i] == sum);
      CHECK(small[i] == low);
    }
  }
}

TEST_CASE("bytes are widened with and without their sign and stored as their low bits, in whole and partial vectors") {
  for (exec::Isa isa : isas())
    for (int n : {1, 3, 7, 8, 16, 21, 256}) {
      std::vector<std::int8_t> a, low(static_cast<std::size_t>(n + 1), 77);
      std::vector<std::uint8_t> b;
      for (int i = 0; i < n; ++i)
        a.push_back(static_cast<std::int8_t>(i * 89 - 128)), b.push_back(static_cast<std::uint8_t>(255 - i * 37));
      std::vector<std::int32_t> wide(static_cast<std::size_t>(n)), two(static_cast<std::size_t>(n));
      cpu::bytes(isa, a.data(), b.data(), n, wide.data(), low.data(), two.data());
      INFO(exec::name(isa) << " n " << n);
      bool right = low.back() == 77;
      for (std::size_t i = 0; i < a.size(); ++i) {
        std::int32_t const mixed = 1000 * a[i] + b[i];
        right = right && wide[i] == mixed && low[i] == static_cast<std::int8_t>(mixed) &&
                two[i] == b[i] + a[i] * a[i] + b[i] * b[i];
      }
      CHECK(right);
    }
}

TEST_CASE("vectors of doubles are loaded, multiplied, stored and transposed") {
  for (exec::Isa isa : isas()) {
    INFO(exec::name(isa));
    for (int n : {1, 3, 8, 13}) {
      std::vector<double> a, b, out(static_cast<std::size_t>(n + 1), -7);
      for (int i = 0; i < n; ++i) a.push_back(1 + 0.25 * i), b.push_back(1e10 - i);
      cpu::doubles(isa, a.data(), b.data(), n, out.data());
      for (std::size_t i = 0; i < a.size(); ++i) CHECK(out[i] == a[i] * b[i] + 0.5 * b[i]);
      CHECK(out.back() == -7);
    }
    std::vector<double> p(8 * 7), out(32);
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<double>(i);
    int const lanes = cpu::double_lanes(isa);
    for (int rows = 1; rows <= lanes; ++rows) {
      cpu::transpose(isa, p.data(), 7, rows, out.data());
      for (int c = 0; c < 4; ++c)
        for (int r = 0; r < lanes; ++r)
          CHECK(out[static_cast<std::size_t>(c * lanes + r)] ==
                p[static_cast<std::size_t>(std::min(r, rows - 1) * 7 + c)]);
    }
  }
}

TEST_CASE("load_transposed turns four columns into vectors and repeats the last row") {
  std::vector<float> p(16 * 7);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i);
  for (exec::Isa isa : isas())
    for (int rows = 1; rows <= cpu::lanes(isa); ++rows) {
      std::vector<float> out(64);
      cpu::transpose(isa, p.data(), 7, rows, out.data());
      for (int c = 0; c < 4; ++c)
        for (int r = 0; r < cpu::lanes(isa); ++r)
          CHECK(out[static_cast<std::size_t>(c * cpu::lanes(isa) + r)] ==
                p[static_cast<std::size_t>(std::min(r, rows - 1) * 7 + c)]);
    }
}

TEST_CASE("deinterleave parts even from odd elements, and interleave puts them together") {
  for (exec::Isa isa : isas()) {
    std::size_t const lanes = static_cast<std::size_t>(cpu::lanes(isa));
    std::vector<float> x(2 * lanes), even(lanes), odd(lanes), again(2 * lanes);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 0.5f;
    cpu::interleaving(isa, x.data(), even.data(), odd.data(), again.data());
    INFO(exec::name(isa));
    for (std::size_t i = 0; i < lanes; ++i) {
      CHECK(even[i] == x[2 * i]);
      CHECK(odd[i] == x[2 * i + 1]);
    }
    CHECK(again == x);
  }
}

TEST_CASE("the environment names an instruction set, and a wrong name is a clear error") {
  char const* const before = std::getenv("TUTTI_ISA");
  std::string const kept = before == nullptr ? "" : before;
  ::setenv("TUTTI_ISA", "scalar", 1);
  CHECK(exec::isa_from_environment() == exec::Isa::scalar);
  ::setenv("TUTTI_ISA", "sse9", 1);
  REQUIRE_ERROR(exec::isa_from_environment(), ErrorKind::configuration, "sse9");
  ::setenv("TUTTI_ISA", "", 1);
  CHECK(exec::isa_from_environment() == exec::best_isa());
  if (before == nullptr)
    ::unsetenv("TUTTI_ISA");
  else
    ::setenv("TUTTI_ISA", kept.c_str(), 1);
}
