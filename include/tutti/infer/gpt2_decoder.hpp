// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Generation with a key/value cache: one sequence, one new token a step.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/entries.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace tutti::infer {

/// Shapes     cache (layers, 2, heads, capacity, head size): keys, then values
/// Cost       a step reads every weight once; memory is 2 * layers * channels * capacity floats of cache
/// Determinism bitwise the same for any number of threads
class Gpt2Decoder {
 public:
  /// Borrows context and weights. `capacity` tokens at most, 0: as many as the model has positions.
  Gpt2Decoder(exec::Context& context, nn::Gpt2Weights const& weights, std::int64_t capacity = 0)
      : context_(context), weights_(weights), c_(weights.config), capacity_(capacity == 0 ? c_.max_tokens : capacity) {
    if (capacity_ < 1 || capacity_ > c_.max_tokens)
      throw Error(ErrorKind::invalid_argument, "Gpt2Decoder",
                  "capacity " + std::to_string(capacity) + " is outside the model's 1 to " +
                      std::to_string(c_.max_tokens) + " positions");
    cache_ = Tensor<float>(Shape{c_.layers, 2, c_.heads, capacity_, c_.head_size()});
    logits_ = Tensor<float>(Shape{c_.padded_vocabulary});
    reserve(1);
  }

  std::int64_t length() const noexcept { return length_; }
  std::int64_t capacity() const noexcept { return capacity_; }
  void reset() noexcept { length_ = 0; }

  /// Appends tokens and returns the logits (vocabulary) that follow the last one; they stay valid until the next call.
  /// Errors: invalid_argument for no token; out_of_range past the capacity or for an unknown token.
  std::span<float const> append(std::span<std::int32_t const> tokens) {
    auto const count = static_cast<std::int64_t>(tokens.size());
    if (count == 0) throw Error(ErrorKind::invalid_argument, "Gpt2Decoder::append", "there is no token to append");
    if (count > capacity_ - length_)
      throw Error(ErrorKind::out_of_range, "Gpt2Decoder::append",
                  std::to_string(count) + " tokens do not fit behind " + std::to_string(length_) + " of " +
                      std::to_string(capacity_) + ". Reset and append the last ones");
    if (length_ == 0) {
      forward(tokens);  // a whole prompt at once: every weight is read once for all of its tokens
    } else {
      for (std::int32_t const& token : tokens) forward({&token, 1});
    }
    return {logits_.data(), static_cast<std::size_t>(c_.vocabulary)};
  }

 private:
  void reserve(std::int64_t rows) {
    if (rows <= rows_) return;
    rows_ = rows;
    std::int64_t const c = c_.channels;
    x_ = Tensor<float>(Shape{rows, c});
    normed_ = Tensor<float>(Shape{rows, c});
    qkv_ = Tensor<float>(Shape{rows, 3 * c});
    mixed_ = Tensor<float>(Shape{rows, c});
    hidden_ = Tensor<float>(Shape{rows, 4 * c});
    tokens_ = Tensor<std::int32_t>(Shape{rows});
  }

  /// y (rows, out) = x (rows, in) w^T + b, with what the epilogue adds.
  void linear(std::int64_t rows, std::int64_t in, std::int64_t out, float const* x, float const* w, float const* b,
              float* y, bool gelu = false, float const* residual = nullptr) {
    kernel::Gemm product = kernel::linear_product(rows, in, out, x, w, y);
    product.epilogue.bias = b;
    product.epilogue.gelu = gelu;
    product.epilogue.residual = residual;
    kernel::cpu::gemm(context_, product);
  }
  void norm(std::int64_t rows, float const* x, float const* gamma, float const* beta, float* y) {
    kernel::cpu::layer_norm(
        context_,
        {.rows = rows, .channels = c_.channels, .eps = c_.epsilon, .x = x, .gamma = gamma, .beta = beta, .y = y});
  }

