// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One rank's work on a collective of ranks that share memory: where contributions lie, and what is done with them. Who
/// may do it when is the engine's business.

#include <tutti/comm/shared/board.hpp>
#include <tutti/config.hpp>
#include <tutti/core/list.hpp>

#include <cstdint>
#include <cstring>

namespace tutti::comm::shared {

/// Copies past the caches: what is larger than they are would be read into them only to be overwritten. Visible to
/// others after `streams_done`.
inline void copy_streaming(void* to, void const* from, std::int64_t bytes) noexcept {
#if TUTTI_HAS_X86
  using Vector [[gnu::vector_size(16)]] = long long;
  if (reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    auto* const out = static_cast<std::byte*>(to);
    auto const* const in = static_cast<std::byte const*>(from);
    std::int64_t at = 0;
    for (; at + 16 <= bytes; at += 16) {
      Vector value;
      std::memcpy(&value, in + at, 16);
#if defined(__clang__)
      __builtin_nontemporal_store(value, reinterpret_cast<Vector*>(out + at));
#else
      __builtin_ia32_movntdq(reinterpret_cast<Vector*>(out + at), value);
#endif
    }
    std::memcpy(out + at, in + at, static_cast<std::size_t>(bytes - at));
    return;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void streams_done() noexcept {
#if TUTTI_HAS_X86
  __builtin_ia32_sfence();
#endif
}

/// What ranks of a node do together as a part of a collective of more ranks.
struct Part {
  Collective call{};  ///< with the node's own ranks
  /// Elements of a buffer with a block for each rank, the last ones of which overlap those before them where `count` of
  /// each would be more; -1: the blocks lie end to end. For reduce_scatter out of place, gather and all_gather.
  std::int64_t extent = -1;
  /// Bytes of an element of the result, where it is wider than the contributions are; 0: the same. For reduce_scatter.
  std::int64_t result_bytes = 0;
};

/// A collective under way.
struct Call {
  enum Phase : std::uint8_t { unpublished, arriving, disagreeing, sharing, filling, consuming, draining, closing };
  Call() = default;
  explicit Call(Collective const& made) : call(made), element(made.element_bytes()) {}

  Collective call;
  std::int64_t element = 1;  // bytes
  Collective const* part_of = nullptr;
  std::int64_t extent = -1;
  std::int64_t result_bytes = 0;
  std::uint64_t sequence = 0;
  std::uint64_t round = 0;     // of staged collectives: the engine's number of the round under way
  std::int64_t at = 0;         // first element of the round in each block
  std::int64_t chunk = 0;      // elements of a round in each block
  std::int64_t give_up_at = 0;
  int next = 0;                // the first rank not yet seen in this phase
  int other = 0;               // who disagrees with rank 0
  Phase phase = unpublished;
  bool complete = false;
  std::exception_ptr failure{};  // of this call, whoever moved it on
  bool compares_only = false;  // the rest goes by messages
  bool small = false;          // the board carries the contributions
  WireTraffic moved{};         // by this rank, see comm/tally.hpp
  bool fills = false;          // whether some contribution, or some result, passes through staging memory
  bool drains = false;

  /// What the user called.
  Collective const& whole() const noexcept { return part_of != nullptr ? *part_of : call; }
  std::uint64_t ticket() const noexcept { return sequence + 1; }
  std::int64_t element_bytes() const noexcept { return element; }
  Algorithm algorithm() const noexcept {
    if (small) return Algorithm::shared_board;
    return fills || drains ? Algorithm::shared_staged : Algorithm::shared_one_pass;
  }
  /// Where a rank's block begins in a buffer with one for each rank.
  std::int64_t begin_of(std::int64_t block) const noexcept {
    std::int64_t const begin = block * call.count;
    return extent < 0 || begin <= extent - call.count ? begin : extent - call.count;
  }
  /// Elements of the round under way in each block.
  std::int64_t round_count() const noexcept { return call.count - at < chunk ? call.count - at : chunk; }
};

template <class = void>
class BasicShare {
 public:
  BasicShare() = default;
  BasicShare(Board board, int rank)
      : board_(board), rank_(rank), size_(board.size()), inputs_(static_cast<std::size_t>(size_)) {}

  /// The most that any rank contributes: the same number on all ranks, which decides whether the board carries it.
  std::int64_t contribution_bound(Call const& c) const noexcept {
    return (gives_blocks(c.call.kind) ? c.begin_of(size_ - 1) + c.call.count : c.call.count) * c.element_bytes();
  }
  void publish(Call& c) noexcept {
    Entry& own = board_.entry(c.sequence, rank_);
    own.facts = facts_of(c.whole());
    own.count = compared_count(c.whole());
    if (c.small) {
      if (!c.compares_only && contributes(c.call, rank_)) put(c, own.payload, c.call.from, contribution_bound(c));
    } else {
      own.from = board_.place(c.call.from);
      own.to = board_.place(c.call.to);
    }
    own.arrived.store(c.ticket(), std::memory_order_release);
  }
  /// All ranks see the same places and choose the same path.
  void choose(Call& c) const noexcept {
    c.fills = c.drains = false;
    for (int r = 0; r < size_; ++r) {
      Entry const& entry = board_.entry(c.sequence, r);
      c.fills |= contributes(c.call, r) && c.call.kind != Kind::barrier && entry.from == 0;
      c.drains |= reduces_whole(c.call.kind) && (c.call.kind == Kind::all_reduce || r == c.call.root) && entry.to == 0;
    }
    c.phase = c.fills || c.drains ? Call::filling : Call::sharing;
    c.at = 0;
    std::int64_t const line = 64 / c.element_bytes() > 0 ? 64 / c.element_bytes() : 1;
    std::int64_t const elements =
        board_.stage_bytes() / c.element_bytes() / (gives_blocks(c.call.kind) ? size_ : 1);
    c.chunk = elements > line ? elements / line * line : elements;
  }
  /// This rank's contribution to the round, when the others cannot reach it; not what only this rank takes.
  void fill(Call& c) noexcept {
    Collective const& call = c.call;
    if (!contributes(call, rank_) || board_.entry(c.sequence, rank_).from != 0) return;
    auto const* const from = static_cast<std::byte const*>(call.from);
    std::byte* const stage = board_.stage(rank_, c.round);
    std::int64_t const element = c.element_bytes();
    bool const blocks = gives_blocks(call.kind);
    Slice const own = slice_of(c, rank_, c.at, c.round_count());
    for (int block = 0; block < (blocks ? size_ : 1); ++block) {
      if (blocks && block == rank_) continue;
      auto const fill_range = [&](std::int64_t begin, std::int64_t end) {
        put(c, stage + (block * c.chunk + begin - c.at) * element, from + (c.begin_of(block) + begin) * element,
            (end - begin) * element);
      };
      bool const slices = reduces_whole(call.kind);
      fill_range(c.at, slices ? own.begin : c.at + c.round_count());
      if (slices) fill_range(own.end, c.at + c.round_count());
    }
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
        if (call.kind == Kind::gather && rank_ != call.root) break;
        for (int r = 0; r < size_; ++r) take(c, to + c.begin_of(r) * element, r, 0, at, bytes);
        break;
      case Kind::all_to_all:
        for (int r = 0; r < size_; ++r) take(c, to + r * call.block_bytes(), r, rank_, at, bytes);
        break;
      case Kind::reduce_scatter: fold(c, rank_, at, to, count); break;
      case Kind::reduce: case Kind::all_reduce:
        if (!c.small) reduce_slice(c, at, count);
        else if (call.kind == Kind::all_reduce || rank_ == call.root) fold(c, 0, at, to, count);
        break;
      default: break;  // derived from messages
    }
  }
  /// Results of the round that the owners could not write here themselves.
  void drain(Call& c) noexcept {
    Collective const& call = c.call;
    if (call.kind == Kind::reduce && rank_ != call.root) return;
    if (board_.entry(c.sequence, rank_).to != 0) return;
    std::int64_t const element = c.element_bytes();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      Slice const slice = slice_of(c, r, c.at, c.round_count());
      copy(static_cast<std::byte*>(call.to) + slice.begin * element,
           board_.stage(rank_, c.round) + (slice.begin - c.at) * element, (slice.end - slice.begin) * element);
    }
  }

 private:
  static bool reduces_whole(Kind kind) noexcept { return kind == Kind::all_reduce || kind == Kind::reduce; }
  static bool rooted_source(Kind kind) noexcept { return kind == Kind::broadcast || kind == Kind::scatter; }
  bool contributes(Collective const& call, int rank) const noexcept {
    return !rooted_source(call.kind) || rank == call.root;
  }
  static void copy(void* to, void const* from, std::int64_t bytes) noexcept {
    if (to != from && bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// To where others read it.
  static void put(Call& c, void* to, void const* from, std::int64_t bytes) noexcept {
    copy(to, from, bytes);
    c.moved.sent += bytes;
  }
  /// From a block that `rank` contributes, of its elements from `at` on.
  void take(Call& c, void* to, int rank, std::int64_t block, std::int64_t at, std::int64_t bytes) noexcept {
    copy(to, source(c, rank, block, at), bytes);
    if (rank != rank_) c.moved.received += bytes;
  }

  /// Elements from `at` on of a block that `rank` contributes.
  std::byte const* source(Call const& c, int rank, std::int64_t block, std::int64_t at) const noexcept {
    std::int64_t const element = c.element_bytes();
    std::int64_t const offset = (c.begin_of(block) + at) * element;
    if (rank == rank_) return static_cast<std::byte const*>(c.call.from) + offset;
    Entry const& entry = board_.entry(c.sequence, rank);
    if (c.small) return entry.payload + offset;
    if (entry.from != 0) return board_.address(entry.from) + offset;
    return board_.stage(rank, c.round) + (block * c.chunk + at - c.at) * element;
  }
  /// All ranks' elements of a block, combined into `to`.
  void fold(Call& c, std::int64_t block, std::int64_t at, void* to, std::int64_t count) {
    fold(c, block, at, &to, 1, count);
  }
  void fold(Call& c, std::int64_t block, std::int64_t at, void* const* outputs, int copies, std::int64_t count) {
    if (c.small) {
      std::int64_t const offset = (c.begin_of(block) + at) * c.element_bytes();
      Entry const* const entries = board_.entries(c.sequence);
      for (int r = 0; r < size_; ++r) inputs_[static_cast<std::size_t>(r)] = entries[r].payload + offset;
      inputs_[static_cast<std::size_t>(rank_)] = static_cast<std::byte const*>(c.call.from) + offset;
    } else {
      for (int r = 0; r < size_; ++r) inputs_[static_cast<std::size_t>(r)] = source(c, r, block, at);
    }
    c.call.reduction.fold(c.call.reduction.state, inputs_.data(), size_, outputs, copies, count);
    c.moved.received += (size_ - 1) * count * c.element_bytes();
  }

  struct Slice {
    std::int64_t begin, end;
  };
  /// Whole cache lines of the elements [at, at + count) that a rank reduces.
  Slice slice_of(Call const& c, int rank, std::int64_t at, std::int64_t count) const noexcept {
    std::int64_t const line = c.element_bytes() < 64 ? 64 / c.element_bytes() : 1;
    std::int64_t const lines = (count + line - 1) / line;
    auto const bound = [&](int r) {
      std::int64_t const elements = lines * r / size_ * line;
      return at + (elements < count ? elements : count);
    };
    return {bound(rank), bound(rank + 1)};
  }
  /// This rank's slice of a reduction, to all that want it: to their buffers, or in place of what they have put into
  /// their staging memory. Only the owner touches a slice until all are done, hence in place is safe.
  void reduce_slice(Call& c, std::int64_t at, std::int64_t count) {
    Collective const& call = c.call;
    std::int64_t const element = c.element_bytes();
    Slice const slice = slice_of(c, rank_, at, count);
    std::int64_t const bytes = (slice.end - slice.begin) * element;
    bool const all = call.kind == Kind::all_reduce;
    outputs_.clear();
    for (int r = 0; r < size_; ++r) {
      if (!all && r != call.root) continue;
      std::uint64_t const place = board_.entry(c.sequence, r).to;
      std::byte* const to = r == rank_ ? static_cast<std::byte*>(call.to) : board_.address(place);
      if (r != rank_ && place == 0)
        outputs_.push_back(board_.stage(r, c.round) + (slice.begin - c.at) * element);
      else outputs_.push_back(to + slice.begin * element);
      if (r != rank_) c.moved.sent += bytes;
    }
    // In place the line was read a moment ago and is written to the cache; elsewhere a large result goes around it.
    bool const streams = all && !c.drains && call.count * element >= streaming_bytes && call.from != call.to;
    if ((streams || outputs_.size() > most_outputs) && element <= tile_bytes)
      return fold_by_tiles(c, slice.begin, slice.end, streams);
    fold(c, 0, slice.begin, outputs_.data(), static_cast<int>(outputs_.size()), slice.end - slice.begin);
  }
  /// Tile by tile, by way of the first-level cache.
  void fold_by_tiles(Call& c, std::int64_t begin, std::int64_t end, bool streams) {
    std::int64_t const element = c.element_bytes();
    std::int64_t const tile = tile_bytes / element;
    alignas(64) std::byte result[tile_bytes];
    for (std::int64_t i = begin; i < end; i += tile) {
      std::int64_t const n = end - i < tile ? end - i : tile;
      fold(c, 0, i, result, n);
      for (void* const output : outputs_) {
        std::byte* const to = static_cast<std::byte*>(output) + (i - begin) * element;
        if (streams) copy_streaming(to, result, n * element);
        else copy(to, result, n * element);
      }
    }
    if (streams) streams_done();
  }
  static constexpr std::int64_t streaming_bytes = std::int64_t{16} << 20;
  static constexpr std::int64_t tile_bytes = 8192;
  static constexpr std::size_t most_outputs = 8;  // at once: more streams than a cache has ways push each other out

  Board board_;
  int rank_ = 0;
  int size_ = 0;
  List<void const*> inputs_;
  List<void*> outputs_;
};
using Share = BasicShare<>;

}  // namespace tutti::comm::shared
