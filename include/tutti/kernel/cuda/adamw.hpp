// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The optimizer's kernels on a GPU: many tensors in one launch, scalars of the step from device memory.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::kernel::cuda {

/// What changes from step to step, in device memory: read when the kernel runs, so that a captured graph can be
/// replayed. Where one is null, the value of the contract counts.
struct AdamWScalars {
  float const* learning_rate = nullptr;
  float const* correction1 = nullptr;
  float const* correction2 = nullptr;
  float const* gradient_scale = nullptr;  ///< of the loss's scale and clipping
  ErrorWord const* mistakes = nullptr;    ///< nothing is updated where it holds one
};

namespace detail {

/// Tensors cut into chunks of equal size, one block each: chunk c belongs to the last tensor whose `first` is at most
/// c.
template <class Part, int Most, int Chunk>
struct PartTable {
  static constexpr int most = Most;
  static constexpr std::int64_t chunk = Chunk;
  int count = 0;
  std::uint32_t first[Most + 1] = {};  ///< `first[count]`: all chunks
  Part part[Most];

  void add(Part const& next) {
    part[count] = next;
    first[count + 1] = first[count] + static_cast<std::uint32_t>((next.size + chunk - 1) / chunk);
    ++count;
  }
  /// f(table) for as few tables as hold all parts of at least one element.
  template <class F>
  static void for_each_table(std::span<Part const> parts, F&& f) {
    for (std::size_t next = 0; next < parts.size();) {
      PartTable table;
      for (; next < parts.size() && table.count < most; ++next)
        if (parts[next].size > 0) table.add(parts[next]);
      if (table.count > 0) f(table);
    }
  }
  __device__ int part_of(std::uint32_t chunk_index) const {
    int found = 0;
    while (first[found + 1] <= chunk_index) ++found;
    return found;
  }
};

/// Kernel arguments hold 4 KB: 42 tensors of 88 bytes.
struct AdamWLaunch {
  AdamWScalars scalars;
  PartTable<AdamW, 42, 4096> table;
};
static_assert(sizeof(AdamWLaunch) <= 4096);

struct AdamWRates {
  float gradient_scale, beta1, keep1, beta2, keep2, inverse1, inverse2, eps, rate, shrink;

  __device__ AdamWRates(AdamW const& part, AdamWScalars const& scalars) {
    auto const of = [](float const* given, float value) { return given == nullptr ? value : *given; };
    gradient_scale = of(scalars.gradient_scale, part.gradient_scale);
    rate = of(scalars.learning_rate, part.learning_rate);
    inverse1 = 1.0f / of(scalars.correction1, part.correction1);
    inverse2 = 1.0f / of(scalars.correction2, part.correction2);
    beta1 = part.beta1;
    keep1 = 1.0f - beta1;
    beta2 = part.beta2;
    keep2 = 1.0f - beta2;
    eps = part.eps;
    shrink = 1.0f - rate * part.weight_decay;
  }
};

/// N elements from i on.
template <int N>
__device__ void adamw_elements(AdamW const& part, AdamWRates const& rates, std::int64_t i) {
  float g[N], m[N], v[N], p[N];
  load(part.gradient + i, g);
  load(part.m + i, m);
  load(part.v + i, v);
  load(part.parameter + i, p);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float const scaled = g[j] * rates.gradient_scale;
    m[j] = rates.keep1 * scaled + rates.beta1 * m[j];
    v[j] = rates.keep2 * scaled * scaled + rates.beta2 * v[j];
    p[j] = rates.shrink * p[j] - rates.rate * (m[j] * rates.inverse1 / (sqrtf(v[j] * rates.inverse2) + rates.eps));
  }
  store(part.m + i, m);
  store(part.v + i, v);
  store(part.parameter + i, p);
  if (part.copy != nullptr) store(part.copy + i, p);
  if (part.cleared != nullptr) {
    float const zeros[N] = {};
    store(part.cleared + i, zeros);
  }
}

/// Four accesses of 16 bytes a thread are in flight: 64 KB for the 1,024 threads that fit into a processor with 52
/// registers each.
template <class = void>
__global__ void __launch_bounds__(256) adamw_chunks(__grid_constant__ AdamWLaunch const args) {
  begin_kernel();
  if (args.scalars.mistakes != nullptr && *args.scalars.mistakes != no_error) return;
  int const index = args.table.part_of(blockIdx.x);
  AdamW const& part = args.table.part[index];
  AdamWRates const rates(part, args.scalars);
  std::int64_t const begin = std::int64_t{blockIdx.x - args.table.first[index]} * args.table.chunk;
  std::int64_t const end = begin + args.table.chunk < part.size ? begin + args.table.chunk : part.size;
  bool const aligned = ((reinterpret_cast<std::uintptr_t>(part.parameter) | reinterpret_cast<std::uintptr_t>(part.m) |
                         reinterpret_cast<std::uintptr_t>(part.v) | reinterpret_cast<std::uintptr_t>(part.gradient) |
                         reinterpret_cast<std::uintptr_t>(part.cleared) |
                         2 * reinterpret_cast<std::uintptr_t>(part.copy)) %
                        16) == 0;
  std::int64_t i = begin + std::int64_t{threadIdx.x} * 4;
  if (aligned)
    for (; i + 4 <= end; i += 1024) adamw_elements<4>(part, rates, i);
  for (; i < end; i += 1024)
    for (std::int64_t one = i; one < i + 4 && one < end; ++one) adamw_elements<1>(part, rates, one);
}

