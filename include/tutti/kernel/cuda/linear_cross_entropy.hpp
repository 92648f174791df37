// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The language-model head with softmax cross-entropy on a GPU, over chunks of rows.

#include <tutti/exec/cuda/memory.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/cuda/cross_entropy.hpp>
#include <tutti/kernel/cuda/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

static_assert(sizeof(TargetCount) <= linear_cross_entropy_device_facts);

/// Contract: tutti/kernel/cross_entropy.hpp, but `workspace` has the bytes told above for this `chunk`.
/// Blocking   as gemm.
/// Errors     as gemm; a target outside the vocabulary is reported in the context's error word, and its row takes no
///            part.
template <class T>
void linear_cross_entropy(Blas& blas, LinearCrossEntropyOf<T> const& args, std::int64_t chunk) {
  Context& context = blas.context();
  std::int64_t const channels = args.channels, stride = args.padded_vocabulary;
  if (chunk < 1 && args.rows > 0)
    throw Error(ErrorKind::invalid_argument, "linear_cross_entropy",
                concat("chunks of ", chunk, " rows are impossible"));
  auto* const logits = reinterpret_cast<T*>(args.workspace);
  std::size_t const logits_bytes = (static_cast<std::size_t>(chunk * stride) * sizeof(T) + 255) / 256 * 256;
  auto* const count =
      reinterpret_cast<TargetCount*>(reinterpret_cast<unsigned char*>(args.workspace) + logits_bytes);
  float* const row_losses =
      args.row_losses != nullptr
          ? args.row_losses
          : reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(count) + linear_cross_entropy_device_facts);
  count_targets(context, args.targets, args.rows, args.vocabulary, args.ignored, args.scale, count);
  if (args.dweight != nullptr && args.rows <= 0)
    tutti::cuda::fill_bytes(context.stream(), args.dweight, 0,
                            static_cast<std::size_t>(stride * channels) * sizeof(float));
  LogitRowsOf<T> part;
  part.vocabulary = args.vocabulary;
  part.stride = part.padded = stride;
  part.ignored = args.ignored;
  part.count = count;
  part.logits = logits;
  part.gradient = args.dx != nullptr || args.dweight != nullptr ? logits : nullptr;
  // All products have the padded vocabulary, whose rows keep 16-byte alignment and whose extent fast algorithms want:
  // logits of padded classes are not looked at, and their gradients are zero.
  for (std::int64_t first = 0; first < args.rows; first += chunk) {
    std::int64_t const rows = std::min(chunk, args.rows - first);
    T const* const x = args.x + first * channels;
    Gemm product;
    product.a_dtype = product.b_dtype = product.c_dtype = dtype_of<T>;
    product.product = args.product;
    product.m = rows, product.n = stride, product.k = channels;
    product.a = x, product.a_row = channels;
    product.b = args.weight, product.b_row = 1, product.b_column = channels;
    product.c = logits, product.c_row = stride;
    gemm(blas, product);
    part.rows = rows;
    part.targets = args.targets + first;
    part.row_losses = row_losses + first;
    cross_entropy_rows(context, part);
    if (args.dweight != nullptr) {  // before dx, which may overwrite x
      Gemm dweight = product;
      dweight.m = stride, dweight.n = channels, dweight.k = rows;
      dweight.a = logits, dweight.a_row = 1, dweight.a_column = stride;
      dweight.b = x, dweight.b_row = channels, dweight.b_column = 1;
      dweight.c = args.dweight, dweight.c_row = channels, dweight.c_dtype = DType::float32;
      dweight.beta = first == 0 ? 0.0f : 1.0f;
      gemm(blas, dweight);
    }
    if (args.dx != nullptr) {
      Gemm dx = product;
      dx.m = rows, dx.n = channels, dx.k = stride;
      dx.a = logits, dx.a_row = stride, dx.a_column = 1;
      dx.b = args.weight, dx.b_row = channels, dx.b_column = 1;
      dx.c = args.dx + first * channels, dx.c_row = channels;
      gemm(blas, dx);
    }
  }
  if (args.loss != nullptr) mean_loss(context, row_losses, args.rows, count, args.loss);
}

}  // namespace tutti::kernel::cuda
