// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/row_product.hpp> <tutti/kernel/cuda/next_token.hpp>
#include <tutti/kernel/cuda/attention.hpp>
#include <tutti/kernel/cuda/row_product.hpp>

#include "kernel/cuda/support.hpp"
#include "kernel/norm_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::kernel::cuda;

namespace {

struct Sizes {
  std::int64_t n, k;
};
/// One column and one access; columns and accesses left over; rows divided among two, four and eight warps, in a round
/// and in several; rows too long for what is under way at once; more columns than blocks take in one round.
std::vector<Sizes> const sizes{{1, 8},    {5, 24},    {50, 264},  {9, 520},   {66, 1032},
                               {600, 776}, {3, 8200}, {530, 1536}, {4300, 8}, {1100, 1536}};

/// sum over i of x[i] * weights[j, i], and the same of magnitudes.
struct Products {
  std::vector<double> exact, magnitudes;

  Products(std::vector<double> const& x, std::vector<float> const& weights, Sizes const& s) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < s.k; ++i) {
        double const term = x[length(i)] * double{weights[length(j * s.k + i)]};
        sum += term;
        magnitude += std::abs(term);
      }
      exact.push_back(sum);
      magnitudes.push_back(magnitude);
    }
  }
};
void require_products(std::vector<float> const& values, Products const& products, std::vector<double> const& exact,
                      std::int64_t k) {
  REQUIRE(values.size() == exact.size());
  double const u = tolerance<float>(k);
  for (std::size_t j = 0; j < exact.size(); ++j)
    if (!(std::abs(double{values[j]} - exact[j]) <= u * (products.magnitudes[j] + 1 + std::abs(exact[j]))))
      FAIL("column " << j << " is " << values[j] << " and not " << exact[j]);
}
std::vector<double> wide(std::vector<float> const& values) { return {values.begin(), values.end()}; }
double exact_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

}  // namespace

TEMPLATE_TEST_CASE("one row times a matrix, with bias, GELU and residual in place", "", float, bfloat16) {
  for (Sizes const& s : sizes) {
    CAPTURE(s.n, s.k);
    Random random(static_cast<std::uint64_t>(s.n * 7 + s.k));
    auto const x = random.floats(s.k), weights = as_stored<TestType>(random.floats(s.n * s.k)),
               bias = random.floats(s.n), residual = random.floats(s.n);
    Products const products(wide(x), weights, s);
    OnDevice const on_x(x), on_bias(bias), on_y(residual);
    OnDevice const on_weights(rounded<TestType>(weights));
    OnDevice<float> const plain(length(s.n));
    auto const run = [&](ToRow const& to) {
      row_product(cuda_context(), s.n, s.k, on_weights.data(), PlainRow{.x = on_x.data()}, to);
    };
    run({.y = plain.data()});
    auto const first = plain.read();
    require_products(first, products, products.exact, s.k);
    run({.y = on_y.data(), .bias = on_bias.data(), .residual = on_y.data(), .gelu = true});
    std::vector<double> exact = products.exact;
    for (std::size_t j = 0; j < exact.size(); ++j)
      exact[j] = exact_gelu(exact[j] + double{bias[j]}) + double{residual[j]};
    require_products(on_y.read(), products, exact, s.k);
    run({.y = plain.data()});
    CHECK(bits_equal(plain.read(), first));
  }
}

TEMPLATE_TEST_CASE("one row is normalised in front of its product, from float and from bfloat16", "", float, bfloat16) {
  for (Sizes const& s : {Sizes{5, 8}, Sizes{12, 24}, Sizes{3, 768}, Sizes{2, 1600}, Sizes{2, 3456}}) {
    CAPTURE(s.n, s.k);
    Random random(static_cast<std::uint64_t>(s.n * 11 + s.k));
    auto const x = as_stored<bfloat16>(random.floats(s.k, 2, 0.5f)), gamma = random.floats(s.k),
               beta = random.floats(s.k), weights = as_stored<TestType>(random.floats(s.n * s.k));
    Products const products(layer_norm_oracle(x, gamma, beta, 1, s.k, 1e-5).y, weights, s);
    OnDevice const on_x(x), on_gamma(gamma), on_beta(beta);
    OnDevice const narrow_x(rounded<bfloat16>(x));
    OnDevice const on_weights(rounded<TestType>(weights));
    OnDevice<float> const y(length(s.n));
    row_product(cuda_context(), s.n, s.k, on_weights.data(),
                NormedRow<float>{.x = on_x.data(), .gamma = on_gamma.data(), .beta = on_beta.data(), .eps = 1e-5f},
                ToRow{.y = y.data()});
    auto const from_float = y.read();
    require_products(from_float, products, products.exact, 8 * s.k);
    row_product(
        cuda_context(), s.n, s.k, on_weights.data(),
        NormedRow<bfloat16>{.x = narrow_x.data(), .gamma = on_gamma.data(), .beta = on_beta.data(), .eps = 1e-5f},
        ToRow{.y = y.data()});
    CHECK(bits_equal(y.read(), from_float));
  }
}

