// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of the language-model head fused with softmax cross-entropy.

#include <tutti/kernel/gemm.hpp>

#include <cstdint>

namespace tutti::kernel {

/// Shapes    x (rows, C); weight (padded_vocabulary, C) of which the first `vocabulary` rows are classes and the others
///           finite: on a GPU they take part, times zero; targets (rows);
///           dx (rows, C); dweight (padded_vocabulary, C)
/// Computes  z = x weight^T; loss = scale_loss * sum over rows with target != ignored of (logsumexp(z) - z[target]),
/// divided by their number
///           (0 when there is none), and with dx / dweight given, `scale` times the gradients of that mean:
///           dz = scale * (softmax(z) - onehot) / valid; dx = dz weight; dweight = dz^T x  (beta 0; padded rows get
///           zero) Logits exist for one chunk of rows at a time: never rows * vocabulary at once.
/// Aliasing  dx may be x. dx and dweight may be null independently (evaluation needs neither).
/// Errors    out_of_range, naming row and target, before anything is written.
/// Types     T float, on a GPU also bfloat16; the logits are T, the gradient of the weight is float.
/// Numerics  loss summed in double in row order; independent of the number of threads.
template <class T>
struct LinearCrossEntropyOf {
  std::int64_t rows = 0, channels = 0, vocabulary = 0, padded_vocabulary = 0;
  std::int32_t ignored = -1;
  float scale = 1.0f;
  T const* x = nullptr;
  T const* weight = nullptr;
  std::int32_t const* targets = nullptr;
  float* loss = nullptr;        ///< one float: the mean, not scaled
  float* row_losses = nullptr;  ///< (rows) or null: loss per row, 0 where ignored
  T* dx = nullptr;
  float* dweight = nullptr;
  float* workspace = nullptr;   ///< linear_cross_entropy_workspace(...) floats
  Product product = Product::float32;  ///< of all three products; dz is rounded too, the loss is not
};
using LinearCrossEntropy = LinearCrossEntropyOf<float>;

/// Rows of logits held at once: a multiple of 64 that keeps the chunk under 55 MB, at least 64, so that with what two
/// threads pack of the weight the head stays under 64 MB up to 213,000 classes. More rows amortise that packing, and
/// the passes over the weight's gradient.
constexpr std::int64_t linear_cross_entropy_chunk(std::int64_t rows, std::int64_t padded_vocabulary) {
  std::int64_t chunk = (std::int64_t{13} << 20) / (padded_vocabulary > 0 ? padded_vocabulary : 1) / 64 * 64;
  if (chunk < 64) chunk = 64;
  return rows < chunk ? rows : chunk;
}
/// Floats of workspace that LinearCrossEntropy needs.
constexpr std::int64_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t padded_vocabulary) {
  return linear_cross_entropy_chunk(rows, padded_vocabulary) * padded_vocabulary + rows;
}

/// Rows of logits to hold at once on a GPU, of `element` bytes: a multiple of 128 that keeps them under 1 GiB, at least
/// 128. Every chunk reads and writes the weight's whole gradient, 2 * 4 bytes for 2 * chunk flop an element: from a few
/// thousand rows on that is hidden behind the product.
constexpr std::int64_t linear_cross_entropy_device_chunk(std::int64_t rows, std::int64_t padded_vocabulary,
                                                         std::int64_t element) {
  std::int64_t const row = (padded_vocabulary > 0 ? padded_vocabulary : 1) * element;
  std::int64_t chunk = (std::int64_t{1} << 30) / row / 128 * 128;
  if (chunk < 128) chunk = 128;
  return rows < chunk ? rows : chunk;
}
/// Bytes of what the targets tell, behind the logits.
inline constexpr std::int64_t linear_cross_entropy_device_facts = 64;
/// Bytes of device memory, aligned to 16, that it needs as workspace there for chunks of so many rows.
constexpr std::int64_t linear_cross_entropy_device_workspace(std::int64_t rows, std::int64_t padded_vocabulary,
                                                             std::int64_t chunk, std::int64_t element) {
  std::int64_t const logits = chunk * padded_vocabulary * element;
  return (logits + 255) / 256 * 256 + linear_cross_entropy_device_facts +
         rows * static_cast<std::int64_t>(sizeof(float));
}

/// Softmax cross-entropy on given logits, for models without a linear head.
/// Shapes    logits, dlogits (rows, vocabulary); targets (rows)
///           T float, on a GPU also bfloat16
/// Computes  as above with z = logits. Aliasing: dlogits may be logits; null outputs are skipped.
/// Errors    as above; of a GPU at the end of the step, and the row takes no part.
template <class T>
struct CrossEntropyOf {
  std::int64_t rows = 0, vocabulary = 0;
  std::int32_t ignored = -1;
  float scale = 1.0f;
  T const* logits = nullptr;
  std::int32_t const* targets = nullptr;
  float* loss = nullptr;
  float* row_losses = nullptr;
  T* dlogits = nullptr;
};
using CrossEntropy = CrossEntropyOf<float>;

}  // namespace tutti::kernel
