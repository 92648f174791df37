// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What each rank must move for a collective on shared memory, derived by hand from counts and ranks, and a comparison
/// with what the statistics say.

#include <tutti/comm.hpp>
#include <tutti/comm/statistics.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace tutti::test {

struct SharedPath {
  bool reachable = true;          ///< whether all buffers are in every rank's reach
  bool readable = false;          ///< whether ranks read the memory of each other's processes
  std::int64_t stage_bytes = 0;   ///< of a staging buffer
};
struct Moved {
  comm::Algorithm algorithm;
  std::int64_t sent = 0, received = 0;
};

/// Of each rank, to all_reduce_contributions.
inline constexpr std::int64_t shared_contributions = 3;

/// Of floats, in blocks of `count`; the root is rank 0.
inline Moved shared_traffic(comm::Kind kind, int ranks, int rank, std::int64_t count, SharedPath const& path) {
  using comm::Kind;
  std::int64_t const block = 4 * count, others = ranks - 1;
  bool const root = rank == 0, last = rank == others;
  bool const blocked = kind == Kind::scatter || kind == Kind::reduce_scatter || kind == Kind::all_to_all;
  bool const gives = kind == Kind::broadcast || kind == Kind::scatter ? root : kind != Kind::barrier;
  std::int64_t const rows = kind == Kind::all_reduce_contributions ? shared_contributions : 1;
  std::int64_t const given = block * rows * (blocked ? ranks : 1);  // by who gives
  bool const small = kind == Kind::barrier || given <= (kind == Kind::broadcast ? 8192 : 1000);
  bool const scans = kind == Kind::scan || kind == Kind::exscan;
  bool const whole = kind == Kind::all_reduce || kind == Kind::reduce || scans || rows > 1;

  std::int64_t reads = others * block * rows;  // what every other rank gives this one
  if (kind == Kind::broadcast || kind == Kind::scatter) reads = root ? 0 : block;
  if ((kind == Kind::gather || kind == Kind::reduce) && !root) reads = 0;
  if (kind == Kind::barrier) reads = 0;
  if (scans) reads = rank * block;
  if (small) return {comm::Algorithm::shared_board, gives ? given : 0, reads};

  // A reduction deals the cache lines of each round out to the ranks; who has a share reads it of all and writes it for
  // all.
  std::int64_t const round = path.reachable ? count : path.stage_bytes / 4 / (blocked ? ranks : rows) / 16 * 16;
  std::int64_t mine = 0;
  for (std::int64_t at = 0; at < count; at += round) {
    std::int64_t const n = std::min(round, count - at), lines = (n + 15) / 16;
    mine += 4 * (std::min(lines * (rank + 1) / ranks * 16, n) - std::min(lines * rank / ranks * 16, n));
  }
  if (whole) reads = others * mine * rows;
  std::int64_t writes = whole ? others * mine : 0;  // results
  if (kind == Kind::reduce) writes = root ? 0 : mine;
  if (kind == Kind::exscan && !last) reads -= mine;   // what the last rank gives is in nobody's result
  if (kind == Kind::exscan && !root) writes -= mine;  // and the first rank gets none
  std::int64_t const least_read = kind == Kind::broadcast || kind == Kind::scatter ? 65536 : 32768;
  bool const read = path.readable && !whole && kind != Kind::reduce_scatter && block >= least_read;
  if (path.reachable || read) return {comm::Algorithm::shared_one_pass, writes, reads};
  // Without what only this rank takes.
  std::int64_t const filled = given - (whole ? mine * rows : blocked ? block : 0);
  return {comm::Algorithm::shared_staged, (gives ? filled : 0) + writes, reads};
}

/// Of blocks of `count` + r floats for or from rank r. The board carries what fits it behind the sizes that a rank
/// tells: of the blocks that it gives, and of those that it expects, as far as the others do not know them. Whoever has
/// more does without it.
inline Moved ragged_traffic(comm::Kind kind, int ranks, int rank, std::int64_t count, SharedPath const& path) {
  using comm::Kind;
  std::int64_t const all = 4 * (ranks * count + ranks * (ranks - 1) / 2);
  bool const gathers = kind == Kind::gather_v || kind == Kind::all_gather_v;
  auto const block = [&](int r) { return 4 * (count + r); };
  auto const given = [&](int r) { return kind == Kind::scatter_v && r != 0 ? 0 : gathers ? block(r) : all; };
  auto const told = [&](int r) {
    switch (kind) {
      case Kind::gather_v: case Kind::scatter_v: return 8 * (r == 0 ? ranks + 1 : 1);
      case Kind::all_to_all_v: return 8 * 2 * ranks;
      default: return 0;
    }
  };
  auto const fits = [&](int r) { return told(r) + given(r) <= 1000; };
  bool all_fit = true;
  for (int r = 0; r < ranks; ++r) all_fit = all_fit && fits(r);

  std::int64_t reads = gathers ? all - block(rank) : (ranks - 1) * block(rank);
  if (kind == Kind::gather_v && rank != 0) reads = 0;
  if (kind == Kind::scatter_v) reads = rank == 0 ? 0 : block(rank);
  if (all_fit) return {comm::Algorithm::shared_board, given(rank), reads};
  std::int64_t const inside = fits(rank) ? given(rank) : 0;
  bool const read = path.readable && kind != Kind::reduce_scatter_v &&
                    block(ranks - 1) >= (kind == Kind::scatter_v ? 65536 : 32768);
  if (path.reachable || read) return {comm::Algorithm::shared_one_pass, inside, reads};
  // Without what only this rank takes.
  return {comm::Algorithm::shared_staged, fits(rank) ? inside : given(rank) - (gathers ? 0 : block(rank)), reads};
}

