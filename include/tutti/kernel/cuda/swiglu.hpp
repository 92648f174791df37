// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The gate of SwiGLU feed-forward layers on a GPU.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/activation.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/swiglu.hpp>

#include <cstdint>
#include <initializer_list>

namespace tutti::kernel::cuda {

namespace detail {

/// One access of each operand a thread: 32 bytes in flight for the 2,048 threads of a processor.
template <class T, int N>
__global__ void __launch_bounds__(256) swiglu_elements(SwiGluOf<T> const op) {
  begin_kernel();
  std::int64_t const pieces = op.channels / N, all = op.rows * pieces;
  for (std::int64_t index = std::int64_t{blockIdx.x} * 256 + threadIdx.x; index < all;
       index += std::int64_t{gridDim.x} * 256) {
    std::int64_t const row = index / pieces, i = (index - row * pieces) * N;
    float gate[N], up[N];
    load(op.gate + row * op.gate_stride + i, gate);
    load(op.up + row * op.up_stride + i, up);
#pragma unroll
    for (int j = 0; j < N; ++j) up[j] *= silu(gate[j]);
    store(op.y + row * op.y_stride + i, up);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(256) swiglu_gradient_elements(SwiGluGradientOf<T> const op) {
  begin_kernel();
  std::int64_t const pieces = op.channels / N, all = op.rows * pieces;
  for (std::int64_t index = std::int64_t{blockIdx.x} * 256 + threadIdx.x; index < all;
       index += std::int64_t{gridDim.x} * 256) {
    std::int64_t const row = index / pieces, i = (index - row * pieces) * N;
    float dy[N], gate[N], up[N];
    load(op.dy + row * op.dy_stride + i, dy);
    load(op.gate + row * op.gate_stride + i, gate);
    load(op.up + row * op.up_stride + i, up);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      Sigmoid<float> const s(gate[j]);
      float const value = gate[j] * s.value, slope = s.value * (1.0f + gate[j] * s.rest);
      up[j] = dy[j] * up[j] * slope;
      gate[j] = dy[j] * value;
    }
    if (op.dgate != nullptr) store(op.dgate + row * op.dgate_stride + i, up);
    if (op.dup != nullptr) store(op.dup + row * op.dup_stride + i, gate);
  }
}

/// Whether rows that far apart all begin at multiples of 16 bytes.
template <class T>
bool strides_fit(std::initializer_list<std::int64_t> strides) {
  for (std::int64_t const stride : strides)
    if (stride % vector_size<T> != 0) return false;
  return true;
}

}  // namespace detail

/// See kernel::SwiGlu. Cost: two reads, one write.
template <class T>
void swiglu(Context& context, SwiGluOf<T> const& args) {
  std::int64_t const elements = args.rows * args.channels;
  if (elements <= 0) return;
  constexpr int width = detail::vector_size<T>;
  if (detail::vectors_fit<T>(args.channels, {args.gate, args.up, args.y}) &&
      detail::strides_fit<T>({args.gate_stride, args.up_stride, args.y_stride}))
    detail::launch_blocks(context, detail::access_blocks(elements / width), 256, detail::swiglu_elements<T, width>,
                          args);
  else detail::launch_blocks(context, detail::access_blocks(elements), 256, detail::swiglu_elements<T, 1>, args);
}

/// See kernel::SwiGluGradient. Cost: three reads, two writes.
template <class T>
void swiglu_gradient(Context& context, SwiGluGradientOf<T> const& args) {
  std::int64_t const elements = args.rows * args.channels;
  if (elements <= 0 || (args.dgate == nullptr && args.dup == nullptr)) return;
  constexpr int width = detail::vector_size<T>;
  if (detail::vectors_fit<T>(args.channels, {args.dy, args.gate, args.up, args.dgate, args.dup}) &&
      detail::strides_fit<T>(
          {args.dy_stride, args.gate_stride, args.up_stride, args.dgate_stride, args.dup_stride}))
    detail::launch_blocks(context, detail::access_blocks(elements / width), 256,
                          detail::swiglu_gradient_elements<T, width>, args);
  else
    detail::launch_blocks(context, detail::access_blocks(elements), 256, detail::swiglu_gradient_elements<T, 1>, args);
}

}  // namespace tutti::kernel::cuda
