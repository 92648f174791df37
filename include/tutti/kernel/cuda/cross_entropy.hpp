// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Softmax cross-entropy on a GPU: one read of the logits, one write of their gradient, which may take their place.

#include <tutti/core/error.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tutti::kernel::cuda {

/// What the targets alone tell, in device memory.
struct TargetCount {
  float divisor = 1;    ///< of the loss: rows that count, 1 where there is none
  float row_weight = 0; ///< of each row's gradient: scale / divisor
};

/// Rows of logits with their targets, for losses that come in chunks of rows; the gradient may overwrite the logits.
template <class T>
struct LogitRowsOf {
  std::int64_t rows = 0, vocabulary = 0;
  std::int64_t stride = 0;  ///< elements between rows, of logits and gradient
  std::int64_t padded = 0;  ///< classes from the vocabulary up to here get a gradient of 0; at least the vocabulary
  std::int32_t ignored = -1;
  TargetCount const* count = nullptr;  ///< in device memory
  T const* logits = nullptr;
  std::int32_t const* targets = nullptr;
  float* row_losses = nullptr;  ///< (rows); 0 where ignored
  T* gradient = nullptr;        ///< or null
};

namespace detail {

struct CountTargets {
  std::int32_t const* targets;
  std::int64_t rows, vocabulary;
  std::int32_t ignored;
  float scale;
  TargetCount* count;
  ErrorWord* error;
};

/// One block: targets are few beside logits.
template <class = void>
__global__ void __launch_bounds__(1024) count_targets_block(CountTargets const args) {
  begin_kernel();
  __shared__ int room[most_warps];
  int valid = 0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < args.rows; row += 1024) {
    std::int32_t const target = args.targets[row];
    if (target == args.ignored) continue;
    if (target >= 0 && target < args.vocabulary) ++valid;
    else report(args.error, Mistake::target, row, target);
  }
  valid = warp_sum(valid);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = valid;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int total = 0;
  for (int warp = 0; warp < most_warps; ++warp) total += room[warp];
  args.count->divisor = total > 0 ? static_cast<float>(total) : 1.0f;
  args.count->row_weight = static_cast<float>(double{args.scale} / (total > 0 ? static_cast<double>(total) : 1.0));
}

template <class T>
struct CrossEntropyRows {
  LogitRowsOf<T> op;
  int held;  ///< accesses a thread keeps in shared memory between the two passes
};

/// Accesses of a row at multiples of 16 bytes: the first begins at or before the row and the last ends at or behind it,
/// so rows of any alignment are walked. What lies outside the row is neither read nor written.
template <class T>
class RowAccess {
 public:
  static constexpr int size = vector_size<T>;

  /// `whole` is false where the second matrix that is walked along lies otherwise: then elements go one by one.
  __device__ RowAccess(T const* row, int n, bool whole)
      : skip_(static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T))), n_(n), whole_(whole) {}

  __device__ int count() const { return (skip_ + n_ + size - 1) / size; }
  /// Element of the row that access `index` starts with; negative where it starts before the row.
  __device__ int first(int index) const { return index * size - skip_; }

  __device__ Bits<size, T> read(T const* row, int index) const {
    int const i = first(index);
    if (i >= 0 && i + size <= n_) return Bits<size, T>::of(row + i);
    float values[size];
#pragma unroll
    for (int j = 0; j < size; ++j) values[j] = i + j >= 0 && i + j < n_ ? float(row[i + j]) : -INFINITY;
    return Bits<size, T>::from(values);
  }
  __device__ void write(T* row, int index, float const (&values)[size]) const {
    int const i = first(index);
    if (whole_ && i >= 0 && i + size <= n_) return store(row + i, values);
#pragma unroll
    for (int j = 0; j < size; ++j)
      if (i + j >= 0 && i + j < n_) row[i + j] = T(values[j]);
  }

 private:
  int skip_, n_;
  bool whole_;
};

/// e to the power of a difference to the largest: what is not a normal number is 0.
__device__ __forceinline__ float exp_below(float difference) { return exp2_approximate(difference * 1.44269504f); }

