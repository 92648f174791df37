// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layer normalisation on a GPU: float and bfloat16 activations, statistics and parameters in float.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/column_sum.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/layer_norm.hpp>

#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

template <class T, class Y>
struct LayerNormRows {
  LayerNormOf<T, Y> op;
  int row_threads;
};

/// A row is read once and stays in registers for its two sums and the result, and so do gamma and beta for all rows of
/// a thread: at 768 bfloat16 channels 12 and 48 registers a thread. Read from L1 for each row they would take two
/// thirds of its bandwidth.
template <class T, class Y, int N, int Held>
__global__ void __launch_bounds__(512) layer_norm_rows(LayerNormRows<T, Y> const args) {
  begin_kernel();
  __shared__ float room[2][1][most_warps];
  LayerNormOf<T, Y> const& op = args.op;
  RowPlace const place(args.row_threads);
  ChannelPart<N, Held> const gammas(op.gamma, op.channels, place), betas(op.beta, op.channels, place);
  float const inverse = 1.0f / static_cast<float>(op.channels);
  std::int64_t const step = std::int64_t{gridDim.x} * place.rows_in_block;
  auto const part_of = [&](std::int64_t row) {
    return RowPart<T, N, Held>(op.x + row * op.channels, op.channels, place, row < op.rows);
  };
  std::int64_t base = std::int64_t{blockIdx.x} * place.rows_in_block;
  // The next row is on its way while this one is summed up.
  for (RowPart<T, N, Held> next = part_of(base + place.row_in_block); base < op.rows; base += step) {
    std::int64_t const row = base + place.row_in_block;
    bool const live = row < op.rows;
    RowPart<T, N, Held> const x = next;
    next = part_of(row + step);
    float sum[1] = {0}, squares[1] = {0};
    x.each([&](int, std::int64_t, float const(&values)[N]) {
#pragma unroll
      for (float const value : values) sum[0] += value;
    });
    row_sums(sum, args.row_threads, room[0]);
    float const mean = sum[0] * inverse;
    x.each([&](int, std::int64_t, float const(&values)[N]) {
#pragma unroll
      for (float const value : values) squares[0] += (value - mean) * (value - mean);
    });
    row_sums(squares, args.row_threads, room[1]);
    float const rstd = 1.0f / sqrtf(squares[0] * inverse + op.eps);
    Y* const y = op.y + row * op.channels;
    x.each([&](int k, std::int64_t i, float const(&values)[N]) {
      float gamma[N], beta[N], result[N];
      gammas.get(k, i, gamma);
      betas.get(k, i, beta);
#pragma unroll
      for (int j = 0; j < N; ++j) result[j] = (values[j] - mean) * rstd * gamma[j] + beta[j];
      store(y + i, result);
    });
    if (live && place.first == 0) {
      if (op.mean != nullptr) op.mean[row] = mean;
      if (op.rstd != nullptr) op.rstd[row] = rstd;
    }
  }
}

template <class T, class Y>
struct LayerNormGradientRows {
  LayerNormGradientOf<T, Y> op;
  float* partial;  ///< (blocks, 2, channels): each block's sums for dgamma and dbeta; null where they are not summed
  int row_threads;
};

/// dx, and each block's part of dgamma and dbeta. A thread keeps the sums of its own columns over all rows that it
/// visits in registers: at 768 bfloat16 channels 48, beside 24 with x and dy as they lie in memory.
template <class T, class Y, int N, int Held>
__global__ void __launch_bounds__(512) layer_norm_gradient_rows(LayerNormGradientRows<T, Y> const args) {
  begin_kernel();
  __shared__ float room[2][2][most_warps];
  LayerNormGradientOf<T, Y> const& op = args.op;
  RowPlace const place(args.row_threads);
  constexpr int held = Held > 0 ? Held : 1;
  float to_gamma[held][N] = {}, to_beta[held][N] = {};
  float const inverse = 1.0f / static_cast<float>(op.channels);
  std::int64_t const step = std::int64_t{gridDim.x} * place.rows_in_block;
  int turn = 0;
  for (std::int64_t base = std::int64_t{blockIdx.x} * place.rows_in_block; base < op.rows; base += step) {
    std::int64_t const row = base + place.row_in_block;
    bool const live = row < op.rows;
    RowPart<T, N, Held> const x(op.x + row * op.channels, op.channels, place, live);
    RowPart<Y, N, Held> const dy(op.dy + row * op.channels, op.channels, place, live);
    RowPart<T, N, Held> const add(op.dx_add + row * op.channels, op.channels, place, live && op.dx_add != nullptr);
    float const mean = live ? op.mean[row] : 0.0f, rstd = live ? op.rstd[row] : 0.0f;
    float sums[2] = {0, 0};  // of h and of h * xh
    dy.each_with(x, [&](int k, std::int64_t i, float const(&d)[N], float const(&value)[N]) {
      float gamma[N];
      load_constant(op.gamma + i, gamma);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float const hat = (value[j] - mean) * rstd, h = d[j] * gamma[j];
        sums[0] += h;
        sums[1] += h * hat;
        if constexpr (Held > 0) {
          to_gamma[k][j] += d[j] * hat;
          to_beta[k][j] += d[j];
        }
      }
    });
    if (op.dx == nullptr) continue;
    row_sums(sums, args.row_threads, room[turn]);
    turn ^= 1;
    float const mean_h = sums[0] * inverse, mean_p = sums[1] * inverse;
    dy.each_with(x, [&](int k, std::int64_t i, float const(&d)[N], float const(&value)[N]) {
      float gamma[N], result[N], more[N] = {};
      load_constant(op.gamma + i, gamma);
      if (op.dx_add != nullptr) add.get(k, i, more);
#pragma unroll
      for (int j = 0; j < N; ++j)
        result[j] = rstd * (d[j] * gamma[j] - mean_h - (value[j] - mean) * rstd * mean_p) + more[j];
      store(op.dx + row * op.channels + i, result);
    });
  }
  if constexpr (Held > 0) {
    if (args.partial == nullptr) return;
    float* const own = args.partial + std::int64_t{blockIdx.x} * 2 * op.channels;
    store_block_sums(to_gamma, own, op.channels, place);
    store_block_sums(to_beta, own + op.channels, op.channels, place);
  }
}

