// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tiles of q, k, v and their gradients in shared memory, and products of them by a warp's tensor cores.
///
/// Every product of attention, forward and backward, is one of three:
///   multiply_rows     c (m, n) += A (m, width) B (n, width)^T    A and B rows of tiles       scores, dout v^T
///   multiply_weights  c (m, width) += P (m, n) B (n, width)      P is another product's c    p v, ds^T q, p^T dout
///   multiply_columns  c (m, width) += A (n, m)^T B (n, width)    A and B rows of tiles       ds k
/// so weights leave registers only where other warps need them. Factors are bfloat16 with fp32 sums (mma.sync
/// m16n8k16). A float is split into `Planes` of them: one (products rounded to bfloat16), or three that hold all of its
/// 24 bits; of the nine products of planes the six above 2^-24 are summed, the smallest first. That is what 3xTF32
/// costs, with fragments, tiles and loops of the bfloat16 kernels, and 3 bits more.
///
/// Registers are what these kernels have too few of. Addresses in tiles follow from the thread's number in a few
/// instructions, but compilers compute all of them once and keep them, dozens; `computed_anew` stops that.

#include <tutti/core/bfloat16.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tutti::kernel::cuda::detail {

/// 16 rows and 16 of k of a left factor, as mma.sync m16n8k16 reads them.
template <int Planes>
struct LeftFragment {
  std::uint32_t words[Planes][4];
};
/// 16 of k and 16 columns of a right factor: two of the instruction's 8.
template <int Planes>
struct RightFragment {
  std::uint32_t words[Planes][4];
};

/// Two neighbours of k as `Planes` words, each the rest of those before it.
template <int Planes>
__device__ __forceinline__ void split(float low, float high, std::uint32_t (&words)[Planes][4], int index) {
#pragma unroll
  for (int plane = 0; plane < Planes; ++plane) {
    std::uint32_t const word = pack_bfloat16(low, high);
    words[plane][index] = word;
    low -= std::bit_cast<float>(word << 16);
    high -= std::bit_cast<float>(word & 0xffff0000u);
  }
}

/// c (16, 16) += a b
template <int Planes>
__device__ __forceinline__ void multiply(float (&left_half)[4], float (&right_half)[4], LeftFragment<Planes> const& a,
                                         RightFragment<Planes> const& b) {
#pragma unroll
  for (int order = Planes - 1; order >= 0; --order)
#pragma unroll
    for (int plane = 0; plane <= order; ++plane) {
      std::uint32_t const(&left)[4] = a.words[plane];
      std::uint32_t const(&right)[4] = b.words[order - plane];
      mma_bfloat16(left_half, left, {right[0], right[1]});
      mma_bfloat16(right_half, left, {right[2], right[3]});
    }
}

/// Two neighbours, the first at an even place.
template <class T>
__device__ __forceinline__ void store_pair(T* to, float first, float second) {
  if constexpr (std::is_same_v<T, bfloat16>) *reinterpret_cast<std::uint32_t*>(to) = pack_bfloat16(first, second);
  else *reinterpret_cast<float2*>(to) = float2{first, second};
}

/// Rows of `Width` elements in shared memory: bfloat16 with 16-byte chunks swizzled, so that the eight rows of an
/// ldmatrix lie in different banks; float with rows padded, so that the fragments' pairs do.
template <class T, int Width>
class Tile {
  static constexpr bool narrow = std::is_same_v<T, bfloat16>;

 public:
  static constexpr int chunk = 16 / static_cast<int>(sizeof(T));  ///< elements
  static constexpr int chunks = Width / chunk;
  static constexpr int stride = narrow ? Width : Width + 8;
  static constexpr int bytes(int rows) { return rows * stride * static_cast<int>(sizeof(T)); }

  __device__ __forceinline__ explicit Tile(void* memory) : data_(static_cast<T*>(memory)) {}

  /// Element of the chunk `index` of `row`.
  static __device__ __forceinline__ int at(int row, int index) {
    if constexpr (narrow) {
      // Rows of 128 and 256 bytes begin at bank 0, those of 64 and 192 at bank 0 and 16 in turns.
      int const turned = Width % 64 == 0 ? row & 7 : (row >> 1) & 3;
      return row * stride + (index ^ turned) * chunk;
    } else {
      return row * stride + index * chunk;
    }
  }
  __device__ __forceinline__ T* chunk_at(int row, int index) const { return data_ + at(row, index); }

  /// Starts to fetch `rows` rows, of which `valid` exist, with `size` elements each; the rest is zero.
  template <int Rows, int Threads>
  __device__ __forceinline__ void fetch(T const* from, std::int64_t row_stride, int valid, int size) const {
    static_assert(Rows * chunks % Threads == 0, "every thread fetches as many chunks");
    int const thread = computed_anew(static_cast<int>(threadIdx.x));
#pragma unroll
    for (int round = 0; round < Rows * chunks / Threads; ++round) {
      int const item = round * Threads + thread, row = item / chunks, index = item % chunks;
      bool const there = row < valid && index * chunk < size;
      copy_async(chunk_at(row, index), there ? from + row * row_stride + index * chunk : from, there ? 16 : 0);
    }
  }

