// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rows of a matrix divided among threads, for the kernels that normalise them: a row is held in registers between the
/// passes over it, so memory is read once.

#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace tutti::kernel::cuda::detail {

/// The sum of 32 lanes, the same bits in each: the additions of a butterfly commute.
template <class Real>
__device__ Real warp_sum(Real value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}
__device__ inline float warp_maximum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

inline constexpr int most_warps = 32;  ///< of a block

/// Sums over the `row_threads` neighbours that share a row, in an order of its own whatever runs first. `room` is
/// shared memory that no thread still reads: two calls in a row need two rooms. A barrier of the block where a row has
/// more than one warp.
template <int Count>
__device__ void row_sums(float (&values)[Count], int row_threads, float (&room)[Count][most_warps]) {
#pragma unroll
  for (int k = 0; k < Count; ++k) values[k] = warp_sum(values[k]);
  if (row_threads == 32) return;
  int const warp = static_cast<int>(threadIdx.x) / 32, warps = row_threads / 32, first = warp / warps * warps;
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < Count; ++k) room[k][warp] = values[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Count; ++k) {
    float total = 0;
    for (int other = first; other < first + warps; ++other) total += room[k][other];
    values[k] = total;
  }
}

/// How rows are divided: `row_threads` threads a row, each with `held` accesses of 16 bytes in registers; 0: the row
/// is read anew in every pass. `vectors` is false where its elements are read one by one.
struct RowPlan {
  bool vectors = false;
  int held = 0;
  int row_threads = 32;
  int block_threads = 128;

  int rows_per_block() const { return block_threads / row_threads; }
};

/// Up to `most_held` accesses a thread and 512 threads a row; blocks of at least `block_threads`.
template <class T>
RowPlan plan_rows(std::int64_t channels, int most_held, int block_threads,
                  std::initializer_list<void const*> pointers) {
  RowPlan plan;
  plan.vectors = vectors_fit<T>(channels, pointers);
  std::int64_t const pieces = plan.vectors ? channels / vector_size<T> : channels;
  while (plan.row_threads < 512 && pieces > std::int64_t{most_held} * plan.row_threads) plan.row_threads *= 2;
  std::int64_t const held = (pieces + plan.row_threads - 1) / plan.row_threads;
  plan.held = plan.vectors && held <= most_held ? static_cast<int>(held) : 0;
  plan.block_threads = std::max(block_threads, plan.row_threads);
  return plan;
}

/// f(elements an access, accesses held) as constants, for those of a plan with at most MostHeld.
template <class T, int MostHeld, class F>
void with_plan(RowPlan const& plan, F&& f) {
  using std::integral_constant;
  constexpr integral_constant<int, vector_size<T>> vector{};
  if (!plan.vectors) return f(integral_constant<int, 1>{}, integral_constant<int, 0>{});
  if (plan.held == 0) return f(vector, integral_constant<int, 0>{});
  if constexpr (MostHeld > 1)
    if (plan.held < MostHeld) return with_plan<T, MostHeld - 1>(plan, f);
  return f(vector, integral_constant<int, MostHeld>{});
}

/// Where a thread stands in its row.
struct RowPlace {
  int first;        ///< access of the row that is this thread's first
  int step;         ///< threads of the row
  int row_in_block;
  int rows_in_block;

  __device__ explicit RowPlace(int row_threads)
      : first(static_cast<int>(threadIdx.x) % row_threads),
        step(row_threads),
        row_in_block(static_cast<int>(threadIdx.x) / row_threads),
        rows_in_block(static_cast<int>(blockDim.x) / row_threads) {}
};