/// dgamma and dbeta of rows that registers cannot hold, column by column.
template <class T, class Y>
struct LayerNormColumns {
  LayerNormGradientOf<T, Y> op;

  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[2][N]) const {
    float d[N], x[N];
    load(op.dy + row * op.channels + column, d);
    load(op.x + row * op.channels + column, x);
    float const mean = op.mean[row], rstd = op.rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sums[0][j] += d[j] * ((x[j] - mean) * rstd);
      sums[1][j] += d[j];
    }
  }
};

}  // namespace detail

/// See kernel::LayerNorm. Cost: one read and one write of the rows while a row has at most 16,384 channels of bfloat16
/// or 8,192 of float and 16-byte accesses fit; else it is read three times, from caches as far as they reach.
template <class T, class Y>
void layer_norm(Context& context, LayerNormOf<T, Y> const& args) {
  if (args.rows <= 0 || args.channels <= 0) return;
  detail::RowPlan const plan =
      detail::plan_rows<T>(args.channels, 4, 128, {args.x, args.y, args.gamma, args.beta});
  detail::with_plan<T, 4>(plan, [&](auto elements, auto held) {
    detail::launch_blocks(context, detail::walking_blocks(args.rows, plan), plan.block_threads,
                          detail::layer_norm_rows<T, Y, elements(), held()>,
                          detail::LayerNormRows<T, Y>{args, plan.row_threads});
  });
}

/// See kernel::LayerNormGradient. Two kernels: blocks of rows with a sum of each column for each block, then those sums
/// in the order of the blocks, whose number depends on the shape alone. Cost: one read of dy, x and dx_add, one write
/// of dx, and 2.2 MB for the sums at 1,024 channels.
template <class T, class Y>
void layer_norm_gradient(Context& context, LayerNormGradientOf<T, Y> const& args) {
  if (args.channels <= 0) return;
  bool const parameters = args.dgamma != nullptr || args.dbeta != nullptr;
  if (args.dx == nullptr && !parameters) return;
  detail::RowPlan const plan = detail::plan_rows<T>(args.channels, 3, 256,
                                                    {args.x, args.dy, args.gamma, args.dx, args.dx_add});
  std::int64_t const blocks = detail::summing_blocks(args.rows, plan);
  detail::ColumnSums<2> const sums{.columns = args.channels, .out = {args.dgamma, args.dbeta}};
  if (parameters && plan.held == 0)  // before dx, which may overwrite dy
    detail::sum_columns<T>(context, detail::LayerNormColumns<T, Y>{args}, args.rows, plan.vectors, sums);
  if (plan.held == 0 && args.dx == nullptr) return;
  float* const partial =
      parameters && plan.held > 0 ? detail::partial_sums(context, blocks * 2 * args.channels) : nullptr;
  if (args.rows > 0)
    detail::with_plan<T, 3>(plan, [&](auto elements, auto held) {
      detail::launch_blocks(context, blocks, plan.block_threads,
                            detail::layer_norm_gradient_rows<T, Y, elements(), held()>,
                            detail::LayerNormGradientRows<T, Y>{args, partial, plan.row_threads});
    });
  if (partial != nullptr) detail::add_partial_sums(context, partial, args.rows > 0 ? blocks : 0, sums);
}

}  // namespace tutti::kernel::cuda
