// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One rank's work on a collective of ranks that share memory: what is done with the contributions. Who may do it when
/// is the engine's business.

#include <tutti/comm/collective_facts.hpp>
#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/call.hpp>
#include <tutti/comm/shared/contributions.hpp>
#include <tutti/comm/shared/remote.hpp>
#include <tutti/comm/shared/roles.hpp>
#include <tutti/comm/shared/streaming_copy.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>

#include <cstdint>

namespace tutti::comm::shared {

template <class = void>
class BasicShare : public Contributions {
 public:
  BasicShare() = default;
  BasicShare(Board board, int rank)
      : Contributions(board, rank), inputs_(static_cast<std::size_t>(size_)), reader_(size_) {}

  /// Of one block, which the board carries: kinds that a rank can finish as soon as all have arrived, without a Call.
  bool posts(Collective const& call) const noexcept {
    constexpr unsigned kinds = 1u << static_cast<int>(Kind::barrier) | 1u << static_cast<int>(Kind::broadcast) |
                               1u << static_cast<int>(Kind::reduce) | 1u << static_cast<int>(Kind::all_reduce) |
                               1u << static_cast<int>(Kind::scan) | 1u << static_cast<int>(Kind::exscan);
    return (kinds >> static_cast<int>(call.kind) & 1u) != 0 && call.block_bytes() <= small_bytes(call.kind) &&
           call.wire == nullptr;
  }
  void post(Entry& own, Collective const& call, std::uint64_t sequence) noexcept {
    own.facts = facts_of(call);
    own.count = compared_count(call);
    if (contributes(call, rank_)) copy(payload(call, sequence, rank_), call.from, call.block_bytes());
    own.arrived.store(sequence + 1, std::memory_order_release);
  }
  void take_posted(Entry const* entries, Collective const& call, std::uint64_t sequence) {
    if (call.kind == Kind::broadcast)
      copy(call.to, rank_ == call.root ? call.from : payload(call, sequence, call.root), call.block_bytes());
    else if (call.kind != Kind::barrier && gets_result(call, rank_)) fold_posted(entries, call);
  }

  /// This rank's share of the elements [at, at + count) of every block.
  void consume(Call& c, std::int64_t at, std::int64_t count) {
    if (c.compares_only) return;
    Collective const& call = c.call;
    std::int64_t const element = c.element_bytes();
    std::int64_t const bytes = count * element;
    auto* const to = static_cast<std::byte*>(call.to) + at * (c.result_bytes != 0 ? c.result_bytes : element);
    switch (call.kind) {
      case Kind::barrier: break;
      case Kind::broadcast: take(c, to, call.root, 0, at, bytes); break;
      case Kind::scatter: take(c, to, call.root, rank_, at, bytes); break;
      case Kind::gather: case Kind::all_gather:
        if (!gets_result(call, rank_)) break;
        for (int r = 0; r < size_; ++r) take(c, to + c.begin_of(r) * element, r, 0, at, bytes);
        break;
      case Kind::all_to_all:
        for (int r = 0; r < size_; ++r) take(c, to + r * call.block_bytes(), r, rank_, at, bytes);
        break;
      case Kind::scatter_v: take_some(c, to, call.root, rank_, at, count); break;
      case Kind::gather_v: case Kind::all_gather_v: case Kind::all_to_all_v: {
        if (!gets_result(call, rank_)) break;
        std::int64_t begin = 0;
        for (int r = 0; r < size_; ++r) {
          take_some(c, to + begin * element, r, has_blocks(call.kind) ? rank_ : 0, at, count);
          begin += call.to_counts[r];
        }
        break;
      }
      case Kind::reduce_scatter: fold(c, rank_, at, to, count); break;
      case Kind::reduce_scatter_v: {
        std::int64_t const left = call.count - at;
        if (left > 0) fold(c, rank_, at, to, left < count ? left : count);
        break;
      }
      case Kind::reduce: case Kind::all_reduce: case Kind::scan: case Kind::exscan: case Kind::all_reduce_contributions:
        if (!c.small) reduce_slice(c, at, count);
        else if (gets_result(call, rank_)) fold_board(c);
        break;
    }
  }
  /// Results of the round that the owners could not write here themselves.
  void drain(Call& c) noexcept {
    Collective const& call = c.call;
    if (!gets_result(call, rank_) || board_.entry(c.sequence, rank_).to != 0) return;
    std::int64_t const element = c.element_bytes();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      Slice const slice = slice_of(c, r, size_, c.at, c.round_count());
      copy(static_cast<std::byte*>(call.to) + slice.begin * element,
           stage(c, rank_) + (slice.begin - c.at) * element, (slice.end - slice.begin) * element);
    }
  }

