// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Softmax cross-entropy on the CPU, alone and fused with the language-model head.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/cross_entropy.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/cross_entropy.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline double cross_entropy_part(exec::Isa isa, float const* z, std::int64_t n, std::int64_t target, float weight,
                                 float* dz) {
  TUTTI_DISPATCH(isa, cross_entropy_row(z, n, target, weight, dz));
}

/// Rows whose target counts.
inline std::int64_t check_targets(char const* operation, std::int32_t const* targets, std::int64_t rows,
                                  std::int64_t vocabulary, std::int32_t ignored) {
  std::int64_t valid = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == ignored) continue;
    if (targets[row] < 0 || targets[row] >= vocabulary)
      throw Error(ErrorKind::out_of_range, operation,
                  "target " + std::to_string(targets[row]) + " of row " + std::to_string(row) + " is outside the " +
                      std::to_string(vocabulary) + " classes. Mark rows that do not count with " +
                      std::to_string(ignored));
    ++valid;
  }
  return valid;
}

/// Rows of logits with their targets; the gradient may overwrite the logits.
struct LogitRows {
  std::int64_t rows = 0, vocabulary = 0;
  std::int64_t stride = 0;  ///< floats between rows, of logits and gradient
  std::int32_t ignored = -1;
  float weight = 0;         ///< of each row's gradient
  float const* logits = nullptr;
  std::int32_t const* targets = nullptr;
  float* row_losses = nullptr;
  float* gradient = nullptr;
};

/// The sum of the rows' losses, added up in row order on the caller.
inline double cross_entropy_rows(exec::Context& context, LogitRows const& args) {
  constexpr std::int64_t most = 512;
  double losses[most];
  double total = 0;
  std::int64_t const grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, args.vocabulary));
  for (std::int64_t first = 0; first < args.rows; first += most) {
    std::int64_t const count = std::min(most, args.rows - first);
    context.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) {
        std::int64_t const row = first + index;
        float* const gradient = args.gradient == nullptr ? nullptr : args.gradient + row * args.stride;
        losses[index] = 0;
        if (args.targets[row] != args.ignored)
          losses[index] = cross_entropy_part(context.isa(), args.logits + row * args.stride, args.vocabulary,
                                             args.targets[row], args.weight, gradient);
        else if (gradient != nullptr)
          std::memset(gradient, 0, static_cast<std::size_t>(args.vocabulary) * sizeof(float));
      }
    });
    for (std::int64_t index = 0; index < count; ++index) {
      total += losses[index];
      if (args.row_losses != nullptr) args.row_losses[first + index] = static_cast<float>(losses[index]);
    }
  }
  return total;
}

}  // namespace detail

/// See kernel::CrossEntropy.
TUTTI_INLINE void cross_entropy(exec::Context& context, CrossEntropy const& args) {
  std::int64_t const valid =
      detail::check_targets("cross_entropy", args.targets, args.rows, args.vocabulary, args.ignored);
  double const divisor = valid > 0 ? static_cast<double>(valid) : 1.0;
  detail::LogitRows rows;
  rows.rows = args.rows;
  rows.vocabulary = rows.stride = args.vocabulary;
  rows.ignored = args.ignored;
  rows.weight = static_cast<float>(double{args.scale} / divisor);
  rows.logits = args.logits;
  rows.targets = args.targets;
  rows.row_losses = args.row_losses;
  rows.gradient = args.dlogits;
  double const total = detail::cross_entropy_rows(context, rows);
  if (args.loss != nullptr) *args.loss = static_cast<float>(total / divisor);
}

/// See kernel::LinearCrossEntropy. Padded classes take no part: the products stop at `vocabulary`.
/// Cost: 2, 4 or 6 rows * vocabulary * channels flop, for the loss and each gradient.
TUTTI_INLINE void linear_cross_entropy(exec::Context& context, LinearCrossEntropy const& args) {
  std::int64_t const valid =
      detail::check_targets("linear_cross_entropy", args.targets, args.rows, args.vocabulary, args.ignored);
  double const divisor = valid > 0 ? static_cast<double>(valid) : 1.0;
  std::int64_t const channels = args.channels, stride = args.padded_vocabulary;
  bool const gradients = args.dx != nullptr || args.dweight != nullptr;
  if (args.dweight != nullptr) {
    std::int64_t const untouched = args.rows == 0 ? 0 : args.vocabulary * channels;
    context.parallel_for(stride * channels - untouched, 16384, [&](std::int64_t begin, std::int64_t end) {
      std::memset(args.dweight + untouched + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
    });
  }
  detail::LogitRows part;
  part.vocabulary = args.vocabulary;
  part.stride = stride;
  part.ignored = args.ignored;
  part.weight = static_cast<float>(double{args.scale} / divisor);
  part.logits = args.workspace;
  part.gradient = gradients ? args.workspace : nullptr;
  std::int64_t const chunk = linear_cross_entropy_chunk(args.rows, args.padded_vocabulary);
  double total = 0;
  for (std::int64_t first = 0; first < args.rows; first += chunk) {
    std::int64_t const rows = std::min(chunk, args.rows - first);
    float const* const x = args.x + first * channels;
    Gemm logits;
    logits.m = rows, logits.n = args.vocabulary, logits.k = channels;
    logits.a = x, logits.a_row = channels, logits.a_column = 1;
    logits.b = args.weight, logits.b_row = 1, logits.b_column = channels;
    logits.c = args.workspace, logits.c_row = stride;
    logits.product = args.product;
    gemm(context, logits);
    part.rows = rows;
    part.targets = args.targets + first;
    part.row_losses = args.row_losses == nullptr ? nullptr : args.row_losses + first;
    total += detail::cross_entropy_rows(context, part);
    if (args.dweight != nullptr) {  // before dx, which may overwrite x
      Gemm dweight;
      dweight.m = args.vocabulary, dweight.n = channels, dweight.k = rows;
      dweight.a = args.workspace, dweight.a_row = 1, dweight.a_column = stride;
      dweight.b = x, dweight.b_row = channels, dweight.b_column = 1;
      dweight.c = args.dweight, dweight.c_row = channels;
      dweight.beta = first == 0 ? 0.0f : 1.0f;
      dweight.product = args.product;
      gemm(context, dweight);
    }
    if (args.dx != nullptr) {
      Gemm dx;
      dx.m = rows, dx.n = channels, dx.k = args.vocabulary;
      dx.a = args.workspace, dx.a_row = stride, dx.a_column = 1;
      dx.b = args.weight, dx.b_row = channels, dx.b_column = 1;
      dx.c = args.dx + first * channels, dx.c_row = channels;
      dx.product = args.product;
      gemm(context, dx);
    }
  }
  if (args.loss != nullptr) *args.loss = static_cast<float>(total / divisor);
}

}  // namespace tutti::kernel::cpu

#endif
