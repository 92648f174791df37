// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Dropout on a GPU.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/dropout.hpp>
#include <tutti/tensor/random.hpp>

#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

/// A block of four words a thread and turn.
template <class = void>
__global__ void __launch_bounds__(256) dropout_blocks(Dropout const op) {
  begin_kernel();
  std::uint32_t const threshold = dropout_threshold(op.p);
  float const scale = static_cast<float>(dropout_scale(op.p));
  auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  std::uint64_t const seed = *op.seed, first = *op.first, size = static_cast<std::uint64_t>(op.size);
  std::uint64_t const begin = first / 4, end = (first + size + 3) / 4;
  for (std::uint64_t block = begin + std::uint64_t{blockIdx.x} * 256 + threadIdx.x; block < end;
       block += std::uint64_t{gridDim.x} * 256) {
    auto const four = philox4x32({low(block), low(block >> 32), low(*op.step), low(*op.stream)},
                                 {low(seed), low(seed >> 32)});
#pragma unroll
    for (std::uint64_t k = 0; k < 4; ++k) {
      std::uint64_t const i = 4 * block + k - first;  // what is before `first` wraps, and is beyond the end
      if (i < size) op.y[i] = four[k] < threshold ? 0.0f : op.x[i] * scale;
    }
  }
}

}  // namespace detail

/// See kernel::Dropout, whose pointers are all the device's. Cost: one read, one write.
inline void dropout(Context& context, Dropout const& args) {
  if (args.size <= 0) return;
  detail::launch_blocks(context, detail::access_blocks((args.size + 6) / 4), 256, detail::dropout_blocks<>, args);
}

}  // namespace tutti::kernel::cuda
