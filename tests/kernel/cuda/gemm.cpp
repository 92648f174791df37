// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/blas.hpp> <tutti/kernel/cuda/gemm_rows.hpp>
#include <tutti/kernel/cuda/gemm.hpp>

#include "cuda/support.hpp"
#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using namespace tutti;
using kernel::Product;
using std::int64_t;
using test::OnDevice;

/// With a small workspace: what device memory costs the emulation grows with its size.
kernel::cuda::Blas& blas() {
  static kernel::cuda::Blas made(test::cuda_context(), {.workspace = 8192});
  return made;
}

double exact_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double exact_gelu_gradient(double x) {
  double const u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// Rows (or columns) with a gap that holds NaN between them.
template <class T>
struct Matrix {
  int64_t row = 1, column = 1;
  std::vector<T> data;
  Matrix(int64_t rows, int64_t columns, bool transposed, test::Random& random, int64_t gap) {
    int64_t const outer = transposed ? columns : rows, inner = transposed ? rows : columns;
    data.assign(test::length(outer * (inner + gap)), T(std::numeric_limits<float>::quiet_NaN()));
    (transposed ? column : row) = inner + gap;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) (*this)(i, j) = T(random.uniform());
  }
  T& operator()(int64_t i, int64_t j) { return data[test::length(i * row + j * column)]; }
  double at(int64_t i, int64_t j) const { return double(data[test::length(i * row + j * column)]); }
};

enum class Extras {
  plain,
  accumulate,
  bias,
  gelu_saved,
  bias_gelu,
  residual,
  residual_in_place,
  gradient,
  gradient_in_place,
  everything,
  sums,
};
constexpr Extras all_extras[] = {Extras::plain,    Extras::accumulate,        Extras::bias,     Extras::gelu_saved,
                                 Extras::bias_gelu, Extras::residual,          Extras::residual_in_place,
                                 Extras::gradient, Extras::gradient_in_place, Extras::everything, Extras::sums};

struct Shape {
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  int64_t gap = 8;  ///< 8 keeps 16-byte alignment of rows, 3 does not
};

template <class A, class B, class C>
void check(Shape s, Extras extras, Product product = Product::float32) {
  INFO("m " << s.m << " n " << s.n << " k " << s.k << " A" << (s.a_transposed ? "^T" : "") << " B"
            << (s.b_transposed ? "^T" : "") << " gap " << s.gap << " extras " << int(extras) << " bytes " << sizeof(A)
            << sizeof(B) << sizeof(C) << (product == Product::bfloat16 ? " rounded" : ""));
  constexpr bool narrow = std::is_same_v<C, bfloat16>;
  test::Random random(static_cast<std::uint64_t>(s.m * 7919 + s.n * 131 + s.k));
  Matrix<A> a(s.m, s.k, s.a_transposed, random, s.gap);
  Matrix<B> b(s.k, s.n, s.b_transposed, random, s.gap);
  Matrix<C> c(s.m, s.n, false, random, s.gap), residual(s.m, s.n, false, random, s.gap + 8), before(c);
  std::vector<float> const bias = random.floats(s.n);
  auto const row = c.row;
  bool const reads = extras == Extras::accumulate || extras == Extras::everything;
  bool const in_place = extras == Extras::residual_in_place || extras == Extras::gradient_in_place;
  if (!reads && !in_place)
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) c(i, j) = C(std::numeric_limits<float>::quiet_NaN());
  OnDevice<A> const on_a(a.data);
  OnDevice<B> const on_b(b.data);
  OnDevice<C> const on_c(c.data), on_saved(before.data), on_residual(residual.data), on_before(before.data),
      on_sums(std::vector<C>(test::length(s.m), C(std::numeric_limits<float>::quiet_NaN())));
  OnDevice<float> const on_bias(bias);
  kernel::Gemm g;
  g.m = s.m, g.n = s.n, g.k = s.k;
  g.a = on_a.data(), g.a_row = a.row, g.a_column = a.column, g.a_dtype = dtype_of<A>;
  g.b = on_b.data(), g.b_row = b.row, g.b_column = b.column, g.b_dtype = dtype_of<B>;
  g.c = on_c.data(), g.c_row = row, g.c_dtype = dtype_of<C>;
  g.product = product;
  g.alpha = extras == Extras::plain ? 1.0f : 0.75f;
  g.beta = reads ? -0.5f : 0.0f;
  kernel::GemmEpilogue& e = g.epilogue;
  kernel::cuda::GemmForms forms;
  bool const gelu = extras == Extras::gelu_saved || extras == Extras::bias_gelu || extras == Extras::everything;
  bool const saves = extras == Extras::gelu_saved || extras == Extras::everything;
  if (extras == Extras::bias || extras == Extras::bias_gelu || extras == Extras::everything) e.bias = on_bias.data();
  e.gelu = gelu;
  if (saves) e.saved = on_saved.data();
  if (extras == Extras::residual || extras == Extras::everything)
    e.residual = on_residual.data(), e.residual_stride = residual.row;
  if (extras == Extras::residual_in_place) e.residual = on_c.data(), e.residual_stride = row;
  if (extras == Extras::gradient) e.gelu_gradient = on_before.data();
  if (extras == Extras::gradient_in_place) e.gelu_gradient = on_c.data();
  if (extras == Extras::sums) forms.left_sums = on_sums.data();
  kernel::cuda::gemm(blas(), g, forms);
  Matrix<C> result(c), saved(c);
  result.data = on_c.read();
  saved.data = on_saved.read();
  std::vector<C> const sums = on_sums.read();

  bool const rounds = product == Product::bfloat16;
  auto const factor = [&](double x) { return rounds ? double(float(bfloat16(static_cast<float>(x)))) : x; };
  double const tolerance = test::tolerance(dtype_of<C>, DType::float32, s.k + 4) + (narrow && e.bias ? 0x1p-8 : 0);
  for (int64_t i = 0; i < s.m; ++i) {
    double left = 0;
    for (int64_t p = 0; p < s.k; ++p) left += a.at(i, p);
    if (extras == Extras::sums && !test::close(double(sums[test::length(i)]), left, tolerance, double(s.k))) {
      INFO("sum of row " << i << " is " << double(sums[test::length(i)]));
      REQUIRE(double(sums[test::length(i)]) == Approx(left));
    }
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0, scale = 1 + std::abs(before.at(i, j));
      for (int64_t p = 0; p < s.k; ++p) {
        double const term = factor(a.at(i, p)) * factor(b.at(p, j));
        sum += term, scale += std::abs(term);
      }
      double value = double(g.alpha) * sum + (reads ? double(g.beta) * before.at(i, j) : 0);
      if (e.bias != nullptr) value += double(bias[test::length(j)]);
      if (saves) REQUIRE(test::close(saved.at(i, j), value, tolerance, scale));
      if (gelu) value = exact_gelu(value);
      if (e.gelu_gradient != nullptr) value *= exact_gelu_gradient(before.at(i, j));
      if (e.residual != nullptr) value += extras == Extras::residual_in_place ? before.at(i, j) : residual.at(i, j);
      if (!test::close(result.at(i, j), value, tolerance, scale)) {
        INFO("at " << i << ", " << j);
        REQUIRE(result.at(i, j) == Approx(value));
      }
    }
    for (int64_t gap = 0; gap < s.gap; ++gap) REQUIRE(std::isnan(float(result(i, s.n + gap))));
  }
}

}  // namespace

