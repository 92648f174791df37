// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/attention.hpp>

#include "kernel/attention_oracle.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;
using Case = test::AttentionCase;
using test::largest;

float const poison = std::numeric_limits<float>::quiet_NaN();

void check(Case s, float spread = 1) {
  bool const rounded = s.product == kernel::Product::bfloat16;
  INFO("batch " << s.batch << " tokens " << s.tokens << " heads " << s.heads << " sharing " << s.kv() << " head size "
                << s.head_size << (rounded ? " in bfloat16" : ""));
  int64_t const c = s.channels(), rows = s.batch * s.tokens, row = s.row();
  test::Random random(static_cast<std::uint64_t>(s.tokens * 31 + c));
  std::vector<float> qkv = random.floats(rows * row, spread), dout = random.floats(rows * c);
  if (rounded)  // then only probabilities and the gradient of scores are rounded
    for (auto* values : {&qkv, &dout})
      for (float& value : *values) value = float(bfloat16(value));
  float const scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  test::AttentionOracle const oracle(s, double(scale), qkv, dout);
  double const terms = test::tolerance<float>(s.tokens + s.head_size + 16);
  test::on_every_context(
      [&](exec::Context& context) {
        // out, lse, dqkv, one after the other; poisoned, since every element must be written.
        std::vector<float> all(test::length(rows * c + rows * s.heads + rows * row), poison);
        float* const out = all.data();
        float* const lse = out + rows * c;
        float* const dqkv = lse + rows * s.heads;
        kernel::Attention forward{s.batch, s.tokens, s.heads, s.head_size, scale, qkv.data(), out, lse, s.kv_heads,
                                  s.product};
        kernel::cpu::attention(context, forward);
        kernel::cpu::attention_gradient(context, {s.batch, s.tokens, s.heads, s.head_size, scale, dout.data(),
                                                  qkv.data(), out, lse, dqkv, s.kv_heads, s.product});
        std::vector<float> without(test::length(rows * c), poison);
        forward.out = without.data();
        forward.lse = nullptr;
        kernel::cpu::attention(context, forward);
        REQUIRE(std::equal(without.begin(), without.end(), out));
        return all;
      },
      [&](std::vector<float> const& all) {
        // Scores are sums of head_size products of up to spread^2; their error appears relative in the probabilities.
        double const score = double(spread * spread) * std::sqrt(static_cast<double>(s.head_size));
        // A rounded factor is off by 2^-9 of itself; several such terms of either sign make up a gradient.
        double const rounding = rounded ? std::ldexp(1.0, -9) : 0;
        float const* const out = all.data();
        test::require_close(out, oracle.out, terms * (1 + score) + rounding, double(spread), "out");
        test::require_close(out + rows * c, oracle.lse, terms, 1 + score, "lse");
        test::require_close(out + rows * c + rows * s.heads, oracle.dqkv, terms * (1 + score) + 2 * rounding,
                            std::max(1.0, largest(oracle.dqkv)), "dqkv");
      });
}

}  // namespace

TEST_CASE("attention and its gradient equal the naive loops for token counts at and around tile and block edges") {
  for (int64_t tokens : {1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 97, 119, 120, 121, 133, 250}) check({1, tokens, 2, 16});
}

TEST_CASE("attention and its gradient take any head size") {
  for (int64_t head_size : {1, 2, 3, 5, 8, 12, 17, 33, 48, 64, 80, 129}) {
    check({1, 40, 2, head_size});
    check({2, 125, 1, head_size});
  }
}

TEST_CASE("attention over several batches and heads, and a single head whose queries threads share") {
  check({3, 65, 3, 64});
  check({1, 500, 1, 32});
  check({1, 390, 3, 8});
}

TEST_CASE("heads of queries may share heads of keys and values, whose gradients are sums") {
  check({2, 33, 4, 16, 2});
  check({1, 130, 6, 8, 1});
  check({1, 97, 8, 64, 2});
  check({1, 250, 3, 32, 3});  // each its own
  exec::Context context({.threads = 1});
  float nothing = 0;
  for (int64_t kv_heads : {3, -1, 8}) {
    REQUIRE_ERROR(kernel::cpu::attention(context, {1, 1, 4, 1, 1, &nothing, &nothing, nullptr, kv_heads}),
                  ErrorKind::invalid_argument, "4 heads cannot share " + std::to_string(kv_heads));
    REQUIRE_ERROR(kernel::cpu::attention_gradient(
                      context, {1, 1, 4, 1, 1, &nothing, &nothing, &nothing, &nothing, &nothing, kv_heads}),
                  ErrorKind::invalid_argument, "evenly");
  }
}