/// A thread's part of one row: accesses of N elements, Held of them in registers as they lie in memory (bfloat16 takes
/// half of the room of float), or 0 for reading them in each pass.
template <class T, int N, int Held>
class RowPart {
 public:
  /// `live` is false for a thread whose row does not exist; its part is empty.
  __device__ RowPart(T const* row, std::int64_t channels, RowPlace const& place, bool live)
      : row_(row), pieces_(live ? channels / N : 0), place_(place) {
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k)
        if (piece(k) < pieces_) bits_[k] = Bits<N, T>::of(row_ + piece(k) * N);
    }
  }

  /// f(k, first element, values) for each access of this thread; k counts them and is constant once unrolled.
  template <class F>
  __device__ void each(F&& f) const {
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k)
        if (piece(k) < pieces_) {
          float values[N];
          bits_[k].unpack(values);
          f(k, piece(k) * N, values);
        }
    } else {
      for (std::int64_t index = place_.first; index < pieces_; index += place_.step) {
        float values[N];
        load(row_ + index * N, values);
        f(0, index * N, values);
      }
    }
  }
  /// The values of access k, whose first element is i.
  __device__ void get(int k, std::int64_t i, float (&to)[N]) const {
    if constexpr (Held > 0) bits_[k].unpack(to);
    else load(row_ + i, to);
  }
  /// f(k, first element, values, values of the same part of another row).
  template <class U, class F>
  __device__ void each_with(RowPart<U, N, Held> const& other, F&& f) const {
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k)
        if (piece(k) < pieces_) {
          float values[N], others[N];
          bits_[k].unpack(values);
          other.bits_[k].unpack(others);
          f(k, piece(k) * N, values, others);
        }
    } else {
      for (std::int64_t index = place_.first; index < pieces_; index += place_.step) {
        float values[N], others[N];
        load(row_ + index * N, values);
        load(other.row_ + index * N, others);
        f(0, index * N, values, others);
      }
    }
  }

 private:
  template <class, int, int>
  friend class RowPart;
  __device__ std::int64_t piece(int k) const { return place_.first + std::int64_t{k} * place_.step; }

  T const* row_;
  std::int64_t pieces_;
  RowPlace place_;
  Bits<N, T> bits_[Held > 0 ? Held : 1];
};

/// Sums that a block's threads keep of the columns they own, `sums[k]` for their k-th access, added over the block's
/// rows in order. Every thread of the block calls.
template <int N, int Held>
__device__ void store_block_sums(float const (&sums)[Held][N], float* to, std::int64_t channels,
                                 RowPlace const& place) {
  __shared__ float room[N][256];  // more threads than that share one row
#pragma unroll
  for (int k = 0; k < Held; ++k) {
    std::int64_t const i = (place.first + std::int64_t{k} * place.step) * N;
    float total[N];
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] = sums[k][j];
    if (place.rows_in_block > 1) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < N; ++j) room[j][threadIdx.x] = total[j];
      __syncthreads();
#pragma unroll
      for (int j = 0; j < N; ++j)
        for (int row = 1; row < place.rows_in_block; ++row) total[j] += room[j][row * place.step + place.first];
    }
    if (place.row_in_block == 0 && i < channels) store(to + i, total);
  }
}

/// Blocks that walk over all rows, each with sums of its own: two for each of the 132 processors of an H200, and by the
/// shape alone, so that sums do not depend on the device.
inline std::int64_t summing_blocks(std::int64_t rows, RowPlan const& plan) {
  std::int64_t const per_block = plan.rows_per_block();
  return std::clamp<std::int64_t>((rows + per_block - 1) / per_block, 1, 264);
}
/// Blocks that write rows alone: as many as the 132 processors of an H200 hold at once (the more of a row a thread
/// holds, the fewer), so that what a block reads once serves many rows.
inline std::int64_t walking_blocks(std::int64_t rows, RowPlan const& plan) {
  std::int64_t const per_block = plan.rows_per_block();
  return std::clamp<std::int64_t>((rows + per_block - 1) / per_block, 1,
                                  132 * (plan.held == 0 ? 16 : std::max(4, 12 / plan.held)));
}

/// Blocks of 256 threads for that many accesses; they walk where there are more.
inline std::int64_t access_blocks(std::int64_t accesses) {
  return std::clamp<std::int64_t>((accesses + 255) / 256, 1, std::int64_t{1} << 20);
}

template <class Args>
void launch_blocks(Context& context, std::int64_t blocks, int threads, void (*kernel)(Args), Args const& args) {
  launch_own(context.stream(),
             {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(static_cast<unsigned>(threads))}, kernel,
             args);
}

/// What a thread needs of a float vector over the channels: in registers for all rows where accesses are held, else
/// read at every use.
template <int N, int Held>
class ChannelPart {
 public:
  __device__ ChannelPart(float const* vector, std::int64_t channels, RowPlace const& place) : vector_(vector) {
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k) {
        std::int64_t const i = (place.first + std::int64_t{k} * place.step) * N;
        if (i < channels) load_constant(vector + i, held_[k]);
      }
    }
  }
  /// Of the k-th access, whose first element is i.
  __device__ void get(int k, std::int64_t i, float (&to)[N]) const {
    if constexpr (Held > 0) {
#pragma unroll
      for (int j = 0; j < N; ++j) to[j] = held_[k][j];
    } else {
      load_constant(vector_ + i, to);
    }
  }

 private:
  float const* vector_;
  float held_[Held > 0 ? Held : 1][N];
};

}  // namespace tutti::kernel::cuda::detail