/// The larger maximum with both sums of exponentials, which are relative to their maxima.
__device__ inline void merge_softmax(float& maximum, float& sum, float other_maximum, float other_sum) {
  float const larger = fmaxf(maximum, other_maximum);
  if (larger == -INFINITY) return;
  sum = sum * exp_below(maximum - larger) + other_sum * exp_below(other_maximum - larger);
  maximum = larger;
}
/// Of `lanes` neighbouring lanes of a warp, the same bits in each.
template <int lanes>
__device__ void merge_softmax_of_lanes(float& maximum, float& sum) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    merge_softmax(maximum, sum, __shfl_xor_sync(0xffffffffu, maximum, distance),
                  __shfl_xor_sync(0xffffffffu, sum, distance));
}

/// One block of 512 threads a row, two blocks a processor, so that one reads while the other reduces or writes. The
/// first pass keeps a running maximum and sum (Milakov, Gimelshein 2018, arXiv 1805.02867) and what it read in shared
/// memory, each thread in words of its own: 101 KB are a row of 50,304 bfloat16, so the second pass reads nothing. What
/// does not fit is read again, from L2 mostly: the rows under way are 132 * 2.
/// Four accesses a thread in flight: 64 KB a processor. What bounds it is how many instructions an element takes: the
/// 6.2 us that the 200 KB of a row take are 31 of them on each of 128 lanes.
template <class T>
__global__ void __launch_bounds__(512, 2) cross_entropy_rows(CrossEntropyRows<T> const args) {
  begin_kernel();
  constexpr int size = vector_size<T>, threads = 512, warps = threads / 32, batch = 4;
  __shared__ float maxima[warps], sums[warps];
  LogitRowsOf<T> const& op = args.op;
  auto* const held = tutti::cuda::dynamic_shared<uint4>();
  std::int64_t const row = blockIdx.x;
  int const n = static_cast<int>(op.vocabulary), target = op.targets[row];
  T const* const z = op.logits + row * op.stride;
  T* const dz = op.gradient == nullptr ? nullptr : op.gradient + row * op.stride;
  int const thread = static_cast<int>(threadIdx.x);
  if (target == op.ignored || target < 0 || target >= n) {
    if (thread == 0) op.row_losses[row] = 0;
    if (dz != nullptr)
      for (std::int64_t i = thread; i < op.padded; i += threads) dz[i] = T(0.0f);
    return;
  }
  bool const together =
      dz == nullptr || (reinterpret_cast<std::uintptr_t>(z) - reinterpret_cast<std::uintptr_t>(dz)) % 16 == 0;
  RowAccess<T> const access(z, n, together);
  int const accesses = access.count();
  float const chosen = float(z[target]);

  float maximum = -INFINITY, sum = 0;
  for (int round = 0; round * threads < accesses; round += batch) {
    Bits<size, T> bits[batch];
    float largest = -INFINITY;
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      int const index = (round + b) * threads + thread;
      if (index < accesses) bits[b] = access.read(z, index);
      else bits[b] = Bits<size, T>::all(-INFINITY);
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      float values[size];
      bits[b].unpack(values);
      if (round + b < args.held)
        held[(round + b) * threads + thread] =
            uint4{bits[b].word[0], bits[b].word[1], bits[b].word[2], bits[b].word[3]};
#pragma unroll
      for (float const value : values) largest = fmaxf(largest, value);
    }
    if (largest > maximum) {
      sum *= exp_below(maximum - largest);
      maximum = largest;
    }
    if (maximum == -INFINITY) continue;  // nothing of the row so far
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      float values[size];
      bits[b].unpack(values);
#pragma unroll
      for (float const value : values) sum += exp_below(value - maximum);
    }
  }

  merge_softmax_of_lanes<32>(maximum, sum);
  if (thread % 32 == 0) {
    maxima[thread / 32] = maximum;
    sums[thread / 32] = sum;
  }
  __syncthreads();
  maximum = maxima[thread % warps];
  sum = sums[thread % warps];
  merge_softmax_of_lanes<warps>(maximum, sum);
  if (thread == 0) op.row_losses[row] = static_cast<float>(log(double{sum}) + (double{maximum} - double{chosen}));
  if (dz == nullptr) return;

  float const weight = op.count->row_weight, scale = weight / sum;
  for (int round = 0; round * threads < accesses; ++round) {
    int const index = round * threads + thread;
    if (index >= accesses) break;
    Bits<size, T> bits;
    if (round < args.held) {
      uint4 const four = held[index];
      bits = Bits<size, T>{{four.x, four.y, four.z, four.w}};
    } else {
      bits = access.read(z, index);
    }
    float values[size];
    bits.unpack(values);
#pragma unroll
    for (float& value : values) value = exp_below(value - maximum) * scale;
    if (int const place = target - access.first(index); place >= 0 && place < size) {
#pragma unroll
      for (int j = 0; j < size; ++j) values[j] -= j == place ? weight : 0.0f;
    }
    access.write(dz, index, values);
  }
  for (std::int64_t i = n + thread; i < op.padded; i += threads) dz[i] = T(0.0f);
}

