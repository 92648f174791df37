// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Causal attention of `./tutti bench kernels`, forward and backward, and what is right.

#include "products.hpp"

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/attention.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::bench {

struct AttentionRun {
  std::int64_t batch, tokens, heads = 12, head_size = 64;
  kernel::Product product;
  std::vector<float> qkv, out, lse, dout, dqkv;

  AttentionRun(std::int64_t batches, std::int64_t length, kernel::Product kind)
      : batch(batches), tokens(length), product(kind) {
    std::int64_t const size = batch * tokens * heads * head_size;
    qkv = random_floats(3 * size, 4), dout = random_floats(size, 5);
    out.assign(static_cast<std::size_t>(size), NAN), dqkv.assign(static_cast<std::size_t>(3 * size), NAN);
    lse.assign(static_cast<std::size_t>(batch * heads * tokens), NAN);
  }
  /// Of the forward pass: two products, half of each. Backward there are five.
  double flops() const { return 2.0 * static_cast<double>(batch * heads * tokens * (tokens + 1) * head_size); }
  void forward(exec::Context& context) {
    kernel::cpu::attention(context, {batch, tokens, heads, head_size, 0.125f, qkv.data(), out.data(), lse.data(), 0,
                                     product});
  }
  void backward(exec::Context& context) {
    kernel::cpu::attention_gradient(context, {batch, tokens, heads, head_size, 0.125f, dout.data(), qkv.data(),
                                              out.data(), lse.data(), dqkv.data(), 0, product});
  }

  /// Whether one head of the first and one of the last sequence are near what double precision gives: every element of
  /// the result, and of the gradient of Q, K and V. Both passes must have run.
  bool is_right() const {
    return is_right(0, heads - 1) && is_right(batch - 1, heads / 2);
  }

 private:
  bool is_right(std::int64_t b, std::int64_t h) const {
    std::int64_t const channels = heads * head_size;
    auto const at = [&](std::int64_t token, std::int64_t part, std::int64_t i) {
      return static_cast<std::size_t>((b * tokens + token) * 3 * channels + part * channels + h * head_size + i);
    };
    auto const at_out = [&](std::int64_t token, std::int64_t i) {
      return static_cast<std::size_t>((b * tokens + token) * channels + h * head_size + i);
    };
    // Elements of the gradient of K and V are sums over up to `tokens` queries, but weights fall as 1 / tokens.
    double const tolerance = product == kernel::Product::bfloat16 ? 3e-2 : 2e-5;
    auto const size = static_cast<std::size_t>(head_size);
    std::vector<double> p(static_cast<std::size_t>(tokens)), exact(size), dq(size);
    std::vector<double> dk(static_cast<std::size_t>(tokens) * size), dv(dk.size());
    auto const near = [tolerance](double expected, float value) {
      return std::abs(expected - double(value)) <= tolerance * (1 + std::abs(expected));
    };
    for (std::int64_t t = 0; t < tokens; ++t) {
      double sum = 0, drop = 0;
      for (std::int64_t key = 0; key <= t; ++key) {
        double score = 0;
        for (std::int64_t i = 0; i < head_size; ++i) score += double(qkv[at(t, 0, i)]) * double(qkv[at(key, 1, i)]);
        sum += p[static_cast<std::size_t>(key)] = std::exp(0.125 * score);
      }
      if (!near(std::log(sum), lse[static_cast<std::size_t>((b * heads + h) * tokens + t)])) return false;
      for (std::int64_t key = 0; key <= t; ++key) p[static_cast<std::size_t>(key)] /= sum;
      for (std::int64_t i = 0; i < head_size; ++i) {
        auto const c = static_cast<std::size_t>(i);
        exact[c] = 0, dq[c] = 0;
        for (std::int64_t key = 0; key <= t; ++key)
          exact[c] += p[static_cast<std::size_t>(key)] * double(qkv[at(key, 2, i)]);
        if (!near(exact[c], out[at_out(t, i)])) return false;
        drop += exact[c] * double(dout[at_out(t, i)]);
      }
      for (std::int64_t key = 0; key <= t; ++key) {
        double const weight = p[static_cast<std::size_t>(key)];
        double dp = 0;
        for (std::int64_t i = 0; i < head_size; ++i) dp += double(dout[at_out(t, i)]) * double(qkv[at(key, 2, i)]);
        double const ds = 0.125 * weight * (dp - drop);
        for (std::int64_t i = 0; i < head_size; ++i) {
          auto const c = static_cast<std::size_t>(i), row = static_cast<std::size_t>(key) * size + c;
          dq[c] += ds * double(qkv[at(key, 1, i)]);
          dk[row] += ds * double(qkv[at(t, 0, i)]);
          dv[row] += weight * double(dout[at_out(t, i)]);
        }
      }
      for (std::int64_t i = 0; i < head_size; ++i)
        if (!near(dq[static_cast<std::size_t>(i)], dqkv[at(t, 0, i)])) return false;
    }
    for (std::int64_t key = 0; key < tokens; ++key)
      for (std::int64_t i = 0; i < head_size; ++i) {
        auto const row = static_cast<std::size_t>(key * head_size + i);
        if (!near(dk[row], dqkv[at(key, 1, i)]) || !near(dv[row], dqkv[at(key, 2, i)])) return false;
      }
    return true;
  }
};

}  // namespace tutti::bench
