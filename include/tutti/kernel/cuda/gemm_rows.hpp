// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Matrix products of few rows, which memory bounds: every word of the right operand is read once, at bandwidth; and
/// what is done to a result where cuBLASLt's own epilogue cannot.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/gemm.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda::detail {

/// GemmEpilogue as kernels see it; what is (M, N) has the result's type, and `bias` its own.
struct EpilogueArguments {
  std::int64_t c_row = 0, residual_stride = 0;
  float const* bias = nullptr;
  void const* narrow_bias = nullptr;
  void* saved = nullptr;
  bool gelu = false;
  void const* gelu_gradient = nullptr;
  void const* residual = nullptr;
};

__device__ inline float gelu(float x) {
  constexpr float root = 0.797884560802865f;  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(root * (x + 0.044715f * x * x * x)));
}
__device__ inline float gelu_slope(float x) {
  constexpr float root = 0.797884560802865f;
  float const t = tanhf(root * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * root * (1.0f + 3.0f * 0.044715f * x * x);
}

/// What becomes of element (row, column), which is `value` times scales so far.
template <class C>
__device__ float finish(EpilogueArguments const& e, float value, std::int64_t row, std::int64_t column) {
  std::int64_t const at = row * e.c_row + column;
  if (e.bias != nullptr) value += e.bias[column];
  if (e.narrow_bias != nullptr) value += float(static_cast<C const*>(e.narrow_bias)[column]);
  if (e.saved != nullptr) static_cast<C*>(e.saved)[at] = C(value);
  if (e.gelu) value = gelu(value);
  if (e.gelu_gradient != nullptr) value *= gelu_slope(float(static_cast<C const*>(e.gelu_gradient)[at]));
  if (e.residual != nullptr) value += float(static_cast<C const*>(e.residual)[row * e.residual_stride + column]);
  return value;
}

struct FewRowsArguments {
  std::int64_t n = 0, k = 0, a_row = 0, b_column = 0;
  void const* a = nullptr;
  void const* b = nullptr;
  void* c = nullptr;
  float alpha = 1, beta = 0;
  bool rounds = false;  ///< float operands are rounded to bfloat16
  EpilogueArguments epilogue;
};
inline constexpr int few_rows = 4;
inline constexpr int few_rows_warps = 8;

/// A warp per column of c: all of its right operand, 16 bytes a lane and four of them in flight, so that 16 warps a
/// processor keep 32 KB under way, what 4.8 TB/s times 0.7 us asks of each. Left operands come from the first-level
/// cache.
template <class A, class B, class C, int Rows>
__global__ void __launch_bounds__(32 * few_rows_warps)
    multiply_few_rows(__grid_constant__ FewRowsArguments const arguments) {
  begin_kernel();
  constexpr int vector = 16 / static_cast<int>(sizeof(B)), unroll = 4;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t const column = std::int64_t{blockIdx.x} * few_rows_warps + static_cast<int>(threadIdx.x) / 32;
  if (column >= arguments.n) return;
  auto const* const a = static_cast<A const*>(arguments.a);
  auto const* const b = static_cast<B const*>(arguments.b) + column * arguments.b_column;
  float sums[Rows] = {};
  auto const add = [&](float const (&right)[vector], std::int64_t at) {
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      float left[vector];
#pragma unroll
      for (int part = 0; part < vector; part += 4) {
        float four[4];
        load(a + row * arguments.a_row + at + part, four);
#pragma unroll
        for (int index = 0; index < 4; ++index) left[part + index] = four[index];
      }
#pragma unroll
      for (int index = 0; index < vector; ++index) {
        float const x = sizeof(A) == 4 && arguments.rounds ? float(bfloat16(left[index])) : left[index];
        sums[row] = fmaf(x, right[index], sums[row]);
      }
    }
  };
  auto const fetch = [&](float (&right)[vector], std::int64_t at) {
    load(b + at, right);
    if (sizeof(B) == 4 && arguments.rounds)
#pragma unroll
      for (float& value : right) value = float(bfloat16(value));
  };
  std::int64_t at = lane * vector;
  for (; at + (unroll - 1) * 32 * vector < arguments.k; at += unroll * 32 * vector) {
    float right[unroll][vector];
#pragma unroll
    for (int index = 0; index < unroll; ++index) fetch(right[index], at + index * 32 * vector);
#pragma unroll
    for (int index = 0; index < unroll; ++index) add(right[index], at + index * 32 * vector);
  }
  for (; at < arguments.k; at += 32 * vector) {
    float right[vector];
    fetch(right, at);
    add(right, at);
  }
#pragma unroll
  for (int row = 0; row < Rows; ++row)
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], distance);
  if (lane >= Rows) return;
  float sum = sums[0];
