// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rotary position embedding on a GPU.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/rotary.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

template <class T>
struct RotaryPairs {
  RotaryOf<T> op;
  ErrorWord* error;
};

/// N pairs a thread: with halves two accesses of N elements half a head apart; of neighbours 2 N elements in a row.
/// A row of the table serves all heads of its position, from L1.
template <class T, int N, bool Halves>
__global__ void __launch_bounds__(256) rotary_pairs(RotaryPairs<T> const args) {
  begin_kernel();
  RotaryOf<T> const& op = args.op;
  std::int64_t const pairs = op.head_size / 2, of_head = pairs / N, of_row = op.heads * of_head;
  for (std::int64_t index = std::int64_t{blockIdx.x} * 256 + threadIdx.x; index < op.rows * of_row;
       index += std::int64_t{gridDim.x} * 256) {
    std::int64_t const row = index / of_row, within = index - row * of_row, head = within / of_head;
    std::int64_t const i = (within - head * of_head) * N;
    std::int64_t const position =
        op.row_positions != nullptr ? op.row_positions[row] : op.first_position + row % op.tokens;
    if (position < 0 || position >= op.positions) {
      if (within == 0) report(args.error, Mistake::position, row, static_cast<std::int32_t>(position));
      continue;
    }
    T const* const x = op.x + row * op.x_stride + head * op.head_size;
    T* const y = op.y + row * op.y_stride + head * op.head_size;
    float cosine[N], sine[N], a[N], b[N];
    load_constant(op.cosine + position * pairs + i, cosine);
    load_constant(op.sine + position * pairs + i, sine);
    float const sign = op.inverse ? -1.0f : 1.0f;
    if constexpr (Halves) {
      load(x + i, a);
      load(x + pairs + i, b);
    } else {
      float both[2 * N];
      if constexpr (N == 1) {
        both[0] = float(x[2 * i]);
        both[1] = float(x[2 * i + 1]);
      } else {
        load(x + 2 * i, both);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) {
        a[j] = both[2 * j];
        b[j] = both[2 * j + 1];
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float const turned = a[j] * cosine[j] - b[j] * (sign * sine[j]);
      b[j] = a[j] * (sign * sine[j]) + b[j] * cosine[j];
      a[j] = turned;
    }
    if constexpr (Halves) {
      store(y + i, a);
      store(y + pairs + i, b);
    } else if constexpr (N == 1) {
      y[2 * i] = T(a[0]);
      y[2 * i + 1] = T(b[0]);
    } else {
      float both[2 * N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        both[2 * j] = a[j];
        both[2 * j + 1] = b[j];
      }
      store(y + 2 * i, both);
    }
  }
}

/// What the host can see; `row_positions` the kernel checks.
template <class T>
void check_rotary(RotaryOf<T> const& args) {
  if (args.head_size % 2 != 0)
    throw Error(ErrorKind::invalid_argument, "rotary",
                concat("heads of ", args.head_size, " elements do not make pairs. The head size must be even"));
  if (args.rows <= 0 || args.row_positions != nullptr) return;
  if (args.tokens < 1)
    throw Error(ErrorKind::invalid_argument, "rotary",
                concat("sequences of ", args.tokens, " rows. Set `tokens` to the rows of one sequence"));
  std::int64_t const last = std::min(args.rows, args.tokens) - 1;
  for (std::int64_t const row : {std::int64_t{0}, last})
    if (std::int64_t const position = args.first_position + row; position < 0 || position >= args.positions)
      throw Error(ErrorKind::out_of_range, "rotary",
                  concat("row ", row, " is at position ", position, ", but the table has ", args.positions,
                         ". Make a table of as many positions as the longest sequence"));
}

}  // namespace detail

/// See kernel::Rotary. Cost: one read, one write.
/// Errors    what `row_positions` ask for beyond the table is reported in the context's error word; those rows are not
///           written.
template <class T>
void rotary(Context& context, RotaryOf<T> const& args) {
  detail::check_rotary(args);
  std::int64_t const pairs = args.rows * args.heads * (args.head_size / 2);
  if (pairs <= 0) return;
  bool const halves = args.pairing == RotaryPairing::half;
  constexpr int width = detail::vector_size<T>;
  detail::RotaryPairs<T> const launch{args, context.error_word()};
  bool const vectors = detail::vectors_fit<T>(args.head_size / 2, {args.x, args.y, args.cosine, args.sine}) &&
                       args.x_stride % width == 0 && args.y_stride % width == 0;
  auto const kernel = vectors ? (halves ? detail::rotary_pairs<T, width, true> : detail::rotary_pairs<T, width, false>)
                              : (halves ? detail::rotary_pairs<T, 1, true> : detail::rotary_pairs<T, 1, false>);
  detail::launch_blocks(context, detail::access_blocks(vectors ? pairs / width : pairs), 256, kernel, launch);
}

}  // namespace tutti::kernel::cuda