  /// Rows [row, row + 16), elements [16 part, 16 part + 16) as k.
  template <int Planes>
  __device__ __forceinline__ LeftFragment<Planes> left(int row, int part, int lane) const {
    LeftFragment<Planes> fragment;
    if constexpr (narrow) {
      load_matrices(fragment.words[0], chunk_at(row + lane % 16, 2 * part + lane / 16));
    } else {
#pragma unroll
      for (int index = 0; index < 4; ++index) {
        float const* const pair =
            data_ + (row + lane / 4 + 8 * (index & 1)) * stride + 16 * part + 8 * (index >> 1) + 2 * (lane % 4);
        split<Planes>(pair[0], pair[1], fragment.words, index);
      }
    }
    return fragment;
  }
  /// Rows [row, row + 16) as k, elements [16 part, 16 part + 16) as rows of the factor.
  template <int Planes>
  __device__ __forceinline__ LeftFragment<Planes> left_of_columns(int row, int part, int lane) const {
    LeftFragment<Planes> fragment;
    if constexpr (narrow) {
      load_matrices_transposed(fragment.words[0], chunk_at(row + lane / 16 * 8 + lane % 8, 2 * part + lane / 8 % 2));
    } else {
#pragma unroll
      for (int index = 0; index < 4; ++index) {
        float const* const first =
            data_ + (row + 2 * (lane % 4) + 8 * (index >> 1)) * stride + 16 * part + 8 * (index & 1) + lane / 4;
        split<Planes>(first[0], first[stride], fragment.words, index);
      }
    }
    return fragment;
  }
  /// Rows [row, row + 16) as columns, elements [16 part, 16 part + 16) as k.
  template <int Planes>
  __device__ __forceinline__ RightFragment<Planes> right_of_rows(int row, int part, int lane) const {
    RightFragment<Planes> fragment;
    if constexpr (narrow) {
      load_matrices(fragment.words[0], chunk_at(row + lane / 16 * 8 + lane % 8, 2 * part + lane / 8 % 2));
    } else {
#pragma unroll
      for (int index = 0; index < 4; ++index) {
        float const* const pair =
            data_ + (row + lane / 4 + 8 * (index >> 1)) * stride + 16 * part + 8 * (index & 1) + 2 * (lane % 4);
        split<Planes>(pair[0], pair[1], fragment.words, index);
      }
    }
    return fragment;
  }
  /// Rows [row, row + 16) as k, elements [16 part, 16 part + 16) as columns.
  template <int Planes>
  __device__ __forceinline__ RightFragment<Planes> right_of_columns(int row, int part, int lane) const {
    RightFragment<Planes> fragment;
    if constexpr (narrow) {
      load_matrices_transposed(fragment.words[0], chunk_at(row + lane % 16, 2 * part + lane / 16));
    } else {
#pragma unroll
      for (int index = 0; index < 4; ++index) {
        float const* const first =
            data_ + (row + 2 * (lane % 4) + 8 * (index & 1)) * stride + 16 * part + 8 * (index >> 1) + lane / 4;
        split<Planes>(first[0], first[stride], fragment.words, index);
      }
    }
    return fragment;
  }

  /// Keeps what a warp's products hold, times `factors` of its lower and upper half, as rows [row, row + 16).
  __device__ __forceinline__ void put(float const (&sums)[Width / 8][4], float const (&factors)[2], int row,
                                      int lane) const {
#pragma unroll
    for (int part = 0; part < Width / 8; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        T* const at = chunk_at(row + lane / 4 + 8 * half, 8 / chunk * part) + 2 * (lane % 4);
        store_pair(at, sums[part][2 * half] * factors[half], sums[part][2 * half + 1] * factors[half]);
      }
  }

  /// Writes what a warp's products hold of rows [row, row + 16), times `factors` of their lower and upper half, to the
  /// rows that exist at `to`. Uses these rows of the tile, which nobody else may be reading.
  __device__ __forceinline__ void store(float const (&sums)[Width / 8][4], float const (&factors)[2], int row, T* to,
                                        std::int64_t row_stride, int valid, int size) const {
    int const lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (narrow) {
      // Through shared memory, so that rows are written 16 bytes at a time.
      __syncwarp();
      put(sums, factors, row, lane);
      __syncwarp();
#pragma unroll
      for (int item = lane; item < 16 * chunks; item += 32) {
        int const line = item / chunks, index = item % chunks;
        if (line < valid && index * chunk < size)
          *reinterpret_cast<uint4*>(to + line * row_stride + index * chunk) =
              *reinterpret_cast<uint4 const*>(chunk_at(row + line, index));
      }
    } else {
#pragma unroll
      for (int part = 0; part < Width / 8; ++part)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int const line = lane / 4 + 8 * half;
          if (line < valid && part * 8 < size)
            store_pair(to + line * row_stride + part * 8 + 2 * (lane % 4), sums[part][2 * half] * factors[half],
                       sums[part][2 * half + 1] * factors[half]);
        }
    }
  }

 private:
  T* data_;
};