  void forward(std::span<std::int32_t const> tokens) {
    using W = nn::Gpt2Weights;
    auto const rows = static_cast<std::int64_t>(tokens.size());
    std::int64_t const c = c_.channels, hs = c_.head_size();
    reserve(rows);
    std::memcpy(tokens_.data(), tokens.data(), tokens.size_bytes());
    kernel::cpu::embedding(context_, {.batch = 1,
                                      .tokens_per_row = rows,
                                      .channels = c,
                                      .vocabulary = c_.vocabulary,
                                      .tokens = tokens_.data(),
                                      .table = weights_.data[W::index("wte")],
                                      .positions = weights_.data[W::index("wpe")] + length_ * c,
                                      .out = x_.data()});
    float const scale = 1.0f / std::sqrt(float(hs));
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      auto const of = [&](std::size_t index, std::int64_t size) { return weights_.data[index] + layer * size; };
      norm(rows, x_.data(), of(W::index("blocks.ln_1.weight"), c), of(W::index("blocks.ln_1.bias"), c), normed_.data());
      linear(rows, c, 3 * c, normed_.data(), of(W::index("blocks.qkv.weight"), 3 * c * c),
             of(W::index("blocks.qkv.bias"), 3 * c), qkv_.data());
      float* const keys = cache_.data() + layer * 2 * c * capacity_;
      float* const values = keys + c * capacity_;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t head = 0; head < c_.heads; ++head) {
          std::int64_t const to = (head * capacity_ + length_ + row) * hs;
          float const* const from = qkv_.data() + row * 3 * c + c + head * hs;
          std::memcpy(keys + to, from, static_cast<std::size_t>(hs) * sizeof(float));
          std::memcpy(values + to, from + c, static_cast<std::size_t>(hs) * sizeof(float));
        }
      if (rows == 1)
        kernel::cpu::attention_decode(context_, {.batch = 1,
                                                 .length = length_ + 1,
                                                 .capacity = capacity_,
                                                 .heads = c_.heads,
                                                 .head_size = hs,
                                                 .scale = scale,
                                                 .q = qkv_.data(),
                                                 .q_stride = 3 * c,
                                                 .keys = keys,
                                                 .values = values,
                                                 .out = mixed_.data()});
      else
        kernel::cpu::attention(context_, {.batch = 1,
                                          .tokens = rows,
                                          .heads = c_.heads,
                                          .head_size = hs,
                                          .scale = scale,
                                          .qkv = qkv_.data(),
                                          .out = mixed_.data()});
      linear(rows, c, c, mixed_.data(), of(W::index("blocks.proj.weight"), c * c), of(W::index("blocks.proj.bias"), c),
             x_.data(), false, x_.data());
      norm(rows, x_.data(), of(W::index("blocks.ln_2.weight"), c), of(W::index("blocks.ln_2.bias"), c), normed_.data());
      linear(rows, c, 4 * c, normed_.data(), of(W::index("blocks.fc.weight"), 4 * c * c),
             of(W::index("blocks.fc.bias"), 4 * c), hidden_.data(), true);
      linear(rows, 4 * c, c, hidden_.data(), of(W::index("blocks.out.weight"), 4 * c * c),
             of(W::index("blocks.out.bias"), c), x_.data(), false, x_.data());
    }
    // Only the last position's logits are wanted.
    norm(1, x_.data() + (rows - 1) * c, weights_.data[W::index("ln_f.weight")], weights_.data[W::index("ln_f.bias")],
         normed_.data());
    linear(1, c, c_.vocabulary, normed_.data(), weights_.data[W::index("wte")], nullptr, logits_.data());
    length_ += rows;
  }

  exec::Context& context_;
  nn::Gpt2Weights weights_;
  nn::Gpt2Config c_;
  std::int64_t capacity_ = 0, length_ = 0, rows_ = 0;
  Tensor<float> cache_, logits_, x_, normed_, qkv_, mixed_, hidden_;
  Tensor<std::int32_t> tokens_;
};

}  // namespace tutti::infer
