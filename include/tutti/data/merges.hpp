// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Merging of neighbouring tokens in the order of ranks, and the table of pieces that a tokenizer knows by heart.

#include <tutti/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// Two neighbours that become one token; the rank of a merge is its place in the list.
struct Merge {
  std::int32_t left = 0, right = 0;

  friend bool operator==(Merge const&, Merge const&) = default;
};

namespace detail {

/// Open-addressing map from a pair of ids to (rank, merged id). Filled once, then only read.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t key = ~std::uint64_t{0};
    std::int32_t rank = 0, id = 0;
  };
  static constexpr std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  explicit MergeTable(std::size_t count = 0) {
    std::size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    entries_.resize(slots);
  }
  /// False when the pair is there already.
  bool insert(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
    std::uint64_t const key = key_of(left, right);
    std::size_t slot = slot_of(key);
    for (; entries_[slot].key != ~std::uint64_t{0}; slot = (slot + 1) & (entries_.size() - 1))
      if (entries_[slot].key == key) return false;
    entries_[slot] = {key, rank, id};
    return true;
  }
  Entry const* find(std::int32_t left, std::int32_t right) const noexcept {
    std::uint64_t const key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & (entries_.size() - 1)) {
      if (entries_[slot].key == key) return &entries_[slot];
      if (entries_[slot].key == ~std::uint64_t{0}) return nullptr;
    }
  }

 private:
  std::size_t slot_of(std::uint64_t key) const noexcept {
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(key ^ key >> 32) & (entries_.size() - 1);
  }
  std::vector<Entry> entries_;
};

/// Merges the symbols of one piece: lowest rank first, the leftmost among equals, until nothing merges.
/// Cost: n log n in the symbols of a long piece, so no text takes quadratic time.
class Merger {
 public:
  std::vector<std::int32_t> symbols;  ///< in: the symbols of a piece; out: what they merged to

  void merge(MergeTable const& table) { symbols.size() <= 48 ? merge_short(table) : merge_long(table); }

