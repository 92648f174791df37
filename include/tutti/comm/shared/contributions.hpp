// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks that share memory give to a collective: which of them, in how many blocks, and where it lies: beside the
/// arrival word, in the rank's own buffer, or in staging memory.

#include <tutti/comm/collective_facts.hpp>
#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/call.hpp>
#include <tutti/comm/shared/copy.hpp>
#include <tutti/comm/shared/roles.hpp>

#include <cstdint>
#include <cstring>

namespace tutti::comm::shared {

template <class = void>
class BasicContributions {
 public:
  BasicContributions() = default;
  BasicContributions(Board board, int rank) : board_(board), rank_(rank), size_(board.size()) {}

  /// Whether the ranks can do this on shared memory: an entry needs room for sizes that only one rank knows, and
  /// staging memory for an element of each block. The same on all ranks.
  bool can(Collective const& call) const noexcept {
    std::int64_t const sizes = call.kind == Kind::all_to_all_v ? 2 * size_ : tells_sizes(call.kind) ? size_ + 1 : 0;
    if (8 * sizes > Entry::inline_bytes) return false;
    return board_.reaches_all() || board_.stage_bytes() >= blocks(call) * call.element_bytes();
  }
  /// Whether the board carries the contributions: by what any rank contributes at most, the same number on all of them.
  /// Of blocks with sizes of their own `measure` finds out.
  bool is_small(Call const& c) const noexcept {
    return !has_counts(c.call.kind) && most_contributed(c) <= small_bytes(c.call.kind);
  }
  static std::int64_t small_bytes(Kind kind) noexcept {
    return kind == Kind::broadcast ? Board::root_bytes : Entry::inline_bytes;
  }
  /// Everything but that it is there.
  void prepare(Call& c) noexcept {
    Entry& own = board_.entry(c.sequence, rank_);
    own.facts = facts_of(c.whole());
    own.count = compared_count(c.whole());
    if (c.small) {
      if (!c.compares_only && contributes(c.call, rank_))
        put(c, payload(c.call, c.sequence, rank_), c.call.from, most_contributed(c));
    } else {
      own.from = board_.place(c.call.from);
      own.to = board_.place(c.call.to);
      own.address = std::uint64_t{reinterpret_cast<std::uintptr_t>(c.call.from)};
      if (has_counts(c.call.kind)) publish_blocks(c, own);
    }
  }
  void publish(Call& c) noexcept {
    board_.entry(c.sequence, rank_).arrived.store(c.ticket(), std::memory_order_release);
  }
  /// Whether what this rank contributes says by itself that the call goes through staging memory. After `prepare`.
  bool fills_surely(Call const& c) const noexcept {
    return !c.small && c.part_of == nullptr && !has_counts(c.call.kind) && c.call.kind != Kind::barrier && !reads(c) &&
           contributes(c.call, rank_) && board_.entry(c.sequence, rank_).from == 0;
  }
  /// Of blocks with sizes of their own, when all have arrived: finds the longest, and whether the board carries all.
  /// False where two ranks disagree on a block between them; all ranks find the same two.
  bool measure(Call& c) const noexcept {
    Collective const& call = c.call;
    c.small = true;
    c.length = 0;
    for (int r = 0; r < size_; ++r) {
      if (!contributes(call, r)) continue;
      c.small &= board_.entry(c.sequence, r).from == Entry::in_payload;
      for (std::int64_t block = 0; block < blocks(call); ++block)
        if (std::int64_t const count = count_of(c, r, block); count > c.length) c.length = count;
      for (int s = 0; s < size_ && tells_sizes(call.kind); ++s) {
        if (!gets_result(call, s)) continue;
        c.given = count_of(c, r, has_blocks(call.kind) ? s : 0) * c.element_bytes();
        c.expected =
            size_at(c, s, given_sizes(call, s, size_) + (call.kind == Kind::scatter_v ? 0 : r)) * c.element_bytes();
        c.one = r;
        c.other = s;
        if (c.given != c.expected) return false;
      }
    }
    return true;
  }
  /// From now on: whether every rank can read the memory of every other one, as all of them know.
  void allow_reading(bool allowed) noexcept { may_read_ = allowed; }
  bool may_read() const noexcept { return may_read_; }
  /// Whether contributions of this call that are out of reach are read where they lie, copied once by the system
  /// instead of twice by way of staging memory: those that are moved, not combined, from a size on that pays for it.
  bool reads(Call const& c) const noexcept {
    // Of a root that stages, the others take what is there while it writes on: to read pays later.
    std::int64_t const least = rooted_source(c.call.kind) ? 2 * least_read_bytes : least_read_bytes;
    return may_read_ && !c.compares_only && moves(c.call.kind) && c.length * c.element_bytes() >= least;
  }
  /// All ranks see the same places and choose the same path.
  void choose(Call& c) const noexcept {
    c.fills = c.drains = false;
    for (int r = 0; r < size_; ++r) {
      Entry const& entry = board_.entry(c.sequence, r);
      c.fills |= contributes(c.call, r) && c.call.kind != Kind::barrier && entry.from == 0;
      c.drains |= reduces_slices(c.call.kind) && gets_result(c.call, r) && entry.to == 0;
    }
    c.reads = c.fills && reads(c);
    if (c.reads) c.fills = false;
    c.phase = c.fills || c.drains ? Call::filling : Call::sharing;
    divide(c);
  }
  /// Into rounds of what staging memory holds. What needs one round is put at another place of it each time: its last
  /// contents have left the first-level cache of who wrote them by then, from where others read slower (8 KiB in 1.0 us
  /// instead of 0.6 on an Intel Xeon).
  void divide(Call& c) const noexcept {
    c.at = 0;
    std::int64_t const line = 64 / c.element_bytes() > 0 ? 64 / c.element_bytes() : 1;
    std::int64_t const elements = board_.stage_bytes() / c.element_bytes() / blocks(c.call);
    c.chunk = elements > line ? elements / line * line : elements;
    std::int64_t const needed = (c.length + line - 1) / line * line;
    c.places = 1;
    if (needed == 0 || 2 * needed > c.chunk || c.element_bytes() > 64) return;
    c.chunk = needed;
    c.places = board_.stage_bytes() / (blocks(c.call) * needed * c.element_bytes());
  }
  /// This rank's contribution to the round, when the others cannot reach it; not what only this rank takes.
  void fill(Call& c) noexcept {
    Collective const& call = c.call;
    if (!contributes(call, rank_) || board_.entry(c.sequence, rank_).from != 0) return;
    auto const* const from = static_cast<std::byte const*>(call.from);
    std::byte* const staging = stage(c, rank_);
    std::int64_t const element = c.element_bytes();
    bool const slices = reduces_slices(call.kind);
    Slice const own = slices ? slice_of(c, rank_, size_, c.at, c.round_count()) : Slice{};
    for (std::int64_t block = 0; block < blocks(call); ++block) {
      if (has_blocks(call.kind) && block == rank_) continue;
      std::int64_t const first = begin_of(c, rank_, block);
      auto const fill_range = [&](std::int64_t begin, std::int64_t end) {
        if (begin < end)
          put(c, staging + (block * c.chunk + begin - c.at) * element, from + (first + begin) * element,
              (end - begin) * element);
      };
      std::int64_t const length = count_of(c, rank_, block);
      std::int64_t const end = length < c.at + c.round_count() ? length : c.at + c.round_count();
      fill_range(c.at, slices ? own.begin : end);
      if (slices) fill_range(own.end, end);
    }
  }
  /// Whether its contribution to the round is in its staging memory.
  bool root_filled(Call const& c) const noexcept {
    return board_.status(c.call.root).filled.load(std::memory_order_acquire) >= c.round;
  }

