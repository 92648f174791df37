// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/attention_decode.hpp> <tutti/kernel/cuda/attention_forward.hpp>
// Covers: <tutti/kernel/cuda/attention_gradient.hpp> <tutti/kernel/cuda/attention_tile.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/kernel/cuda/attention.hpp>

#include "cuda/support.hpp"
#include "kernel/attention_oracle.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;
using test::AttentionCase;
using test::OnDevice;

float const poison = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> in_type(std::vector<float> const& values) {
  return std::vector<T>(values.begin(), values.end());
}
template <class T>
std::vector<float> in_floats(std::vector<T> const& values) {
  return std::vector<float>(values.begin(), values.end());
}

/// out, lse and dqkv as floats.
struct Results {
  std::vector<float> out, lse, dqkv;
};
template <class T>
Results run(AttentionCase s, std::vector<T> const& qkv, std::vector<T> const& dout) {
  kernel::cuda::Context& context = test::cuda_context();
  int64_t const c = s.channels(), rows = s.batch * s.tokens, row = s.row();
  float const scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  OnDevice<T> const input(qkv), slope(dout), out(std::vector<T>(test::length(rows * c), T(poison))),
      dqkv(std::vector<T>(test::length(rows * row), T(poison)));
  OnDevice<float> const lse(std::vector<float>(test::length(rows * s.heads), poison));
  kernel::AttentionOf<T> forward{s.batch, s.tokens, s.heads, s.head_size, scale, input.data(), out.data(), lse.data(),
                                 s.kv_heads, s.product};
  kernel::cuda::attention(context, forward);
  kernel::cuda::attention_gradient(
      context,
      kernel::AttentionGradientOf<T>{s.batch, s.tokens, s.heads, s.head_size, scale, slope.data(), input.data(),
                                     out.data(), lse.data(), dqkv.data(), s.kv_heads, s.product});
  OnDevice<T> const without(std::vector<T>(test::length(rows * c), T(poison)));
  forward.out = without.data();
  forward.lse = nullptr;
  kernel::cuda::attention(context, forward);
  Results const results{in_floats(out.read()), lse.read(), in_floats(dqkv.read())};
  REQUIRE(test::same_bits(in_floats(without.read()), results.out));
  return results;
}

template <class T>
void check(AttentionCase s, float spread = 1) {
  constexpr bool narrow = std::is_same_v<T, bfloat16>;
  bool const rounded = narrow || s.product == kernel::Product::bfloat16;
  INFO("batch " << s.batch << " tokens " << s.tokens << " heads " << s.heads << " sharing " << s.kv() << " head size "
                << s.head_size << (narrow ? " bfloat16" : rounded ? " float, products in bfloat16" : " float"));
  int64_t const c = s.channels(), rows = s.batch * s.tokens;
  test::Random random(static_cast<std::uint64_t>(s.tokens * 31 + c));
  std::vector<float> qkv = random.floats(rows * s.row(), spread), dout = random.floats(rows * c);
  if (rounded)
    for (auto* values : {&qkv, &dout})
      for (float& value : *values) value = float(bfloat16(value));
  float const scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  test::AttentionOracle const oracle(s, double(scale), qkv, dout);
  Results const results = run(s, in_type<T>(qkv), in_type<T>(dout));
  double const terms = test::tolerance<float>(s.tokens + s.head_size + 16);
  double const score = double(spread * spread) * std::sqrt(static_cast<double>(s.head_size));
  double const rounding = rounded ? std::ldexp(1.0, -9) : 0, result = narrow ? std::ldexp(1.0, -8) : 0;
  double const most = std::max(1.0, test::largest(oracle.dqkv));
  test::require_close(results.out.data(), oracle.out, terms * (1 + score) + rounding + result, double(spread), "out");
  test::require_close(results.lse.data(), oracle.lse, terms, 1 + score, "lse");
  // dqkv: p, ds, and out in the row dots are rounded, and the result once more.
  test::require_close(results.dqkv.data(), oracle.dqkv, terms * (1 + score) + 2 * rounding + 2 * result, most, "dqkv");
  Results const again = run(s, in_type<T>(qkv), in_type<T>(dout));
  REQUIRE(test::same_bits(results.out, again.out));
  REQUIRE(test::same_bits(results.dqkv, again.dqkv));
}

}  // namespace

TEST_CASE("attention in bfloat16 equals the naive loops for token counts at and around tiles") {
  for (int64_t tokens : {1, 2, 31, 33, 63, 65, 127, 130}) check<bfloat16>({1, tokens, 2, 64});
  for (int64_t tokens : {63, 65, 193}) check<bfloat16>({1, tokens, 1, 128});  // four tiles of keys in two stages
}