 private:
  static constexpr std::int32_t none = 0x7fffffff;
  struct Link {
    std::int32_t symbol, previous, next;
  };
  struct Candidate {
    std::int32_t rank, place, left, right, id;
    bool operator<(Candidate const& other) const noexcept {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  /// By looking at all: pieces are short.
  void merge_short(MergeTable const& table) {
    std::size_t count = symbols.size();
    ranks_.resize(count);
    made_.resize(count);
    auto const look = [&](std::size_t i) {
      auto const* const merge = i + 1 < count ? table.find(symbols[i], symbols[i + 1]) : nullptr;
      ranks_[i] = merge != nullptr ? merge->rank : none;
      made_[i] = merge != nullptr ? merge->id : 0;
    };
    for (std::size_t i = 0; i < count; ++i) look(i);
    while (count > 1) {
      std::size_t best = 0;
      std::int32_t rank = ranks_[0];
      for (std::size_t i = 1; i + 1 < count; ++i)
        if (ranks_[i] < rank) rank = ranks_[best = i];
      if (rank == none) break;
      symbols[best] = made_[best];
      --count;
      for (std::size_t i = best + 1; i < count; ++i) {
        symbols[i] = symbols[i + 1];
        ranks_[i] = ranks_[i + 1];
        made_[i] = made_[i + 1];
      }
      look(best);
      if (best > 0) look(best - 1);
    }
    symbols.resize(count);
  }

  /// Through a heap over a linked list, for a line of a million dashes.
  void merge_long(MergeTable const& table) {
    if (symbols.size() > 0x7fffffff)
      throw Error(ErrorKind::invalid_argument, "Tokenizer::encode",
                  "a piece of " + std::to_string(symbols.size()) +
                      " symbols has no place to cut. Break the text into documents");
    auto const size = static_cast<std::int32_t>(symbols.size());
    std::vector<Link> links(symbols.size());
    std::vector<Candidate> first;
    auto const at = [&](std::int32_t place) -> Link& { return links[static_cast<std::size_t>(place)]; };
    for (std::int32_t i = 0; i < size; ++i)
      at(i) = {symbols[static_cast<std::size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1};
    for (std::int32_t i = 0; i + 1 < size; ++i)
      if (auto const* const merge = table.find(at(i).symbol, at(i + 1).symbol))
        first.push_back({merge->rank, i, at(i).symbol, at(i + 1).symbol, merge->id});
    std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
    auto const offer = [&](std::int32_t place) {
      if (place < 0 || at(place).next < 0) return;
      std::int32_t const left = at(place).symbol, right = at(at(place).next).symbol;
      if (auto const* const merge = table.find(left, right)) queue.push({merge->rank, place, left, right, merge->id});
    };
    while (!queue.empty()) {
      Candidate const best = queue.top();
      queue.pop();
      Link& left = at(best.place);
      // Stale when either side was merged in the meantime; a swallowed place has symbol -1.
      if (left.symbol != best.left || left.next < 0 || at(left.next).symbol != best.right) continue;
      left.symbol = best.id;
      Link& right = at(left.next);
      right.symbol = -1;
      left.next = right.next;
      if (left.next >= 0) at(left.next).previous = best.place;
      offer(left.previous);
      offer(best.place);
    }
    symbols.clear();
    for (std::int32_t i = 0; i >= 0; i = at(i).next) symbols.push_back(at(i).symbol);
  }

  std::vector<std::int32_t> ranks_, made_;
};

inline std::uint64_t hash_piece(std::string_view piece) noexcept {
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15u;
  char const* at = piece.data();
  std::size_t left = piece.size();
  std::uint64_t hash = left * factor, word = 0;
  for (; left > 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * factor;
    hash ^= hash >> 29;
  }
  if (left >= 4) {  // two words that overlap: no loop over bytes
    std::uint32_t front = 0, back = 0;
    std::memcpy(&front, at, 4);
    std::memcpy(&back, at + left - 4, 4);
    word = std::uint64_t{front} << 32 | back;
  } else if (left > 0) {
    auto const byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(at[i])}; };
    word = byte(0) << 16 | byte(left / 2) << 8 | byte(left - 1);
  }
  hash = (hash ^ word) * factor;
  hash ^= hash >> 32;
  return hash * factor;
}

/// Map from the bytes of a piece to a value; it keeps copies of the bytes.
template <class Value>
class PieceMap {
 public:
  /// Nothing when the piece is not there.
  Value const* find(std::string_view piece) const noexcept {
    if (slots_.empty()) return nullptr;
    std::uint64_t const hash = hash_piece(piece);
    for (auto slot = static_cast<std::size_t>(hash >> shift_);; slot = (slot + 1) & (slots_.size() - 1)) {
      Slot const& here = slots_[slot];
      if (here.size == vacant) return nullptr;
      if (here.hash == static_cast<std::uint32_t>(hash) && here.size == piece.size() &&
          std::memcmp(bytes_.data() + here.begin, piece.data(), piece.size()) == 0)
        return &here.value;
    }
  }
  /// False when the piece is there already.
  bool insert(std::string_view piece, Value value) {
    if (find(piece) != nullptr) return false;
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place({bytes_.size(), static_cast<std::uint32_t>(piece.size()), 0, value}, hash_piece(piece));
    bytes_.append(piece);
    ++count_;
    return true;
  }
  std::size_t size() const noexcept { return count_; }

 private:
  static constexpr std::uint32_t vacant = 0xffffffffu;
  struct Slot {
    std::size_t begin = 0;
    std::uint32_t size = vacant, hash = 0;
    Value value{};
  };
  void place(Slot entry, std::uint64_t hash) noexcept {
    auto slot = static_cast<std::size_t>(hash >> shift_);
    while (slots_[slot].size != vacant) slot = (slot + 1) & (slots_.size() - 1);
    entry.hash = static_cast<std::uint32_t>(hash);
    slots_[slot] = entry;
  }
  void grow() {
    std::vector<Slot> const before =
        std::exchange(slots_, std::vector<Slot>(std::max<std::size_t>(64, 2 * slots_.size())));
    shift_ = 64;
    for (std::size_t size = slots_.size(); size > 1; size /= 2) --shift_;
    for (Slot const& entry : before)
      if (entry.size != vacant) place(entry, hash_piece(std::string_view(bytes_).substr(entry.begin, entry.size)));
  }

  std::vector<Slot> slots_;
  std::string bytes_;
  std::size_t count_ = 0;
  unsigned shift_ = 64;
};

}  // namespace detail
}  // namespace tutti::data