 private:
  /// From a block that `rank` contributes, of its elements from `at` on.
  void take(Call& c, void* to, int rank, std::int64_t block, std::int64_t at, std::int64_t bytes) {
    if (c.reads && rank != rank_ && board_.entry(c.sequence, rank).from == 0) read(c, to, rank, block, at, bytes);
    else copy(to, source(c, rank, block, at), bytes);
    if (rank != rank_) c.moved.received += bytes;
  }
  /// The same from its own memory, a part at a time.
  void read(Call& c, void* to, int rank, std::int64_t block, std::int64_t at, std::int64_t bytes) {
    constexpr std::int64_t part = std::int64_t{64} << 20;
    Origin const origin = board_.origin(rank);
    std::uint64_t const address = board_.entry(c.sequence, rank).address +
                                  static_cast<std::uint64_t>((begin_of(c, rank, block) + at) * c.element_bytes());
    for (std::int64_t done = 0; done < bytes; done += part)
      if (!reader_.read(rank, origin, address + static_cast<std::uint64_t>(done), static_cast<std::byte*>(to) + done,
                        bytes - done < part ? bytes - done : part))
        throw Error(ErrorKind::communication, name(c.call.kind).data(),
                    concat("the memory of rank ", rank, " cannot be read: its process has ended, or given the buffer "
                           "back"), c.call.where);
  }
  /// At most `count` elements of it, where it has so many.
  void take_some(Call& c, void* to, int rank, std::int64_t block, std::int64_t at, std::int64_t count) {
    std::int64_t const left = count_of(c, rank, block) - at;
    if (left > 0) take(c, to, rank, block, at, (left < count ? left : count) * c.element_bytes());
  }

  /// All ranks' elements of a block, combined into `to`: all contributions of each.
  void fold(Call& c, std::int64_t block, std::int64_t at, void* to, std::int64_t count) {
    fold(c, block, at, &to, 1, count);
  }
  void fold(Call& c, std::int64_t block, std::int64_t at, void* const* outputs, int copies, std::int64_t count) {
    find_inputs(c, block, at);
    c.call.reduction.fold(c.call.reduction.state, inputs_.data(), size_ * static_cast<int>(c.call.contributions),
                          outputs, copies, count);
    c.moved.received += (size_ - 1) * c.call.contributions * count * c.element_bytes();
  }
  /// Of the ranks whose contributions are in this rank's result of a small call.
  int ranks_in_result(Collective const& call) const noexcept {
    return call.kind == Kind::scan ? rank_ + 1 : call.kind == Kind::exscan ? rank_ : size_;
  }
  void fold_posted(Entry const* entries, Collective const& call) {
    int const ranks = ranks_in_result(call);
    for (int r = 0; r < ranks; ++r) inputs_[static_cast<std::size_t>(r)] = entries[r].payload;
    inputs_[static_cast<std::size_t>(rank_)] = call.from;
    void* to = call.to;
    call.reduction.fold(call.reduction.state, inputs_.data(), ranks, &to, 1, call.count);
  }
  void fold_board(Call& c) {
    if (c.call.contributions != 1) return fold(c, 0, 0, c.call.to, c.call.count);
    fold_posted(board_.entries(c.sequence), c.call);
    int const ranks = ranks_in_result(c.call);
    c.moved.received += (ranks > rank_ ? ranks - 1 : ranks) * c.call.block_bytes();
  }
  void find_inputs(Call const& c, std::int64_t block, std::int64_t at) {
    std::int64_t const rows = c.call.contributions;
    auto const number = static_cast<std::size_t>(size_ * rows);
    if (inputs_.size() < number) inputs_.resize(number);
    std::size_t i = 0;
    for (int r = 0; r < size_; ++r)
      for (std::int64_t row = 0; row < rows; ++row) inputs_[i++] = source(c, r, rows > 1 ? row : block, at);
  }