TEST_CASE("attention in bfloat16 takes head sizes in multiples of 8") {
  for (int64_t head_size : {8, 32, 40, 64, 80, 96, 128}) check<bfloat16>({2, 70, 1, head_size});
}

TEST_CASE("attention in float keeps float's accuracy on tensor cores") {
  for (int64_t tokens : {1, 33, 65, 130}) check<float>({1, tokens, 1, 64});
  for (int64_t head_size : {8, 80, 128}) check<float>({1, 40, 1, head_size});
}

TEST_CASE("attention in float rounds its products where it may") {
  for (int64_t head_size : {32, 64, 128}) check<float>({1, 70, 2, head_size, 0, kernel::Product::bfloat16});
}

TEST_CASE("heads of queries share heads of keys and values on devices too") {
  check<bfloat16>({2, 65, 2, 64, 1});
  check<bfloat16>({1, 97, 4, 32, 2});
  check<bfloat16>({1, 40, 3, 64, 3});
  check<bfloat16>({1, 129, 2, 128, 1});
  check<float>({1, 40, 4, 32, 2});
  check<float>({1, 97, 2, 64, 1});
}

TEST_CASE("blocks of keys give their shares of dq one after another, over many of them and any number of tokens") {
  check<bfloat16>({1, 257, 1, 32});  // 128 keys a block, the last of one key
  check<bfloat16>({1, 161, 2, 64, 1});
  check<bfloat16>({1, 130, 2, 96, 1});  // 64 keys a block
  check<float>({1, 129, 1, 32});
  check<float>({1, 79, 2, 128, 1});  // 16 queries a tile
  check<float>({1, 150, 1, 64, 0, kernel::Product::bfloat16});
}

