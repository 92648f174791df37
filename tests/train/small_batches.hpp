// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A small GPT-2 and batches that it can learn, for tests of training steps on every device.

#include <tutti/nn/gpt2.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/train_step.hpp>

#include <cstdint>

namespace tutti::test {

inline nn::Gpt2Config const small_gpt2{
    .layers = 2, .heads = 2, .channels = 16, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

/// Rows [first, first + rows) of the global batch of a step, the same for every layout.
struct Rows {
  Tensor<std::int32_t> tokens, targets;
  Rows(std::int64_t step, std::int64_t first, std::int64_t rows) : tokens(Shape{rows, 8}), targets(Shape{rows, 8}) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t t = 0; t < 8; ++t) {
        tokens(r, t) = static_cast<std::int32_t>((step * 7 + (first + r) * 5 + t * 3) % 20);
        targets(r, t) = static_cast<std::int32_t>((step * 7 + (first + r) * 5 + (t + 1) * 3) % 20);
      }
  }
  train::Batch at(std::int64_t step) const { return {step, tokens.view(), targets.view()}; }
};

}  // namespace tutti::test
