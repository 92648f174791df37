// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Root-mean-square normalisation on a GPU: float and bfloat16 activations, statistics and weights in float.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/column_sum.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/rms_norm.hpp>

#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

template <class T, class Y>
struct RmsNormRows {
  RmsNormOf<T, Y> op;
  int row_threads;
};

template <class T, class Y, int N, int Held>
__global__ void __launch_bounds__(512) rms_norm_rows(RmsNormRows<T, Y> const args) {
  begin_kernel();
  __shared__ float room[2][1][most_warps];
  RmsNormOf<T, Y> const& op = args.op;
  RowPlace const place(args.row_threads);
  ChannelPart<N, Held> const weights(op.weight, op.channels, place);
  float const inverse = 1.0f / static_cast<float>(op.channels);
  std::int64_t const step = std::int64_t{gridDim.x} * place.rows_in_block;
  int turn = 0;
  for (std::int64_t base = std::int64_t{blockIdx.x} * place.rows_in_block; base < op.rows; base += step) {
    std::int64_t const row = base + place.row_in_block;
    bool const live = row < op.rows;
    RowPart<T, N, Held> const x(op.x + row * op.channels, op.channels, place, live);
    float squares[1] = {0};
    x.each([&](int, std::int64_t, float const(&values)[N]) {
#pragma unroll
      for (float const value : values) squares[0] += value * value;
    });
    row_sums(squares, args.row_threads, room[turn]);
    turn ^= 1;
    float const rstd = 1.0f / sqrtf(squares[0] * inverse + op.eps);
    Y* const y = op.y + row * op.channels;
    x.each([&](int k, std::int64_t i, float const(&values)[N]) {
      float weight[N], result[N];
      weights.get(k, i, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) result[j] = values[j] * rstd * weight[j];
      store(y + i, result);
    });
    if (live && place.first == 0 && op.rstd != nullptr) op.rstd[row] = rstd;
  }
}

template <class T, class Y>
struct RmsNormGradientRows {
  RmsNormGradientOf<T, Y> op;
  float* partial;  ///< (blocks, channels): each block's sums for dweight; null where they are not summed
  int row_threads;
};

/// dx, and each block's part of dweight, whose sums a thread keeps in registers as in layer normalisation.
template <class T, class Y, int N, int Held>
__global__ void __launch_bounds__(512) rms_norm_gradient_rows(RmsNormGradientRows<T, Y> const args) {
  begin_kernel();
  __shared__ float room[2][1][most_warps];
  RmsNormGradientOf<T, Y> const& op = args.op;
  RowPlace const place(args.row_threads);
  constexpr int held = Held > 0 ? Held : 1;
  float to_weight[held][N] = {};
  float const inverse = 1.0f / static_cast<float>(op.channels);
  std::int64_t const step = std::int64_t{gridDim.x} * place.rows_in_block;
  int turn = 0;
  for (std::int64_t base = std::int64_t{blockIdx.x} * place.rows_in_block; base < op.rows; base += step) {
    std::int64_t const row = base + place.row_in_block;
    bool const live = row < op.rows;
    RowPart<T, N, Held> const x(op.x + row * op.channels, op.channels, place, live);
    RowPart<Y, N, Held> const dy(op.dy + row * op.channels, op.channels, place, live);
    float const rstd = live ? op.rstd[row] : 0.0f;
    float sum[1] = {0};  // of h * xh
    dy.each_with(x, [&](int k, std::int64_t i, float const(&d)[N], float const(&value)[N]) {
      float weight[N];
      load_constant(op.weight + i, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float const product = d[j] * (value[j] * rstd);
        sum[0] += product * weight[j];
        if constexpr (Held > 0) to_weight[k][j] += product;
      }
    });
    if (op.dx == nullptr) continue;
    row_sums(sum, args.row_threads, room[turn]);
    turn ^= 1;
    float const mean_p = sum[0] * inverse;
    dy.each_with(x, [&](int, std::int64_t i, float const(&d)[N], float const(&value)[N]) {
      float weight[N], result[N], more[N] = {};
      load_constant(op.weight + i, weight);
      if (op.dx_add != nullptr) load(op.dx_add + row * op.channels + i, more);
#pragma unroll
      for (int j = 0; j < N; ++j) result[j] = rstd * (d[j] * weight[j] - value[j] * rstd * mean_p) + more[j];
      store(op.dx + row * op.channels + i, result);
    });
  }
  if constexpr (Held > 0) {
    if (args.partial == nullptr) return;
    store_block_sums(to_weight, args.partial + std::int64_t{blockIdx.x} * op.channels, op.channels, place);
  }
}

/// dweight of rows that registers cannot hold, column by column.
template <class T, class Y>
struct RmsNormColumns {
  RmsNormGradientOf<T, Y> op;

  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[1][N]) const {
    float d[N], x[N];
    load(op.dy + row * op.channels + column, d);
    load(op.x + row * op.channels + column, x);
    float const rstd = op.rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0][j] += d[j] * (x[j] * rstd);
  }
};

}  // namespace detail

/// See kernel::RmsNorm. Cost: as of layer_norm.
template <class T, class Y>
void rms_norm(Context& context, RmsNormOf<T, Y> const& args) {
  if (args.rows <= 0 || args.channels <= 0) return;
  detail::RowPlan const plan = detail::plan_rows<T>(args.channels, 4, 128, {args.x, args.y, args.weight});
  detail::with_plan<T, 4>(plan, [&](auto elements, auto held) {
    detail::launch_blocks(context, detail::walking_blocks(args.rows, plan), plan.block_threads,
                          detail::rms_norm_rows<T, Y, elements(), held()>,
                          detail::RmsNormRows<T, Y>{args, plan.row_threads});
  });
}

/// See kernel::RmsNormGradient. Cost: as of layer_norm_gradient, with half of the sums.
template <class T, class Y>
void rms_norm_gradient(Context& context, RmsNormGradientOf<T, Y> const& args) {
  if (args.channels <= 0 || (args.dx == nullptr && args.dweight == nullptr)) return;
  detail::RowPlan const plan = detail::plan_rows<T>(args.channels, 3, 256,
                                                    {args.x, args.dy, args.weight, args.dx, args.dx_add});
  std::int64_t const blocks = detail::summing_blocks(args.rows, plan);
  detail::ColumnSums<1> const sums{args.channels, {args.dweight}, args.accumulate};
  if (args.dweight != nullptr && plan.held == 0)  // before dx, which may overwrite dy
    detail::sum_columns<T>(context, detail::RmsNormColumns<T, Y>{args}, args.rows, plan.vectors, sums);
  if (plan.held == 0 && args.dx == nullptr) return;
  float* const partial =
      args.dweight != nullptr && plan.held > 0 ? detail::partial_sums(context, blocks * args.channels) : nullptr;
  if (args.rows > 0)
    detail::with_plan<T, 3>(plan, [&](auto elements, auto held) {
      detail::launch_blocks(context, blocks, plan.block_threads,
                            detail::rms_norm_gradient_rows<T, Y, elements(), held()>,
                            detail::RmsNormGradientRows<T, Y>{args, partial, plan.row_threads});
    });
  if (partial != nullptr) detail::add_partial_sums(context, partial, args.rows > 0 ? blocks : 0, sums);
}

}  // namespace tutti::kernel::cuda