/// Runs every kind that has a path on shared memory, at sizes around the limits, and adds to `text` what differs.
/// Returns how many calls were compared.
template <class Comm>
int compare_shared_traffic(Comm& comm, SharedPath const& path, std::string& text) {
  using comm::Kind;
  int const ranks = comm.size(), rank = comm.rank();
  int compared = 0;
  for (std::int64_t const count : {0, 1, 62, 63, 245, 250, 251, 5000, 100'003}) {
    auto const make = [&](std::int64_t n) {
      auto made = path.reachable ? tensor<float>(comm, Shape{n}) : Tensor<float, Cpu>(Shape{n});
      made.fill(1.0f);
      return made;
    };
    auto x = make(count), y = make(count), blocks = make(count * ranks), others = make(count * ranks);
    auto const see = [&](Kind kind, auto&& operation) {
      comm.start_statistics();
      operation();
      Statistics const statistics = comm.statistics();
      Moved const moved = comm::has_counts(kind) ? ragged_traffic(kind, ranks, rank, count, path)
                                                 : shared_traffic(kind, ranks, rank, count, path);
      OperationStatistics const* const one = statistics.find(name(kind));
      bool good = statistics.operations.size() == 1 && one != nullptr && one->calls == 1;
      for (int a = 0; a < comm::algorithm_count && good; ++a) {
        bool const this_one = a == static_cast<int>(moved.algorithm);
        good = one->wire[a].operations == (this_one ? 1 : 0) && one->wire[a].sent == (this_one ? moved.sent : 0) &&
               one->wire[a].received == (this_one ? moved.received : 0);
      }
      ++compared;
      if (!good)
        text += std::string(name(kind)) + " of " + std::to_string(count) + " on rank " + std::to_string(rank) + " of " +
                std::to_string(ranks) + ": expected " + std::string(name(moved.algorithm)) + ", " +
                std::to_string(moved.sent) + " sent, " + std::to_string(moved.received) + " received; said " +
                comm::to_json(statistics);
    };
    see(Kind::barrier, [&] { comm.barrier(); });
    see(Kind::broadcast, [&] { comm.broadcast(x); });
    see(Kind::reduce, [&] { comm.reduce(x, sum); });
    see(Kind::reduce, [&] { comm.reduce(x, y, sum); });
    see(Kind::all_reduce, [&] { comm.all_reduce(x, sum); });
    see(Kind::all_reduce, [&] { comm.all_reduce(x, y, avg); });
    see(Kind::gather, [&] { comm.gather(x, blocks); });
    see(Kind::all_gather, [&] { comm.all_gather(x, blocks); });
    see(Kind::scatter, [&] { comm.scatter(blocks, y); });
    see(Kind::reduce_scatter, [&] { comm.reduce_scatter(blocks, y, max); });
    see(Kind::all_to_all, [&] { comm.all_to_all(blocks, others); });
    see(Kind::scan, [&] { comm.scan(x, sum); });
    see(Kind::scan, [&] { comm.scan(x, y, avg); });
    see(Kind::exscan, [&] { comm.exscan(x, y, sum); });
    auto rows = make(count * shared_contributions);
    see(Kind::all_reduce_contributions, [&] {
      comm.all_reduce_contributions(rows.reshape({shared_contributions, count}), y, sum);
    });

    List<std::int64_t> sizes, own_sizes;  // of the blocks for each rank; of those that this one gets
    for (int r = 0; r < ranks; ++r) {
      sizes.push_back(count + r);
      own_sizes.push_back(count + rank);
    }
    std::int64_t const total = ranks * count + ranks * (ranks - 1) / 2;
    auto own = make(count + rank), all = make(total), exchanged = make(ranks * (count + rank));
    see(Kind::gather_v, [&] { comm.gather_v(own, all, sizes); });
    see(Kind::all_gather_v, [&] { comm.all_gather_v(own, all, sizes); });
    see(Kind::scatter_v, [&] { comm.scatter_v(all, own, sizes); });
    see(Kind::reduce_scatter_v, [&] { comm.reduce_scatter_v(all, own, sizes, sum); });
    see(Kind::all_to_all_v, [&] { comm.all_to_all_v(all, exchanged, sizes, own_sizes); });
  }
  return compared;
}

}  // namespace tutti::test