TEST_CASE("gemm on devices equals the naive product in all four orientations") {
  for (int64_t m : {1, 5, 17})
    for (int64_t n : {1, 8, 33})
      for (int64_t k : {1, 16, 37})
        for (int form = 0; form < 4; ++form) {
          Shape const shape{m, n, k, (form & 1) != 0, (form & 2) != 0, k == 16 ? 8 : 3};
          check<float, float, float>(shape, Extras::plain);
          check<bfloat16, bfloat16, bfloat16>(shape, Extras::accumulate);
        }
}

TEST_CASE("gemm on devices applies every epilogue, by the library or by kernels of its own") {
  for (Extras extras : all_extras)
    for (int form = 0; form < 4; ++form)
      for (int64_t gap : {8, 3}) {
        Shape const shape{24, 40, 24, (form & 1) != 0, (form & 2) != 0, gap};
        check<float, float, float>(shape, extras);
        check<bfloat16, bfloat16, bfloat16>(shape, extras);
        check<bfloat16, bfloat16, float>(shape, extras);
      }
}

TEST_CASE("gemm on devices mixes types of operands as its contract says") {
  for (Product product : {Product::float32, Product::bfloat16})
    for (int form = 0; form < 4; ++form)
      for (Extras extras : {Extras::plain, Extras::everything}) {
        Shape const shape{10, 18, 24, (form & 1) != 0, (form & 2) != 0, 3};
        check<float, bfloat16, float>(shape, extras, product);
        check<bfloat16, float, bfloat16>(shape, extras, product);
        check<float, float, bfloat16>(shape, extras, product);
        check<float, float, float>(shape, extras, product);
      }
}

TEST_CASE("gemm on devices multiplies up to four rows by a kernel of its own, epilogue included") {
  for (int64_t m : {1, 2, 3, 4})
    for (int64_t k : {8, 256, 1288})
      for (Extras extras : all_extras) {
        if (extras == Extras::sums) continue;
        Shape const shape{m, 19, k, false, true, 8};
        check<bfloat16, bfloat16, bfloat16>(shape, extras);
        if (m > 1) continue;
        check<float, bfloat16, float>(shape, extras);
        check<float, float, bfloat16>(shape, extras, Product::bfloat16);
        check<bfloat16, float, float>(shape, extras);
      }
}