TEST_CASE("attention with products in bfloat16 rounds its operands and nothing else") {
  for (int64_t tokens : {1, 2, 3, 17, 31, 64, 119, 121, 250})
    check({1, tokens, 2, 16, 0, kernel::Product::bfloat16});
  for (int64_t head_size : {1, 3, 8, 17, 33, 64, 80, 129})
    check({1, 125, 2, head_size, 0, kernel::Product::bfloat16});
  check({2, 133, 4, 32, 2, kernel::Product::bfloat16});
  check({1, 130, 1, 16, 0, kernel::Product::bfloat16}, 4.0f);
}

TEST_CASE("attention stays finite and right where scores are large enough to overflow a plain exponential") {
  check({1, 130, 1, 16}, 12.0f);
}

TEST_CASE("attention of nothing does nothing") {
  test::on_every_context(
      [&](exec::Context& context) {
        float untouched = 7;
        for (Case s : {Case{0, 5, 2, 8}, Case{1, 0, 2, 8}, Case{1, 5, 0, 8}, Case{1, 5, 2, 0}}) {
          kernel::cpu::attention(context,
                                 {s.batch, s.tokens, s.heads, s.head_size, 1, &untouched, &untouched, &untouched});
          kernel::cpu::attention_gradient(context, {s.batch, s.tokens, s.heads, s.head_size, 1, &untouched, &untouched,
                                                    &untouched, &untouched, &untouched});
        }
        return std::vector<float>{untouched};
      },
      [](std::vector<float> const& result) { CHECK(result[0] == 7); });
}

TEST_CASE("attention_decode equals attention's last row, over the cache's first positions alone") {
  for (int64_t length : {1, 2, 15, 16, 63, 64, 65, 200})
    for (int64_t d : {1, 3, 8, 16, 20, 64, 100}) {
      INFO("length " << length << " head size " << d);
      int64_t const batch = 2, heads = 3, capacity = length + 5, stride = heads * d + 7;
      test::Random random(static_cast<std::uint64_t>(length * 131 + d));
      std::vector<float> const q = random.floats(batch * stride);
      std::vector<float> keys = random.floats(batch * heads * capacity * d),
                         values = random.floats(batch * heads * capacity * d);
      for (int64_t bh = 0; bh < batch * heads; ++bh)
        for (int64_t i = length * d; i < capacity * d; ++i)
          keys[test::length(bh * capacity * d + i)] = values[test::length(bh * capacity * d + i)] = poison;
      float const scale = 1.0f / std::sqrt(static_cast<float>(d));
      std::vector<double> exact(test::length(batch * heads * d));
      for (int64_t bh = 0; bh < batch * heads; ++bh) {
        std::vector<double> p(test::length(length));
        double sum = 0;
        for (int64_t t = 0; t < length; ++t) {
          double score = 0;
          for (int64_t i = 0; i < d; ++i)
            score += double(q[test::length(bh / heads * stride + bh % heads * d + i)]) *
                     double(keys[test::length((bh * capacity + t) * d + i)]);
          sum += p[test::length(t)] = std::exp(score * double(scale));
        }
        for (int64_t t = 0; t < length; ++t)
          for (int64_t i = 0; i < d; ++i)
            exact[test::length(bh * d + i)] +=
                p[test::length(t)] / sum * double(values[test::length((bh * capacity + t) * d + i)]);
      }
      test::on_every_context(
          [&](exec::Context& context) {
            std::vector<float> out(test::length(batch * heads * d), poison);
            kernel::cpu::attention_decode(context, {batch, length, capacity, heads, d, scale, q.data(), stride,
                                                    keys.data(), values.data(), out.data()});
            return out;
          },
          [&](std::vector<float> const& out) {
            test::require_close(out.data(), exact, test::tolerance<float>(length + d + 16) * 4, 1.0, "out");
          });
    }
}