TEST_CASE("the gradient of attention has the same bits whichever block begins first, and beside another sequence") {
  auto const same = [](auto zero, AttentionCase one) {
    using T = decltype(zero);
    AttentionCase two = one;
    two.batch = 2;
    test::Random random(5);
    auto const qkv = in_type<T>(random.floats(2 * one.tokens * one.row())),
               dout = in_type<T>(random.floats(2 * one.tokens * one.channels()));
    auto const second = [](auto const& values) {
      return std::vector(values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    };
    std::vector<float> const all = run(two, qkv, dout).dqkv;
    for (int round = 0; round < 2; ++round) REQUIRE(test::same_bits(run(two, qkv, dout).dqkv, all));
    REQUIRE(test::same_bits(run(one, second(qkv), second(dout)).dqkv, second(all)));
  };
  same(bfloat16(), {1, 260, 2, 8, 1});
  same(float(), {1, 130, 2, 8, 1});
}

TEST_CASE("attention on devices stays finite and right where scores are large") {
  check<bfloat16>({1, 130, 1, 16}, 4.0f);
  check<float>({1, 130, 1, 16}, 12.0f);
}

TEST_CASE("attention on devices refuses what it has no kernel for") {
  kernel::cuda::Context& context = test::cuda_context();
  kernel::Attention a{1, 1, 4, 8, 1};
  a.kv_heads = 3;
  REQUIRE_ERROR(kernel::cuda::attention(context, a), ErrorKind::invalid_argument, "4 heads cannot share 3");
  a.kv_heads = 0, a.head_size = 12;
  REQUIRE_ERROR(kernel::cuda::attention(context, a), ErrorKind::invalid_argument, "multiples of 8 up to 128");
  a.head_size = 136;
  REQUIRE_ERROR(kernel::cuda::attention(context, a), ErrorKind::invalid_argument, "heads of 136 elements");
  a.head_size = 8, a.scale = 0;
  REQUIRE_ERROR(kernel::cuda::attention(context, a), ErrorKind::invalid_argument, "positive");
  // Blocks of 64 rows; a grid has at most 65535 of them. Nothing is read: there is no product of so many tokens here.
  kernel::Attention longest{1, 65535 * 64 + 1, 1, 8, 1};
  REQUIRE_ERROR(kernel::cuda::attention(context, longest), ErrorKind::invalid_argument, "more than one launch takes");
  kernel::AttentionGradient g{1, 1, 4, 20, 1};
  REQUIRE_ERROR(kernel::cuda::attention_gradient(context, g), ErrorKind::invalid_argument, "heads of 20 elements");
  kernel::AttentionDecode d{1, 9, 8, 1, 8, 1};
  REQUIRE_ERROR(kernel::cuda::attention_decode(context, d), ErrorKind::invalid_argument, "cannot hold 9");
  d.head_size = 10;
  REQUIRE_ERROR(kernel::cuda::attention_decode(context, d), ErrorKind::invalid_argument, "multiples of 8 up to 256");
}

TEST_CASE("attention of nothing does nothing on devices") {
  kernel::cuda::Context& context = test::cuda_context();
  for (AttentionCase s : {AttentionCase{0, 5, 2, 8}, AttentionCase{1, 0, 2, 8}, AttentionCase{1, 5, 0, 8}}) {
    kernel::cuda::attention(context, {s.batch, s.tokens, s.heads, s.head_size});
    kernel::cuda::attention_gradient(context, {s.batch, s.tokens, s.heads, s.head_size});
  }
  kernel::cuda::attention_decode(context, {0, 5, 5, 2, 8});
  kernel::cuda::attention_decode(context, {1, 5, 5, 0, 8});
  context.wait();
}

namespace {

template <class T>
void check_decode(int64_t length, int64_t capacity, int64_t d, bool on_device) {
  INFO("length " << length << " of " << capacity << " head size " << d << (on_device ? ", read by the kernel" : ""));
  int64_t const batch = 2, heads = 3, stride = heads * d + 8;
  test::Random random(static_cast<std::uint64_t>(length * 131 + d));
  auto const drawn = [&](int64_t count) {
    std::vector<float> values = random.floats(count);
    for (float& value : values) value = float(T(value));
    return values;
  };
  std::vector<float> const q = drawn(batch * stride);
  std::vector<float> keys = drawn(batch * heads * capacity * d), values = drawn(batch * heads * capacity * d);
  float const scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<double> exact(test::length(batch * heads * d));
  for (int64_t bh = 0; bh < batch * heads; ++bh) {
    for (int64_t i = length * d; i < capacity * d; ++i)
      keys[test::length(bh * capacity * d + i)] = values[test::length(bh * capacity * d + i)] = poison;
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
  OnDevice<T> const on_q(in_type<T>(q)), on_keys(in_type<T>(keys)), on_values(in_type<T>(values)),
      out(std::vector<T>(test::length(batch * heads * d), T(poison)));
  OnDevice<std::int32_t> const on_length(std::vector<std::int32_t>{static_cast<std::int32_t>(length)});
  kernel::AttentionDecodeOf<T> const a{batch,  on_device ? 0 : length, capacity, heads, d, scale, on_q.data(), stride,
                                       on_keys.data(), on_values.data(), out.data()};
  kernel::cuda::attention_decode(test::cuda_context(), a, on_device ? on_length.data() : nullptr);
  std::vector<float> const result = in_floats(out.read());
  test::require_close(result.data(), exact, test::tolerance<T>(length + d + 16) * 4, 1.0, "out");
}

}  // namespace

TEST_CASE("attention_decode equals attention's last row, over the cache's first positions alone, on devices too") {
  for (int64_t length : {1, 2, 15, 16, 63, 64, 65, 200})
    for (int64_t d : {8, 64, 80, 128}) {
      check_decode<float>(length, length + 5, d, length % 2 == 0);
      check_decode<bfloat16>(length, length + 5, d, length % 2 == 1);
    }
  check_decode<bfloat16>(3, 300, 136, true);  // most parts hold no keys
  check_decode<float>(130, 300, 256, false);
}

TEST_CASE("a captured attention_decode reads how long the cache has become whenever it runs") {
  kernel::cuda::Context& context = test::cuda_context();
  int64_t const capacity = 150, d = 8;
  std::vector<float> values(test::length(capacity * d));
  for (int64_t t = 0; t < capacity; ++t)
    for (int64_t i = 0; i < d; ++i) values[test::length(t * d + i)] = static_cast<float>(t);
  OnDevice<float> const q(std::vector<float>(test::length(d), 1.0f)),
      keys(std::vector<float>(test::length(capacity * d), 0.0f)), on_values(values),
      out(std::vector<float>(test::length(d), poison));
  OnDevice<std::int32_t> const length(std::vector<std::int32_t>{1});
  auto const step = [&] {
    kernel::cuda::attention_decode(
        context, {1, 0, capacity, 1, d, 1, q.data(), d, keys.data(), on_values.data(), out.data()}, length.data());
  };
  step();  // scratch memory grows before the capture
  cuda::Graph const graph = cuda::Graph::capture(context.stream(), step);
  for (std::int32_t now : {1, 64, 65, 150, 2}) {
    cuda::copy_to_device(context.stream(), length.data(), &now, sizeof now);
    graph.launch(context.stream());
    // All keys are alike: the mean of the values so far.
    CHECK(out.read()[0] == Approx(static_cast<double>(now - 1) / 2));
  }
}