TEST_CASE("gemm on devices multiplies batches and doubles") {
  test::Random random(5);
  int64_t const batch = 3, m = 6, n = 7, k = 9;
  std::vector<float> const a = random.floats(batch * m * k), b = random.floats(k * n);
  OnDevice<float> const on_a(a), on_b(b), c(test::length(batch * m * n));
  kernel::Gemm g;
  g.m = m, g.n = n, g.k = k, g.a = on_a.data(), g.a_row = k, g.b = on_b.data(), g.b_row = n, g.c = c.data(),
  g.c_row = n;
  kernel::cuda::gemm(blas(), g, {.batch = batch, .a_batch = m * k, .b_batch = 0, .c_batch = m * n});
  std::vector<float> const result = c.read();
  std::vector<double> const wide_a(a.begin(), a.begin() + m * k), wide_b(b.begin(), b.end());
  OnDevice<double> const double_a(wide_a), double_b(wide_b), double_c(test::length(m * n));
  g.a = double_a.data(), g.b = double_b.data(), g.c = double_c.data();
  g.a_dtype = g.b_dtype = g.c_dtype = DType::float64, g.product = Product::float64;
  kernel::cuda::gemm(blas(), g);
  std::vector<double> const wide = double_c.read();
  for (int64_t which = 0; which < batch; ++which)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += double(a[test::length((which * m + i) * k + p)]) * double(b[test::length(p * n + j)]);
        REQUIRE(test::close(double(result[test::length((which * m + i) * n + j)]), sum, test::tolerance<float>(k),
                            double(k)));
        if (which == 0)
          REQUIRE(test::close(wide[test::length(i * n + j)], sum, test::tolerance<double>(k), double(k)));
      }
}

TEST_CASE("a product is planned once, and again where anything differs that plans depend on") {
  kernel::cuda::Context& context = test::cuda_context();
  for (bool autotune : {false, true}) {
    kernel::cuda::Blas own(context, {.autotune = autotune, .workspace = 8192});
    std::vector<float> const values(400, 1.0f);
    OnDevice<float> const a(values), b(values), c(values);
    kernel::Gemm g;
    g.m = 10, g.n = 10, g.k = 12, g.a = a.data(), g.a_row = 16, g.b = b.data(), g.b_row = 16, g.c = c.data(),
    g.c_row = 16;
    kernel::cuda::gemm(own, g);
    kernel::cuda::gemm(own, g);
    CHECK(own.plans() == 1);
    g.alpha = 3;
    kernel::cuda::gemm(own, g);
    CHECK(own.plans() == 1);
    g.beta = 1;
    kernel::cuda::gemm(own, g);
    CHECK(own.plans() == 2);
    g.a_row = 20;
    kernel::cuda::gemm(own, g);
    CHECK(own.plans() == 3);
    g.a = a.data() + 1;
    kernel::cuda::gemm(own, g);
    CHECK(own.plans() == 4);
    CHECK(c.read()[0] == 144);  // 12, the same, 36, and three times 36 more
  }
}

TEST_CASE("a product of nothing does nothing, and one of no terms scales") {
  OnDevice<float> const c(std::vector<float>{1, 2, 3, 4});
  kernel::Gemm g;
  g.c = c.data(), g.c_row = 2;
  kernel::cuda::gemm(blas(), g);
  g.m = 2, g.n = 2, g.beta = 0.5f;
  kernel::cuda::gemm(blas(), g);
  CHECK(c.read() == std::vector<float>{0.5f, 1, 1.5f, 2});
}

TEST_CASE("gemm on devices refuses what it cannot do") {
  OnDevice<float> const x(std::vector<float>(64, 0.0f));
  kernel::Gemm plain;
  plain.m = plain.n = plain.k = 5, plain.a = plain.b = x.data(), plain.a_row = plain.b_row = plain.c_row = 8;
  plain.c = x.data();
  auto const refused = [&](auto&& change, ErrorKind kind, char const* text) {
    kernel::Gemm g = plain;
    kernel::cuda::GemmForms forms;
    change(g, forms);
    REQUIRE_ERROR(kernel::cuda::gemm(blas(), g, forms), kind, text);
  };
  using G = kernel::Gemm&;
  using F = kernel::cuda::GemmForms&;
  refused([](G g, F) { g.product = Product::int8; }, ErrorKind::unavailable, "int8");
  refused([&](G g, F) { g.epilogue.row_scales = x.data(); }, ErrorKind::invalid_argument, "scales");
  refused([&](G g, F) { g.epilogue.row_sums = x.data(); }, ErrorKind::unavailable, "sums of rows");
  refused([&](G g, F) { g.epilogue.saved = x.data(); }, ErrorKind::invalid_argument, "Ask for gelu");
  refused([&](G g, F f) { g.epilogue.bias = x.data(), f.bias = x.data(); }, ErrorKind::invalid_argument, "two biases");
  refused([&](G g, F f) { g.epilogue.bias = x.data(), f.batch = 2; }, ErrorKind::invalid_argument, "no epilogue");
  refused([](G, F f) { f.batch = 0; }, ErrorKind::invalid_argument, "at least one");
  refused([](G g, F) { g.a_dtype = DType::int32; }, ErrorKind::invalid_argument, "float32 or bfloat16");
  refused([](G g, F) { g.product = Product::float64; }, ErrorKind::invalid_argument, "take and give float64");
  refused([](G g, F) { g.a_row = 8, g.a_column = 2; }, ErrorKind::invalid_argument, "strides 8 and 2");
  refused([](G g, F) { g.a_row = 3; }, ErrorKind::invalid_argument, "strides 3 and 1");
}