 protected:
  /// Where this round's contribution of a rank is, and the results for it.
  std::byte* stage(Call const& c, int rank) const noexcept {
    std::byte* const begin = board_.stage(rank, c.round);
    if (c.places == 1) return begin;
    std::int64_t const place = static_cast<std::int64_t>(c.round >> 1) % c.places;
    return begin + place * blocks(c.call) * c.chunk * c.element_bytes();
  }
  static void copy(void* to, void const* from, std::int64_t bytes) noexcept {
    if (to != from) copy_shared(to, from, bytes);
  }
  /// Where a contribution to a small call lies.
  std::byte* payload(Collective const& call, std::uint64_t sequence, int rank) const noexcept {
    if (call.kind == Kind::broadcast && call.block_bytes() > Entry::inline_bytes) return board_.root_contents(sequence);
    return board_.entry(sequence, rank).payload;
  }
  /// To where others read it.
  static void put(Call& c, void* to, void const* from, std::int64_t bytes) noexcept {
    copy(to, from, bytes);
    c.moved.sent += bytes;
  }

  /// Of a contribution.
  std::int64_t blocks(Collective const& call) const noexcept {
    return has_blocks(call.kind) ? size_ : call.contributions;
  }
  /// Elements of a block that `rank` contributes, of kinds with counts once it has arrived.
  std::int64_t count_of(Call const& c, int rank, std::int64_t block) const noexcept {
    switch (c.call.kind) {
      case Kind::all_gather_v: return c.call.to_counts[rank];
      case Kind::reduce_scatter_v: return c.call.from_counts[static_cast<int>(block)];
      case Kind::gather_v: case Kind::scatter_v: case Kind::all_to_all_v: return size_at(c, rank, block);
      default: return c.call.count;
    }
  }
  std::int64_t size_at(Call const& c, int rank, std::int64_t index) const noexcept {
    std::int64_t size;
    std::memcpy(&size, board_.entry(c.sequence, rank).payload + 8 * index, 8);
    return size;
  }
  /// Bytes of them all, before the contribution.
  std::int64_t header_bytes(Collective const& call, int rank) const noexcept {
    return has_counts(call.kind) ? 8 * (given_sizes(call, rank, size_) + expected_sizes(call, rank, size_)) : 0;
  }
  /// Where it begins there.
  std::int64_t begin_of(Call const& c, int rank, std::int64_t block) const noexcept {
    if (!has_counts(c.call.kind)) return c.begin_of(block);
    std::int64_t begin = 0;
    for (std::int64_t before = 0; before < block; ++before) begin += count_of(c, rank, before);
    return begin;
  }
  /// Bytes that any rank contributes at most, of kinds without counts.
  std::int64_t most_contributed(Call const& c) const noexcept {
    Collective const& call = c.call;
    return (gives_blocks(call.kind) ? c.begin_of(size_ - 1) + call.count : call.count * call.contributions) *
           c.element_bytes();
  }
  void publish_blocks(Call& c, Entry& own) noexcept {
    Collective const& call = c.call;
    std::int64_t const given = given_sizes(call, rank_, size_), expected = expected_sizes(call, rank_, size_);
    std::int64_t const* const from = call.kind == Kind::gather_v ? &call.count : call.from_counts.begin();
    std::int64_t const* const to = call.kind == Kind::scatter_v ? &call.count : call.to_counts.begin();
    copy(own.payload, from, 8 * given);
    copy(own.payload + 8 * given, to, 8 * expected);
    std::int64_t const header = 8 * (given + expected);
    std::int64_t const bytes = contributes(call, rank_) ? contributed_bytes(call, size_) : 0;
    if (header + bytes > Entry::inline_bytes) return;
    put(c, own.payload + header, call.from, bytes);
    own.from = Entry::in_payload;
  }
  /// Elements from `at` on of a block that `rank` contributes.
  std::byte const* source(Call const& c, int rank, std::int64_t block, std::int64_t at) const noexcept {
    std::int64_t const element = c.element_bytes();
    std::int64_t const offset = (begin_of(c, rank, block) + at) * element;
    if (rank == rank_) return static_cast<std::byte const*>(c.call.from) + offset;
    Entry const& entry = board_.entry(c.sequence, rank);
    if (c.small && !has_counts(c.call.kind)) return payload(c.call, c.sequence, rank) + offset;
    if (c.small || entry.from == Entry::in_payload) return entry.payload + header_bytes(c.call, rank) + offset;
    if (entry.from != 0) return board_.address(entry.from) + offset;
    return stage(c, rank) + (block * c.chunk + at - c.at) * element;
  }

  static constexpr std::int64_t least_read_bytes = 32768;

  Board board_;
  int rank_ = 0;
  int size_ = 0;
  bool may_read_ = false;
};
using Contributions = BasicContributions<>;

}  // namespace tutti::comm::shared