/// Rows [row, row + 16 RowTiles) of `left` times rows [0, 8 Columns) of `right`.
template <int Planes, int RowTiles, int Columns, class T, int Width>
__device__ __forceinline__ void multiply_rows(float (&sums)[RowTiles][Columns][4], Tile<T, Width> left, int row,
                                              Tile<T, Width> right) {
  int const lane = computed_anew(static_cast<int>(threadIdx.x)) % 32;
#pragma unroll
  for (int part = 0; part < Width / 16; ++part) {
    LeftFragment<Planes> a[RowTiles];
#pragma unroll
    for (int tile = 0; tile < RowTiles; ++tile) a[tile] = left.template left<Planes>(row + 16 * tile, part, lane);
#pragma unroll
    for (int column = 0; column < Columns; column += 2) {
      RightFragment<Planes> const b = right.template right_of_rows<Planes>(8 * column, part, lane);
#pragma unroll
      for (int tile = 0; tile < RowTiles; ++tile) multiply(sums[tile][column], sums[tile][column + 1], a[tile], b);
    }
  }
}

/// Weights as products left them times rows [0, 8 Columns) of `right`.
template <int Planes, int RowTiles, int Columns, class T, int Width>
__device__ __forceinline__ void multiply_weights(float (&sums)[RowTiles][Width / 8][4],
                                                 float const (&weights)[RowTiles][Columns][4], Tile<T, Width> right) {
  int const lane = computed_anew(static_cast<int>(threadIdx.x)) % 32;
#pragma unroll
  for (int part = 0; part < Columns / 2; ++part) {
    LeftFragment<Planes> a[RowTiles];
#pragma unroll
    for (int tile = 0; tile < RowTiles; ++tile)
#pragma unroll
      for (int index = 0; index < 4; ++index) {
        float const(&four)[4] = weights[tile][2 * part + index / 2];
        split<Planes>(four[index % 2 * 2], four[index % 2 * 2 + 1], a[tile].words, index);
      }
#pragma unroll
    for (int column = 0; column < Width / 8; column += 2) {
      RightFragment<Planes> const b = right.template right_of_columns<Planes>(16 * part, column / 2, lane);
#pragma unroll
      for (int tile = 0; tile < RowTiles; ++tile) multiply(sums[tile][column], sums[tile][column + 1], a[tile], b);
    }
  }
}

/// Columns [16 left_part, 16 left_part + 16) of the first 16 `parts` rows of `left`, as rows, times elements [first,
/// first + 8 Columns) of these rows of `right`.
template <int Planes, int Columns, class T, int Across, int Width>
__device__ __forceinline__ void multiply_columns(float (&sums)[Columns][4], Tile<T, Across> left, int left_part,
                                                 Tile<T, Width> right, int first, int parts) {
  int const lane = computed_anew(static_cast<int>(threadIdx.x)) % 32;
#pragma unroll(Planes == 1 ? 2 : 1)
  for (int part = 0; part < parts; ++part) {
    LeftFragment<Planes> const a = left.template left_of_columns<Planes>(16 * part, left_part, lane);
#pragma unroll
    for (int column = 0; column < Columns; column += 2) {
      RightFragment<Planes> const b = right.template right_of_columns<Planes>(16 * part, first / 16 + column / 2, lane);
      multiply(sums[column], sums[column + 1], a, b);
    }
  }
}

template <int RowTiles, int Columns>
__device__ __forceinline__ void clear(float (&sums)[RowTiles][Columns][4]) {
#pragma unroll
  for (int tile = 0; tile < RowTiles; ++tile)
#pragma unroll
    for (int column = 0; column < Columns; ++column)
#pragma unroll
      for (int index = 0; index < 4; ++index) sums[tile][column][index] = 0;
}

/// Where a head's rows begin; heads are counted over the batch, then the heads.
struct AttentionSizes {
  int tokens = 0, heads = 0, kv_heads = 0, head_size = 0;

  __device__ __forceinline__ std::int64_t row() const { return std::int64_t{heads + 2 * kv_heads} * head_size; }
  __device__ __forceinline__ std::int64_t out_row() const { return std::int64_t{heads} * head_size; }
  __device__ __forceinline__ std::int64_t query(int head) const {
    return std::int64_t{head / heads} * tokens * row() + head % heads * head_size;
  }
  /// Of head `head` of keys; values follow after kv_heads * head_size.
  __device__ __forceinline__ std::int64_t key(int head) const {
    return std::int64_t{head / kv_heads} * tokens * row() + (heads + head % kv_heads) * head_size;
  }
  __device__ __forceinline__ std::int64_t out(int head) const {
    return std::int64_t{head / heads} * tokens * out_row() + head % heads * head_size;
  }
};

}  // namespace tutti::kernel::cuda::detail
