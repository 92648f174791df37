// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Comparison of a collective call between the ranks: by the backend where it can, else by messages. Then, in
/// log2(ranks) rounds of dissemination, every rank learns whether all make the same call, and otherwise the call of the
/// lowest rank and of the lowest one that differs from it.

#include <tutti/core/concat.hpp>
#include <tutti/comm/core.hpp>

#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::comm {

/// Whether `b.start` compares calls itself.
template <Backend B>
bool compares(B const& b) noexcept {
  if constexpr (requires { b.compares(); }) return b.compares();
  else return false;
}
/// How calls are compared otherwise.
template <Backend B>
CheckLevel check_level(B const& b) noexcept {
  if constexpr (requires { b.check_level(); }) return b.check_level();
  else return CheckLevel::cheap;
}

/// One rank's call, as it travels.
struct Card {
  std::uint64_t facts = 0;
  std::int64_t count = 0;
  std::int32_t rank = -1;  ///< -1: no card
  std::uint32_t line = 0;
  char file[40] = {};

  Card() = default;
  Card(Collective const& call, int of) noexcept
      : facts(facts_of(call)), count(compared_count(call)), rank(of), line(call.where.line()) {
    std::string_view const name = base_name(call.where.file_name());
    std::memcpy(file, name.data(), name.size() < sizeof file - 1 ? name.size() : sizeof file - 1);
  }
  bool same_call(Card const& other) const noexcept { return facts == other.facts && count == other.count; }
};

/// "rank 0 calls all_reduce(sum, float32, count 8) at app.cpp:12"
template <class = void>
std::string describe(Card const& card) {
  Collective const call = call_of(card.facts, card.count);
  std::string text = concat("rank ", card.rank, " calls ", describe_at(call, card.file, card.line));
  if (has_counts(call.kind) && card.count != 0) text += concat(" with counts #", card.count % 10000);  // of their hash
  return text;
}

/// What a rank knows of a call after some rounds.
struct Verdict {
  Card first;    ///< of the lowest rank
  Card differs;  ///< of the lowest rank with another call

  /// Takes in what another rank knows; in which order, and how often, makes no difference.
  void merge(Verdict const& other) noexcept {
    Card const cards[] = {first, differs, other.first, other.differs};
    if (other.first.rank < first.rank) first = other.first;
    differs = Card();
    for (Card const& card : cards)
      if (card.rank >= 0 && !card.same_call(first) && (differs.rank < 0 || card.rank < differs.rank)) differs = card;
  }
};

template <Backend B>
class Comparison {
 public:
  /// Every rank makes it at the same point of the sequence of collectives.
  Comparison(Core<B>& core, Collective const& call)
      : core_(core), operation_(name(call.kind).data()), rank_(core.backend.rank()), size_(core.backend.size()),
        wire_(call.wire) {
    if constexpr (requires { core.backend.start_comparison(call); }) {
      if (compares(core.backend)) {
        receive_ = core.backend.start_comparison(call);
        distance_ = own;
        return;
      }
    }
    tag_ = core.next_tag();
    known_.first = Card(call, rank_);
  }
  /// Starts the first messages. When it throws, one of them may be under way.
  void begin() {
    if (distance_ != own) next_round();
  }

  /// True once all ranks are known to make the same call. Throws when they do not.
  bool advance() {
    if (distance_ == own) return core_.backend.test(receive_);
    while (distance_ < size_) {
      if (!core_.backend.test(receive_) || !core_.backend.test(send_)) return false;
      Tally::count(wire_, Algorithm::comparison, 0, sizeof received_);
      known_.merge(received_);
      distance_ *= 2;
      next_round();
    }
    if (known_.differs.rank < 0) return true;
    throw Error(ErrorKind::communication, operation_,
                concat("ranks disagree: ", describe(known_.first), ", ", describe(known_.differs),
                       ". Make the same call on every rank"));
  }
  bool abandon() noexcept {
    bool const sent = core_.backend.abandon(send_);
    return core_.backend.abandon(receive_) && sent;
  }
  std::string awaiting() const {
    std::string text = core_.backend.awaiting(receive_);
    if (text.empty()) text = core_.backend.awaiting(send_);
    return text.empty() ? concat("some rank of ", size_, " has not called it") : text;
  }

 private:
  static constexpr int own = -1;

  void next_round() {
    if (distance_ >= size_) return;
    sent_ = known_;
    receive_ = core_.backend.start_recv(&received_, sizeof received_, (rank_ - distance_ + size_) % size_, tag_,
                                        Channel::internal);
    send_ = core_.backend.start_send(&sent_, sizeof sent_, DType::byte, (rank_ + distance_) % size_, tag_,
                                     Channel::internal);
    Tally::count(wire_, Algorithm::comparison, sizeof sent_, 0);
  }

  Core<B>& core_;
  char const* operation_;
  int rank_;
  int size_;
  WireTraffic* wire_;
  int distance_ = 1;
  int tag_ = 0;
  Verdict known_, sent_, received_;
  typename B::Operation receive_;
  typename B::Operation send_;
};

}  // namespace tutti::comm
