// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The ceilings of a device, measured: the rate of a large matrix product, the bandwidth of a large copy.

#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/gemm.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/tensor/random.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace tutti::kernel::cuda {

namespace detail {

template <class T>
struct RandomMatrix {
  T* to;
  std::int64_t count;
};
/// In [-1, 1): products of zeros take less power, and are faster than any that matter.
template <class T>
__global__ void fill_random(RandomMatrix<T> const args) {
  begin_kernel();
  std::int64_t const i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= args.count) return;
  std::uint32_t const word = CounterRandom{1, 0}.bits(static_cast<std::uint64_t>(i));
  args.to[i] = T(static_cast<float>(word >> 8) * 0x1p-23f - 1.0f);
}

/// The shortest of three runs in seconds, after one that does not count.
template <class F>
double shortest_run(tutti::cuda::Stream const& stream, F&& enqueue) {
  tutti::cuda::Event const begin(stream.device(), tutti::cuda::Event::Timing::on),
      end(stream.device(), tutti::cuda::Event::Timing::on);
  double least = 0;
  for (int run = 0; run < 4; ++run) {
    begin.record(stream);
    enqueue();
    end.record(stream);
    end.wait();
    double const seconds = std::max(1e-3 * double{tutti::cuda::milliseconds_between(begin, end)}, 1e-9);
    if (run == 1 || (run > 1 && seconds < least)) least = seconds;
  }
  return least;
}

template <class T>
double product_rate(Blas& blas, Product product, std::int64_t n) {
  Context& context = blas.context();
  tutti::cuda::DeviceMemory const memory(context.stream(), static_cast<std::size_t>(3 * n * n) * sizeof(T));
  T* const a = static_cast<T*>(memory.data());
  launch_blocks(context, (2 * n * n + 255) / 256, 256, fill_random<T>, RandomMatrix<T>{a, 2 * n * n});
  Gemm gemm = linear_product<T>(n, n, n, a, a + n * n, a + 2 * n * n);
  gemm.product = product;
  double const flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  return flops / shortest_run(context.stream(), [&] { cuda::gemm(blas, gemm); });
}

}  // namespace detail

/// Floating-point operations a second of a square product that keeps all of the device busy: 8,448 on 132 processors,
/// 64 for each. Takes its memory for the time being, 3 n^2 elements. Blocking.
inline double measure_peak_flops(Blas& blas, Product product) {
  std::int64_t const n = std::int64_t{64} * std::max(blas.context().properties().processors, 2);
  return product == Product::bfloat16 ? detail::product_rate<bfloat16>(blas, product, n)
                                      : detail::product_rate<float>(blas, Product::float32, n);
}

/// Bytes a second, read and written together, of copying a block of 1 MiB for each processor. Blocking.
inline double measure_copy_bandwidth(Context& context) {
  std::size_t const bytes = static_cast<std::size_t>(std::max(context.properties().processors, 2)) << 20;
  tutti::cuda::DeviceMemory const from(context.stream(), bytes), to(context.stream(), bytes);
  tutti::cuda::fill_bytes(context.stream(), from.data(), 0x5a, bytes);
  return 2.0 * static_cast<double>(bytes) / detail::shortest_run(context.stream(), [&] {
    tutti::cuda::copy_on_device(context.stream(), to.data(), from.data(), bytes);
  });
}

}  // namespace tutti::kernel::cuda