struct SquareSumPart {
  std::int64_t size = 0;
  float const* x = nullptr;
};
struct SquareSumLaunch {
  double* partial;  ///< one a chunk
  PartTable<SquareSumPart, 190, 16384> table;
};
static_assert(sizeof(SquareSumLaunch) <= 4096);

/// The sum over the block of `value`; complete in thread 0. Ends with no barrier.
__device__ inline double block_sum(double value) {
  __shared__ double room[most_warps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0)
    for (unsigned warp = 0; warp < (blockDim.x + 31) / 32; ++warp) total += room[warp];
  return total;
}

template <class = void>
__global__ void __launch_bounds__(256) square_sum_chunks(__grid_constant__ SquareSumLaunch const args) {
  begin_kernel();
  int const index = args.table.part_of(blockIdx.x);
  SquareSumPart const& part = args.table.part[index];
  std::int64_t const begin = std::int64_t{blockIdx.x - args.table.first[index]} * args.table.chunk;
  std::int64_t const end = begin + args.table.chunk < part.size ? begin + args.table.chunk : part.size;
  double sum = 0;
  std::int64_t i = begin + std::int64_t{threadIdx.x} * 4;
  if (reinterpret_cast<std::uintptr_t>(part.x) % 16 == 0) {
#pragma unroll 4
    for (; i + 4 <= end; i += 1024) {
      float four[4];
      load(part.x + i, four);
#pragma unroll
      for (float const value : four) sum += double{value} * double{value};
    }
  }
  for (; i < end; i += 1024)
    for (std::int64_t one = i; one < i + 4 && one < end; ++one) sum += double{part.x[one]} * double{part.x[one]};
  double const total = block_sum(sum);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = total;
}

struct DoubleSum {
  double const* from;
  std::int64_t count;
  double const* base;  ///< added by block 0 where there is one
  double* to;          ///< one a block
};
/// Each block adds 16,384 values, in an order of its own.
template <class = void>
__global__ void __launch_bounds__(1024) add_doubles(DoubleSum const args) {
  begin_kernel();
  std::int64_t const begin = std::int64_t{blockIdx.x} * 16384;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < begin + 16384 && i < args.count; i += 1024) sum += args.from[i];
  double const total = block_sum(sum);
  if (threadIdx.x == 0) args.to[blockIdx.x] = (args.base == nullptr ? 0.0 : *args.base) + total;
}

}  // namespace detail

/// See kernel::AdamW, for any number of tensors; one launch for every 42. Cost: 28 bytes of memory traffic an element,
/// 2 more with a copy, 4 more with the gradient cleared.
inline void adamw(Context& context, std::span<AdamW const> tensors, AdamWScalars const& scalars = {}) {
  detail::PartTable<AdamW, 42, 4096>::for_each_table(tensors, [&](auto const& table) {
    detail::launch_blocks(context, table.first[table.count], 256, detail::adamw_chunks<>,
                          detail::AdamWLaunch{scalars, table});
  });
}
inline void adamw(Context& context, AdamW const& args, AdamWScalars const& scalars = {}) {
  adamw(context, {&args, 1}, scalars);
}

/// *out = *base (0 where base is null) + the sum of all squares of all tensors, for the global norm. `base` may be
/// `out`. The order of additions depends on the sizes alone. Cost: 4 bytes an element.
inline void square_sum(Context& context, std::span<SquareSum const> tensors, double const* base, double* out) {
  using Table = detail::PartTable<detail::SquareSumPart, 190, 16384>;
  std::int64_t chunks = 0;
  for (SquareSum const& tensor : tensors) chunks += (tensor.size + Table::chunk - 1) / Table::chunk;
  // Every level of sums lies behind the one that it adds up.
  std::int64_t total = chunks;
  for (std::int64_t level = chunks; level > 1; total += level) level = (level + 16383) / 16384;
  auto* const partial = static_cast<double*>(context.scratch(static_cast<std::size_t>(total) * sizeof(double)));
  double* next = partial;
  for (std::size_t first = 0; first < tensors.size(); first += Table::most) {
    detail::SquareSumLaunch args{next, {}};
    for (SquareSum const& tensor : tensors.subspan(first, std::min<std::size_t>(Table::most, tensors.size() - first)))
      if (tensor.size > 0) args.table.add({tensor.size, tensor.x});
    if (args.table.count == 0) continue;
    detail::launch_blocks(context, args.table.first[args.table.count], 256, detail::square_sum_chunks<>, args);
    next += args.table.first[args.table.count];
  }
  double const* from = partial;
  for (std::int64_t level = chunks;;) {
    std::int64_t const sums = std::max<std::int64_t>(1, (level + 16383) / 16384);
    bool const last = sums == 1;
    detail::launch_blocks(context, sums, 1024, detail::add_doubles<>,
                          detail::DoubleSum{from, level, last ? base : nullptr, last ? out : next});
    if (last) return;
    from = next;
    next += sums;
    level = sums;
  }
}

/// See kernel::SquareSum.
inline void square_sum(Context& context, SquareSum const& args) {
  square_sum(context, {&args, 1}, args.accumulate ? args.out : nullptr, args.out);
}

}  // namespace tutti::kernel::cuda