  /// This rank's slice of a reduction, to all that want it: to their buffers, or in place of what they have put into
  /// their staging memory. Only the owner touches a slice until all are done, hence in place is safe.
  void reduce_slice(Call& c, std::int64_t at, std::int64_t count) {
    Collective const& call = c.call;
    std::int64_t const element = c.element_bytes();
    Slice const slice = slice_of(c, rank_, size_, at, count);
    std::int64_t const bytes = (slice.end - slice.begin) * element;
    bool const scans = is_scan(call.kind);
    outputs_.clear();
    for (int r = 0; r < size_; ++r) {
      if (!gets_result(call, r)) {
        if (scans) outputs_.push_back(nullptr);
        continue;
      }
      std::uint64_t const place = board_.entry(c.sequence, r).to;
      std::byte* const to = r == rank_ ? static_cast<std::byte*>(call.to) : board_.address(place);
      if (r != rank_ && place == 0)
        outputs_.push_back(stage(c, r) + (slice.begin - c.at) * element);
      else outputs_.push_back(to + slice.begin * element);
      if (r != rank_) c.moved.sent += bytes;
    }
    if (scans) return scan_slice(c, slice.begin, slice.end - slice.begin);
    // In place the line was read a moment ago and is written to the cache; elsewhere a large result goes around it.
    bool const streams = call.kind != Kind::reduce && !c.drains && call.count * element >= streaming_bytes &&
                         call.from != call.to;
    if ((streams || outputs_.size() > most_outputs) && element <= tile_bytes)
      return fold_by_tiles(c, slice.begin, slice.end, streams);
    fold(c, 0, slice.begin, outputs_.data(), static_cast<int>(outputs_.size()), slice.end - slice.begin);
  }
  /// Of a scan the results differ: outputs_[r] is rank r's.
  void scan_slice(Call& c, std::int64_t begin, std::int64_t count) {
    bool const inclusive = c.call.kind == Kind::scan;
    find_inputs(c, 0, begin);
    c.call.reduction.prefixes(c.call.reduction.state, inputs_.data(), size_, outputs_.data(), inclusive, count);
    int const others =
        inclusive || rank_ == size_ - 1 ? size_ - 1 : size_ - 2;  // nobody gets the last one of an exscan
    c.moved.received += others * count * c.element_bytes();
  }
  /// Tile by tile, by way of the first-level cache. Streamed tiles are small, so that memory reads and writes at once.
  void fold_by_tiles(Call& c, std::int64_t begin, std::int64_t end, bool streams) {
    std::int64_t const element = c.element_bytes();
    std::int64_t const wanted = streams ? streamed_tile_bytes : tile_bytes;
    std::int64_t const whole = wanted / element / 16 * 16;  // whose bytes keep the outputs aligned
    std::int64_t const tile = whole > 0 ? whole : 1;
    alignas(64) std::byte result[tile_bytes];
    for (std::int64_t i = begin; i < end; i += tile) {
      std::int64_t const n = end - i < tile ? end - i : tile;
      fold(c, 0, i, result, n);
      for (std::size_t k = 0; k < outputs_.size(); ++k) {
        std::byte* const to = static_cast<std::byte*>(outputs_[k]) + (i - begin) * element;
        // There are as many inputs, at least. Nothing happens where nothing lies behind the last tile.
        if (streams) copy_streaming(to, result, n * element, static_cast<std::byte const*>(inputs_[k]) + n * element);
        else copy(to, result, n * element);
      }
    }
    if (streams) streams_done();
  }
  static constexpr std::int64_t streaming_bytes = std::int64_t{16} << 20;
  static constexpr std::int64_t tile_bytes = 8192;
  static constexpr std::int64_t streamed_tile_bytes = 1024;
  static constexpr std::size_t most_outputs = 8;  // at once: more streams than a cache has ways push each other out

  List<void const*> inputs_;
  List<void*> outputs_;
  RemoteReader reader_;
};
using Share = BasicShare<>;

}  // namespace tutti::comm::shared
