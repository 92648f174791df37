// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One measured operation as plain data: what is called, on how many bytes, and which bytes of a rank's buffers it
/// uses. Sizes follow nccl-tests: the larger of a rank's two buffers.

#include <tutti/comm/bandwidth.hpp>
#include <tutti/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tutti::bench {

enum class Collective : std::uint8_t {
  broadcast,
  reduce,
  all_reduce,
  gather,
  all_gather,
  scatter,
  reduce_scatter,
  all_to_all,
  scan,
  exscan,
  gather_v,
  all_gather_v,
  scatter_v,
  reduce_scatter_v,
  all_to_all_v,
  all_reduce_contributions,  ///< of two rows a rank
  send_recv,
  ping_pong,  ///< to the neighbour and back, in pairs of ranks
  halo,       ///< a step of heat on a grid whose rows the ranks share: rows to the neighbours, then a mean of four
  put,        ///< into a window of the next rank, and a fence
  barrier
};
inline constexpr Collective collectives[] = {Collective::broadcast,      Collective::reduce,
                                             Collective::all_reduce,     Collective::gather,
                                             Collective::all_gather,     Collective::scatter,
                                             Collective::reduce_scatter, Collective::all_to_all,
                                             Collective::scan,           Collective::exscan,
                                             Collective::gather_v,       Collective::all_gather_v,
                                             Collective::scatter_v,      Collective::reduce_scatter_v,
                                             Collective::all_to_all_v,   Collective::all_reduce_contributions,
                                             Collective::send_recv,      Collective::ping_pong,
                                             Collective::halo,           Collective::put,
                                             Collective::barrier};
constexpr std::string_view name(Collective collective) {
  constexpr std::string_view names[] = {"broadcast",  "reduce",           "all_reduce",     "gather",
                                        "all_gather", "scatter",          "reduce_scatter", "all_to_all",
                                        "scan",       "exscan",           "gather_v",       "all_gather_v",
                                        "scatter_v",  "reduce_scatter_v", "all_to_all_v",   "all_reduce_contributions",
                                        "send_recv",  "ping_pong",        "halo",           "put",
                                        "barrier"};
  return names[static_cast<std::size_t>(collective)];
}

/// `callable` is a sum that the caller wrote: a lambda for tutti, what MPI_Op_create makes of the same one for MPI.
enum class Op : std::uint8_t { sum, prod, min, max, avg, callable };
inline constexpr Op ops[] = {Op::sum, Op::prod, Op::min, Op::max, Op::avg, Op::callable};
constexpr std::string_view name(Op op) {
  constexpr std::string_view names[] = {"sum", "prod", "min", "max", "avg", "callable"};
  return names[static_cast<std::size_t>(op)];
}

/// Element types under the names of nccl-tests; float32, float64 and float16 are accepted too.
struct TypeName {
  std::string_view name;
  DType dtype;
};
inline constexpr TypeName types[] = {
    {"int8", DType::int8},      {"uint8", DType::uint8},      {"int32", DType::int32},  {"uint32", DType::uint32},
    {"int64", DType::int64},    {"uint64", DType::uint64},    {"half", DType::float16}, {"float", DType::float32},
    {"double", DType::float64}, {"bfloat16", DType::bfloat16}};
constexpr std::string_view type_name(DType dtype) {
  for (TypeName const& type : types)
    if (type.dtype == dtype) return type.name;
  return tutti::name(dtype);
}
/// f(value of the type) for the types above.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::int8: return f(std::int8_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::uint32: return f(std::uint32_t{});
    case DType::int64: return f(std::int64_t{});
    case DType::uint64: return f(std::uint64_t{});
    case DType::float16: return f(float16{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float64: return f(double{});
    default: return f(float{});
  }
}