TEMPLATE_TEST_CASE("Q, K and V of one position: into the cache, attention in parts, joined in front of a product", "",
                   float, bfloat16) {
  std::int64_t const heads = 3, size = 16, c = heads * size, capacity = 150;
  for (std::int64_t filled : {1, 64, 65, 150}) {
    CAPTURE(filled);
    Random random(static_cast<std::uint64_t>(filled));
    auto const cache = as_stored<TestType>(random.floats(2 * c * capacity)), x = random.floats(c),
               weights = as_stored<TestType>(random.floats(3 * c * c, 0.3f)), bias = random.floats(3 * c),
               out_weights = as_stored<TestType>(random.floats(c * c));
    OnDevice const on_cache(rounded<TestType>(cache));
    OnDevice const on_weights(rounded<TestType>(weights)), on_out(rounded<TestType>(out_weights));
    OnDevice const on_x(x), on_bias(bias);
    OnDevice<TestType> const q(length(c));
    OnDevice const on_length(std::vector<std::int32_t>{static_cast<std::int32_t>(filled)});
    TestType* const keys = on_cache.data();
    TestType* const values = keys + c * capacity;
    row_product(cuda_context(), 3 * c, c, on_weights.data(), PlainRow{.x = on_x.data()},
                ToCache<TestType>{.bias = on_bias.data(),
                                  .q = q.data(),
                                  .keys = keys,
                                  .values = values,
                                  .length = on_length.data(),
                                  .channels = static_cast<int>(c),
                                  .head_size = static_cast<int>(size),
                                  .capacity = static_cast<int>(capacity)});
    Products const products(wide(x), weights, {3 * c, c});
    auto const now = widened(on_cache.read()), query = widened(q.read());
    double const u = tolerance<float>(c) + unit_roundoff(dtype_of<TestType>);
    for (std::int64_t which = 0; which < 2; ++which)
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t at = 0; at < capacity; ++at)
          for (std::int64_t d = 0; d < size; ++d) {
            std::size_t const place = length(((which * heads + head) * capacity + at) * size + d);
            std::size_t const column = length((which + 1) * c + head * size + d);
            if (at != filled - 1) {
              if (now[place] != cache[place]) FAIL("position " << at << " was written");
            } else if (double const exact = products.exact[column] + double{bias[column]};
                       !(std::abs(double{now[place]} - exact) <= u * (products.magnitudes[column] + 1))) {
              FAIL("column " << column << " is " << now[place] << " and not " << exact);
            }
          }
    for (std::size_t j = 0; j < query.size(); ++j)
      CHECK(std::abs(double{query[j]} - products.exact[j] - double{bias[j]}) <= u * (products.magnitudes[j] + 1));

    AttentionParts const cut(cuda_context(), heads, capacity);
    CHECK(cut.count == 3);
    OnDevice<float> const parts(length(cut.size(heads, size))), y(length(c));
    attention_decode_parts(cuda_context(),
                           kernel::AttentionDecodeOf<TestType>{.batch = 1,
                                                               .capacity = capacity,
                                                               .heads = heads,
                                                               .head_size = size,
                                                               .scale = 0.25f,
                                                               .q = q.data(),
                                                               .q_stride = c,
                                                               .keys = keys,
                                                               .values = values},
                           on_length.data(), cut, parts.data());
    row_product(cuda_context(), c, c, on_out.data(),
                JoinedRow{.parts = parts.data(),
                          .length = on_length.data(),
                          .head_size = static_cast<int>(size),
                          .count = static_cast<int>(cut.count),
                          .part = static_cast<int>(cut.length)},
                ToRow{.y = y.data()});
    std::vector<double> mixed(length(c));
    for (std::int64_t head = 0; head < heads; ++head) {
      std::vector<double> p(length(filled));
      double most = -INFINITY, mass = 0;
      for (std::int64_t at = 0; at < filled; ++at) {
        for (std::int64_t d = 0; d < size; ++d)
          p[length(at)] += 0.25 * double{query[length(head * size + d)]} *
                           double{now[length((head * capacity + at) * size + d)]};
        most = std::max(most, p[length(at)]);
      }
      for (double& each : p) mass += each = std::exp(each - most);
      for (std::int64_t at = 0; at < filled; ++at)
        for (std::int64_t d = 0; d < size; ++d)
          mixed[length(head * size + d)] +=
              p[length(at)] / mass * double{now[length(((heads + head) * capacity + at) * size + d)]};
    }
    Products const joined(mixed, out_weights, {c, c});
    require_products(y.read(), joined, joined.exact, 40 * c);
  }
}

