// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks that compare a collective call by messages tell each other.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/collective_facts.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::comm {

/// A place in a program, as it travels.
struct SourcePlace {
  std::uint32_t line = 0;
  char file[40] = {};

  SourcePlace() = default;
  explicit SourcePlace(std::source_location const& where) noexcept : line(where.line()) {
    std::string_view const base = base_name(where.file_name());
    std::memcpy(file, base.data(), base.size() < sizeof file - 1 ? base.size() : sizeof file - 1);
  }
  /// Also of one that came damaged.
  std::string_view name() const noexcept { return {file, ::strnlen(file, sizeof file)}; }
};

/// One rank's call, as it travels.
struct Card {
  std::uint64_t facts = 0;
  std::int64_t count = 0;
  std::int32_t rank = -1;  ///< -1: no card
  SourcePlace where;

  Card() = default;
  Card(Collective const& call, int of) noexcept
      : facts(facts_of(call)), count(compared_count(call)), rank(of), where(call.where) {}
  bool same_call(Card const& other) const noexcept { return facts == other.facts && count == other.count; }
};

/// "rank 0 calls all_reduce(sum, float32, count 8) at app.cpp:12"
template <class = void>
std::string describe(Card const& card) {
  Collective const call = call_of(card.facts, card.count);
  std::string text = concat("rank ", card.rank, " calls ", describe_at(call, card.where.name(), card.where.line));
  if (has_counts(call.kind) && card.count != 0) text += concat(" with counts #", card.count % 10000);  // of their hash
  return text;
}

/// What a rank knows of a call after some rounds.
struct Verdict {
  Card first;    ///< of the lowest rank
  Card differs;  ///< of the lowest rank with another call

  /// Takes in what another rank knows; in which order, and how often, makes no difference.
  template <class = void>
  void merge(Verdict const& other) noexcept {
    if (differs.rank < 0 && other.differs.rank < 0 && first.same_call(other.first)) {
      if (other.first.rank < first.rank) first = other.first;
      return;
    }
    Card const cards[] = {first, differs, other.first, other.differs};
    if (other.first.rank < first.rank) first = other.first;
    differs = Card();
    for (Card const& card : cards)
      if (card.rank >= 0 && !card.same_call(first) && (differs.rank < 0 || card.rank < differs.rank)) differs = card;
  }
};

/// A message of a comparison.
struct ComparisonMessage {
  /// Of all ranks together: with the verdict 4 KiB, what a transport sends at once.
  static constexpr std::int64_t most_contributed = 4096 - sizeof(Verdict);
  Verdict verdict;
  /// Of the sender and the ranks before it, each of the same size, where the call has small ones.
  std::byte contributions[most_contributed] = {};
};
/// What one comparison needs while messages are under way.
struct ComparisonMemory {
  ComparisonMessage known;
  ComparisonMessage received;  // of ranks that make another call, perhaps with larger contributions
};
/// What is not in use: comparisons are made for every call.
class ComparisonPool {
 public:
  template <class = void>
  Owner<ComparisonMemory> take() {
    free_.reserve(most_kept);  // giving back must not throw
    if (free_.empty()) return make_owner<ComparisonMemory>();
    Owner<ComparisonMemory> memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }
  template <class = void>
  void give_back(Owner<ComparisonMemory> memory) noexcept {
    if (memory && free_.size() < most_kept) free_.push_back(std::move(memory));
  }

 private:
  static constexpr std::size_t most_kept = 8;
  List<Owner<ComparisonMemory>> free_;
};

}  // namespace tutti::comm