#pragma unroll
  for (int row = 1; row < Rows; ++row) sum = lane == row ? sums[row] : sum;
  C& c = static_cast<C*>(arguments.c)[lane * arguments.epilogue.c_row + column];
  float value = arguments.alpha * sum;
  if (arguments.beta != 0) value += arguments.beta * float(c);
  c = C(finish<C>(arguments.epilogue, value, lane, column));
}

struct FinishArguments {
  std::int64_t m = 0, n = 0, raw_row = 0;
  bool in_place = false;       ///< c holds the product, else `raw` or, where that is null, zero
  float const* raw = nullptr;
  void* c = nullptr;
  float beta = 0;              ///< of c, unless in place
  EpilogueArguments epilogue;
};

/// Elements of a product become the result.
template <class C>
__global__ void __launch_bounds__(256) finish_product(__grid_constant__ FinishArguments const arguments) {
  begin_kernel();
  for (std::int64_t item = std::int64_t{blockIdx.x} * 256 + threadIdx.x; item < arguments.m * arguments.n;
       item += std::int64_t{gridDim.x} * 256) {
    std::int64_t const row = item / arguments.n, column = item % arguments.n;
    C& c = static_cast<C*>(arguments.c)[row * arguments.epilogue.c_row + column];
    float value = 0;
    if (arguments.in_place) value = float(c);
    else if (arguments.raw != nullptr) value = arguments.raw[row * arguments.raw_row + column];
    if (arguments.beta != 0) value += arguments.beta * float(c);
    c = C(finish<C>(arguments.epilogue, value, row, column));
  }
}

struct RetypeArguments {
  std::int64_t rows = 0, columns = 0, from_row = 0, to_row = 0;
  void const* from = nullptr;
  void* to = nullptr;
};

/// A matrix in another type, row by row: float to bfloat16 rounds to nearest even.
template <class From, class To>
__global__ void __launch_bounds__(256) retype(__grid_constant__ RetypeArguments const arguments) {
  begin_kernel();
  for (std::int64_t item = std::int64_t{blockIdx.x} * 256 + threadIdx.x; item < arguments.rows * arguments.columns;
       item += std::int64_t{gridDim.x} * 256) {
    std::int64_t const row = item / arguments.columns, column = item % arguments.columns;
    static_cast<To*>(arguments.to)[row * arguments.to_row + column] =
        To(float(static_cast<From const*>(arguments.from)[row * arguments.from_row + column]));
  }
}

struct SumColumnsArguments {
  std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;
  void const* from = nullptr;
  void* to = nullptr;
};

/// Sums over the rows of a matrix, 32 columns a block: 32 threads share a column's rows and their sums are added in
/// order. Enough blocks to read at bandwidth from about 4,000 columns on; below that it is the fallback of an epilogue.
template <class From, class To>
__global__ void __launch_bounds__(1024) sum_columns(__grid_constant__ SumColumnsArguments const arguments) {
  begin_kernel();
  __shared__ float parts[32][33];
  int const lane = static_cast<int>(threadIdx.x) % 32, part = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const column = std::int64_t{blockIdx.x} * 32 + lane;
  float sum = 0;
  if (column < arguments.columns)
#pragma unroll 8
    for (std::int64_t row = part; row < arguments.rows; row += 32)
      sum += float(
          static_cast<From const*>(arguments.from)[row * arguments.row_stride + column * arguments.column_stride]);
  parts[part][lane] = sum;
  __syncthreads();
  if (part != 0 || column >= arguments.columns) return;
#pragma unroll
  for (int other = 1; other < 32; ++other) sum += parts[other][lane];
  static_cast<To*>(arguments.to)[column] = To(sum);
}

}  // namespace tutti::kernel::cuda::detail