TEST_CASE("the likeliest of the columns is the same in any order: the lowest of equals, none that is not finite") {
  std::int64_t const n = 1000, k = 8;
  float const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(8), weights(length(n * k)), table(length(n * k));
  x[0] = 1;
  Random random(5);
  table = random.floats(n * k);
  auto const positions = random.floats(10 * k);
  auto const logit = [&](std::int64_t column) -> float& { return weights[length(column * k)]; };
  for (std::int64_t j = 0; j < n; ++j) logit(j) = static_cast<float>(j % 37) - 50;
  logit(3) = nan, logit(4) = infinity, logit(5) = -infinity;
  int const candidates = row_product_blocks<float>(n, k);
  OnDevice const on_x(x), on_table(table), on_positions(positions);
  OnDevice<Likeliest> const likeliest(length(candidates));
  OnDevice<float> const logits(length(n)), embedded(8);
  OnDevice const sequence(std::vector<Sequence>{{2, -1}});
  OnDevice const text(std::vector<std::int32_t>(10, 77));
  auto const next = [&] {
    OnDevice const on_weights(weights);
    row_product(cuda_context(), n, k, on_weights.data(), PlainRow{.x = on_x.data()},
                ToLogits{.logits = logits.data(), .likeliest = likeliest.data()});
    next_token(cuda_context(), NextToken<float>{.channels = k,
                                                .vocabulary = n,
                                                .candidates = candidates,
                                                .table = on_table.data(),
                                                .positions = on_positions.data(),
                                                .likeliest = likeliest.data(),
                                                .sequence = sequence.data(),
                                                .text = text.data(),
                                                .x = embedded.data()});
  };
  auto const embedding = [&](std::int64_t token, std::int64_t position) {
    std::vector<float> sum;
    for (std::int64_t i = 0; i < k; ++i)
      sum.push_back(table[length(token * k + i)] + positions[length(position * k + i)]);
    return sum;
  };
  next();
  CHECK(embedded.read() == embedding(36, 2));
  auto const seen = logits.read();
  CHECK(seen[37] == -50);
  CHECK(std::isnan(seen[3]));
  logit(999) = 0, logit(555) = 0;
  next();
  CHECK(embedded.read() == embedding(555, 3));
  for (std::int64_t j = 0; j < n; ++j) logit(j) = nan;
  next();
  CHECK(embedded.read() == std::vector<float>(8));
  CHECK(text.read() == std::vector<std::int32_t>{77, 77, 36, 555, -1, 77, 77, 77, 77, 77});
  auto const after = sequence.read();
  CHECK(after[0].length == 5);
  CHECK(after[0].token == -1);
}

TEMPLATE_TEST_CASE("a token that the host wants goes before the likeliest one", "", float, bfloat16) {
  std::int64_t const c = 24;
  Random random(9);
  auto const table = as_stored<TestType>(random.floats(5 * c)), positions = as_stored<TestType>(random.floats(4 * c));
  OnDevice const on_table(rounded<TestType>(table)), on_positions(rounded<TestType>(positions));
  OnDevice const likeliest(std::vector<Likeliest>{{1.0f, 2}});
  OnDevice const sequence(std::vector<Sequence>{{3, 4}});
  OnDevice const text(std::vector<std::int32_t>(4, 77));
  OnDevice<float> const x(length(c));
  next_token(cuda_context(), NextToken<TestType>{.channels = c,
                                                 .vocabulary = 5,
                                                 .candidates = 1,
                                                 .table = on_table.data(),
                                                 .positions = on_positions.data(),
                                                 .likeliest = likeliest.data(),
                                                 .sequence = sequence.data(),
                                                 .text = text.data(),
                                                 .x = x.data()});
  auto const embedded = x.read();
  for (std::size_t i = 0; i < embedded.size(); ++i)
    CHECK(embedded[i] == table[4 * length(c) + i] + positions[3 * length(c) + i]);
  CHECK(text.read()[3] == 4);
  CHECK(sequence.read()[0].length == 4);
  CHECK(sequence.read()[0].token == -1);
}