struct MeanLoss {
  float const* row_losses;
  std::int64_t rows;
  TargetCount const* count;
  float* loss;
};
/// In double, in an order of its own: every thread its rows, then the threads.
template <class = void>
__global__ void __launch_bounds__(1024) mean_loss_block(MeanLoss const args) {
  begin_kernel();
  __shared__ double room[most_warps];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < args.rows; row += 1024) sum += double{args.row_losses[row]};
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int warp = 0; warp < most_warps; ++warp) total += room[warp];
  *args.loss = static_cast<float>(total / double{args.count->divisor});
}

}  // namespace detail

/// Counts the targets that differ from `ignored`, before the first chunk of rows needs the weight of their gradients.
/// Errors    a target outside the vocabulary is reported in the context's error word.
inline void count_targets(Context& context, std::int32_t const* targets, std::int64_t rows, std::int64_t vocabulary,
                          std::int32_t ignored, float scale, TargetCount* count) {
  detail::launch_blocks(context, 1, 1024, detail::count_targets_block<>,
                        detail::CountTargets{targets, rows, vocabulary, ignored, scale, count, context.error_word()});
}

/// Losses of rows, and their gradients where they are wanted. Cost: one read, one write of the logits while a row is at
/// most as long as half of a processor's shared memory; what is longer is read twice.
template <class T>
void cross_entropy_rows(Context& context, LogitRowsOf<T> const& args) {
  if (args.rows <= 0) return;
  if (args.vocabulary > std::numeric_limits<std::int32_t>::max() / 2)
    throw Error(ErrorKind::invalid_argument, "cross_entropy", "a vocabulary has at most 2^30 classes on CUDA devices");
  std::int64_t const accesses = args.vocabulary / detail::vector_size<T> + 2;  // of any alignment
  std::int64_t const rounds = (accesses + 511) / 512;
  // A processor has 1 KB more than a block may ask for, and keeps 1 KB of it for each block.
  std::int64_t const room = (static_cast<std::int64_t>(context.properties().shared_bytes) + 1024) / 2 - 1024 - 512;
  int const held = args.gradient == nullptr ? 0 : static_cast<int>(std::min(rounds, room / (512 * 16)));
  launch_own(context.stream(),
             {.grid = dim3(static_cast<unsigned>(args.rows)),
              .block = dim3(512),
              .shared_bytes = static_cast<std::size_t>(held) * 512 * 16},
             detail::cross_entropy_rows<T>, detail::CrossEntropyRows<T>{args, held});
}

/// The mean over all rows that count.
inline void mean_loss(Context& context, float const* row_losses, std::int64_t rows, TargetCount const* count,
                      float* loss) {
  detail::launch_blocks(context, 1, 1024, detail::mean_loss_block<>, detail::MeanLoss{row_losses, rows, count, loss});
}

/// See kernel::CrossEntropy. Cost: as of cross_entropy_rows.
template <class T>
void cross_entropy(Context& context, CrossEntropyOf<T> const& args) {
  std::size_t const losses = args.row_losses == nullptr ? static_cast<std::size_t>(args.rows) : 0;
  auto* const scratch = static_cast<TargetCount*>(context.scratch(sizeof(TargetCount) + losses * sizeof(float)));
  float* const row_losses = args.row_losses == nullptr ? reinterpret_cast<float*>(scratch + 1) : args.row_losses;
  count_targets(context, args.targets, args.rows, args.vocabulary, args.ignored, args.scale, scratch);
  LogitRowsOf<T> rows;
  rows.rows = args.rows;
  rows.vocabulary = rows.stride = rows.padded = args.vocabulary;
  rows.ignored = args.ignored;
  rows.count = scratch;
  rows.logits = args.logits;
  rows.targets = args.targets;
  rows.row_losses = row_losses;
  rows.gradient = args.dlogits;
  cross_entropy_rows(context, rows);
  if (args.loss != nullptr) mean_loss(context, row_losses, args.rows, scratch, args.loss);
}

}  // namespace tutti::kernel::cuda