constexpr bool reduces(Collective c) {
  return c == Collective::reduce || c == Collective::all_reduce || c == Collective::reduce_scatter ||
         c == Collective::scan || c == Collective::exscan || c == Collective::reduce_scatter_v ||
         c == Collective::all_reduce_contributions;
}
constexpr bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter ||
         c == Collective::gather_v || c == Collective::scatter_v;
}
/// Blocks have different sizes, see `Case::rows`.
constexpr bool is_ragged(Collective c) { return c >= Collective::gather_v && c <= Collective::all_to_all_v; }
/// Both buffers of every rank hold a block for each rank, or one of them does.
constexpr bool has_blocks(Collective c) {
  return c == Collective::gather || c == Collective::all_gather || c == Collective::scatter ||
         c == Collective::reduce_scatter || c == Collective::all_to_all || is_ragged(c);
}
constexpr bool exists(Collective c, bool in_place) {
  if (c == Collective::broadcast || c == Collective::barrier) return in_place;  // one buffer, or none
  bool const two_buffers = c == Collective::send_recv || c == Collective::ping_pong || c == Collective::halo ||
                           c == Collective::all_reduce_contributions || c == Collective::put;
  return !two_buffers || !in_place;
}
/// Rows of each rank where a collective takes several.
inline constexpr std::int64_t contributions = 2;

/// Trivially copyable: it travels between processes, also of another MPI library.
struct Case {
  Collective collective = Collective::all_reduce;
  Op op = Op::sum;
  DType dtype = DType::float32;
  bool in_place = false;
  bool cold = false;
  std::int32_t root = 0;
  std::int32_t ranks = 1;
  std::int64_t block = 0;  ///< elements for each rank where has_blocks(), of a halo of one row, else of the buffer

  std::int64_t element() const { return static_cast<std::int64_t>(size_of(dtype)); }
  std::int64_t count() const {
    return has_blocks(collective)                               ? block * ranks
           : collective == Collective::all_reduce_contributions ? block * contributions
           : collective == Collective::halo                     ? block * (grid_rows() + 2)
                                                                : block;
  }
  /// Rows of each rank's part of a square grid of `block` columns; beside them a rank keeps one row of each neighbour.
  std::int64_t grid_rows() const { return block / ranks; }
  /// Elements of block r where blocks have different sizes: half as many again and half as many, in turns, so that all
  /// of them together are as long as equal ones.
  std::int64_t rows(int r) const {
    if (r == ranks - 1 && ranks % 2 == 1) return block;
    return r % 2 == 0 ? block + block / 2 : block - block / 2;
  }
  /// Elements before it.
  std::int64_t before(int r) const {
    std::int64_t all = 0;
    for (int other = 0; other < r; ++other) all += rows(other);
    return all;
  }
  /// What `from` sends to `to` in an exchange of different sizes; every rank sends and gets as much as with equal ones.
  std::int64_t exchanged(int from, int to) const { return rows((from + to) % ranks); }
  /// Elements in front of rank r's block of an exchange, in either buffer of `rank`.
  std::int64_t exchanged_before(int rank, int r) const {
    std::int64_t all = 0;
    for (int other = 0; other < r; ++other) all += exchanged(rank, other);
    return all;
  }
  std::int64_t bytes() const { return count() * element(); }
};

/// The case whose size is the nearest to `bytes` that its ranks can share, at least one element each.
inline Case sized(Case c, std::int64_t bytes) {
  std::int64_t const shares = c.element() * (has_blocks(c.collective)                                ? c.ranks
                                             : c.collective == Collective::all_reduce_contributions ? contributions
                                                                                                    : 1);
  c.block = c.collective == Collective::barrier ? 0 : std::max<std::int64_t>(1, bytes / shares);
  if (c.collective == Collective::halo) {  // the grid has so many bytes
    double const side = std::sqrt(static_cast<double>(c.block));
    c.block = c.ranks * std::max<std::int64_t>(1, static_cast<std::int64_t>(side) / c.ranks);
  }
  return c;
}

/// A place for one call: two buffers of `Case::bytes()` each.
struct Slot {
  std::byte* first = nullptr;
  std::byte* second = nullptr;
};

