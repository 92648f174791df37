// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Inputs whose results are known by a formula, and the count of elements that differ from it.

#include "case.hpp"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace tutti::bench {

/// Element j of the buffer that rank r puts in: 1, 2 or 3 without a pattern that a shifted block could repeat; sums and
/// products of a few ranks are exact in every type.
inline int put(int r, std::int64_t j) {
  std::uint32_t const mixed = static_cast<std::uint32_t>(j) * 0x9e3779b1u + static_cast<std::uint32_t>(r) * 0x85ebca6bu;
  return 1 + static_cast<int>(((mixed >> 12 & 0xffffu) * 3) >> 16);
}

/// Element j of the inputs of the first `ranks`, combined; of several rows in rank order. In double: exact for what few
/// ranks put in.
inline double combined(Case const& c, std::int64_t j, int ranks) {
  int const rows = c.collective == Collective::all_reduce_contributions ? static_cast<int>(contributions) : 1;
  double result = put(0, j);
  for (int input = 1; input < ranks * rows; ++input) {
    double const next = put(input / rows, input % rows * c.block + j);
    switch (c.op) {
      case Op::sum:
      case Op::callable:
      case Op::avg: result += next; break;
      case Op::prod: result *= next; break;
      case Op::min: result = next < result ? next : result; break;
      case Op::max: result = result < next ? next : result; break;
    }
  }
  return c.op == Op::avg ? result / (ranks * rows) : result;
}
inline double combined(Case const& c, std::int64_t j) { return combined(c, j, c.ranks); }

/// Element j of what rank r gets.
inline double got(Case const& c, int r, std::int64_t j) {
  switch (c.collective) {
    case Collective::barrier: return 0;
    case Collective::broadcast: return put(c.root, j);
    case Collective::reduce:
    case Collective::all_reduce: return combined(c, j);
    case Collective::gather:
    case Collective::all_gather: return put(static_cast<int>(j / c.block), j % c.block);
    case Collective::scatter: return put(c.root, r * c.block + j);
    case Collective::reduce_scatter: return combined(c, r * c.block + j);
    case Collective::all_to_all: return put(static_cast<int>(j / c.block), r * c.block + j % c.block);
    case Collective::scan: return combined(c, j, r + 1);
    case Collective::exscan: return combined(c, j, r);
    case Collective::gather_v:
    case Collective::all_gather_v: {
      int from = 0;
      for (; j >= c.rows(from); ++from) j -= c.rows(from);
      return put(from, j);
    }
    case Collective::scatter_v: return put(c.root, c.before(r) + j);
    case Collective::reduce_scatter_v: return combined(c, c.before(r) + j);
    case Collective::all_to_all_v: {
      int from = 0;
      for (; j >= c.exchanged(from, r); ++from) j -= c.exchanged(from, r);
      return put(from, c.exchanged_before(from, r) + j);
    }
    case Collective::all_reduce_contributions: return combined(c, j);
    case Collective::ping_pong: return put(r - r % 2, j);
    case Collective::halo: {
      std::int64_t const columns = c.block, rows = c.grid_rows(), all = rows * c.ranks, i = r * rows + j / columns;
      auto const at = [&](std::int64_t row, std::int64_t column) {
        return put(static_cast<int>(row / rows), row % rows * columns + column);
      };
      std::int64_t const k = j % columns;
      if (i == 0 || i == all - 1 || k == 0 || k == columns - 1) return at(i, k);
      return 0.25 * (at(i - 1, k) + at(i + 1, k) + at(i, k - 1) + at(i, k + 1));
    }
    case Collective::put:
    case Collective::send_recv: return put((r + c.ranks - 1) % c.ranks, j);
  }
  return 0;
}

/// Fills a rank's operands before the call that is checked; what is not an input becomes noise.
inline void fill(Case const& c, Operands const& where, int rank) {
  with_type(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::memset(where.to, 0x5a, static_cast<std::size_t>(where.to_count) * sizeof(T));
    if (c.collective == Collective::broadcast && rank != c.root) return;
    T* const from = reinterpret_cast<T*>(where.from);
    for (std::int64_t j = 0; j < where.from_count; ++j) from[j] = static_cast<T>(static_cast<float>(put(rank, j)));
  });
}

/// Elements of a rank's result that are wrong.
inline std::int64_t count_wrong(Case const& c, Operands const& where, int rank) {
  bool const only_root = c.collective == Collective::reduce || c.collective == Collective::gather ||
                         c.collective == Collective::gather_v;
  if (only_root && rank != c.root) return 0;
  if (c.collective == Collective::exscan && rank == 0) return 0;  // which gets nothing
  if (c.collective == Collective::ping_pong && (rank ^ 1) >= c.ranks) return 0;  // without a partner
  return with_type(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    T const* const to = reinterpret_cast<T const*>(where.to);
    std::int64_t wrong = 0;
    for (std::int64_t j = 0; j < where.to_count; ++j) {
      double const right = got(c, rank, j);
      if constexpr (std::integral<T>) wrong += to[j] != static_cast<T>(static_cast<std::int64_t>(right));
      else {
        // One rounding of a quotient; everything else is exact while products stay below 2^8.
        constexpr double epsilon = sizeof(T) == 2 ? 1.0 / 128 : 1e-6;
        wrong += !(std::abs(static_cast<double>(static_cast<float>(to[j])) - right) <= epsilon * right);
      }
    }
    return wrong;
  });
}

}  // namespace tutti::bench