/// What a rank passes to a call, `from` inside `to` or the other way round where the call is in place.
struct Operands {
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t from_count = 0, to_count = 0;
};
inline Operands operands(Case const& c, Slot const& slot, int rank) {
  std::byte* const a = slot.first;
  std::byte* const b = slot.second;
  std::int64_t const all = c.count(), mine = c.block * c.element() * rank;
  bool const at_root = rank == c.root;
  std::int64_t const own = is_ragged(c.collective) ? c.rows(rank) : 0;
  std::int64_t const before = is_ragged(c.collective) ? c.before(rank) * c.element() : 0;
  switch (c.collective) {
    case Collective::barrier: return {};
    case Collective::scan:
    case Collective::exscan:
    case Collective::all_to_all_v: return {c.in_place ? b : a, b, all, all};
    case Collective::gather_v: return {c.in_place && at_root ? b + before : a, b, own, all};
    case Collective::all_gather_v: return {c.in_place ? b + before : a, b, own, all};
    case Collective::scatter_v: return {a, c.in_place && at_root ? a + before : b, all, own};
    case Collective::reduce_scatter_v: return {a, c.in_place ? a + before : b, all, own};
    case Collective::all_reduce_contributions: return {a, b, all, c.block};
    case Collective::halo: {
      std::int64_t const row = c.block * c.element();
      return {a + row, b + row, all - 2 * c.block, all - 2 * c.block};
    }
    case Collective::broadcast: return {b, b, all, all};
    case Collective::reduce:
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::ping_pong:
    case Collective::put:
    case Collective::send_recv: return {c.in_place ? b : a, b, all, all};
    case Collective::gather: return {c.in_place && at_root ? b + mine : a, b, c.block, all};
    case Collective::all_gather: return {c.in_place ? b + mine : a, b, c.block, all};
    case Collective::scatter: return {a, c.in_place && at_root ? a + mine : b, all, c.block};
    case Collective::reduce_scatter: return {a, c.in_place ? a + mine : b, all, c.block};
  }
  return {};
}

constexpr comm::Kind kind_of(Collective c) {
  switch (c) {
    case Collective::broadcast: return comm::Kind::broadcast;
    case Collective::reduce: return comm::Kind::reduce;
    case Collective::all_reduce: return comm::Kind::all_reduce;
    case Collective::gather: return comm::Kind::gather;
    case Collective::all_gather: return comm::Kind::all_gather;
    case Collective::scatter: return comm::Kind::scatter;
    case Collective::reduce_scatter: return comm::Kind::reduce_scatter;
    case Collective::all_to_all: return comm::Kind::all_to_all;
    case Collective::scan: return comm::Kind::scan;
    case Collective::exscan: return comm::Kind::exscan;
    case Collective::gather_v: return comm::Kind::gather_v;
    case Collective::all_gather_v: return comm::Kind::all_gather_v;
    case Collective::scatter_v: return comm::Kind::scatter_v;
    case Collective::reduce_scatter_v: return comm::Kind::reduce_scatter_v;
    case Collective::all_to_all_v: return comm::Kind::all_to_all_v;
    case Collective::all_reduce_contributions: return comm::Kind::all_reduce_contributions;
    case Collective::send_recv:
    case Collective::ping_pong:
    case Collective::halo:
    case Collective::put:
    case Collective::barrier: break;  // they have no factor
  }
  return comm::Kind::barrier;
}
/// busbw / algbw, as nccl-tests define it.
inline double bus_factor(Case const& c) { return comm::bus_factor(kind_of(c.collective), c.ranks); }

/// Bytes that must be read and written at least, over all ranks, when every buffer is far larger than the caches and
/// stores cost no read of their own.
inline double least_traffic(Case const& c) {
  double const n = c.ranks, size = static_cast<double>(c.bytes());
  switch (c.collective) {
    case Collective::barrier:
    case Collective::ping_pong:
    case Collective::put:
    case Collective::halo: return 0;  // latency decides
    case Collective::broadcast: return n * size;
    case Collective::reduce:
    case Collective::reduce_scatter: return (n + 1) * size;
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::send_recv: return 2 * n * size;
    case Collective::exscan: return 2 * (n - 1) * size;
    case Collective::reduce_scatter_v: return (n + 1) * size;
    case Collective::gather_v:
    case Collective::scatter_v:
      return c.in_place ? 2 * (size - static_cast<double>(c.rows(c.root) * c.element())) : 2 * size;
    case Collective::all_to_all_v: {
      std::int64_t stays = 0;
      for (int r = 0; r < c.ranks; ++r) stays += c.exchanged(r, r) * c.element();
      return 2 * n * size - (c.in_place ? 2 * static_cast<double>(stays) : 0);
    }
    case Collective::all_reduce_contributions: return n * size * (1 + 1.0 / contributions);
    case Collective::all_gather_v:
    case Collective::all_gather: return (c.in_place ? n : n + 1) * size;
    case Collective::gather:
    case Collective::scatter: return c.in_place ? 2 * size * (n - 1) / n : 2 * size;
    case Collective::all_to_all: return c.in_place ? 2 * (n - 1) * size : 2 * n * size;
  }
  return 0;
}

}  // namespace tutti::bench
