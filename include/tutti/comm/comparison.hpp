// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Comparison of a collective call between the ranks: by the backend where it can, else by messages. Then, in
/// log2(ranks) rounds of dissemination, every rank learns whether all make the same call, and otherwise the call of the
/// lowest rank and of the lowest one that differs from it. Small contributions travel with it (Bruck et al., Efficient
/// algorithms for all-to-all communications in multiport message-passing systems, 1997), and make the result: one
/// exchange for what would be two.

#include <tutti/comm/core.hpp>
#include <tutti/comm/verdict.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::comm {

template <Backend B>
class Comparison {
 public:
  /// Every rank makes it at the same point of the sequence of collectives.
  Comparison(Core<B>& core, Collective const& call)
      : core_(core), kind_(call.kind), rank_(core.backend.rank()), size_(core.backend.size()),
        wire_(call.wire) {
    if constexpr (ComparesCalls<B>) {
      if (core.backend.compares()) {
        receive_ = core.backend.start_comparison(call);
        distance_ = own;
        return;
      }
    }
    tag_ = core.next_comparison_tag();
    memory_ = core.comparison_memory.take();
    memory_->known.verdict = {.first = Card(call, rank_), .differs = {}};
  }
  Comparison(Comparison const&) = delete;
  Comparison& operator=(Comparison const&) = delete;
  ~Comparison() { core_.comparison_memory.give_back(std::move(memory_)); }

  /// Before it begins: takes this rank's contribution along, of a call that `is_exchanged`.
  void carry(Collective const& call) noexcept {
    contribution_ = most_contributed(call, size_);
    algorithm_ = Algorithm::exchange;
    if (call.from != nullptr) copy(memory_->known.contributions, call.from, contribution_);
  }
  /// Before it begins: takes along the sizes of a _v kind's blocks, so that all ranks can name them, and hear of two
  /// that do not fit each other where only the two ranks know them. Of more than 14 ranks (all_to_all_v) or 19 only the
  /// one that gets the block finds out, and counts that all pass are named by a hash.
  void carry_sizes(Collective const& call) noexcept {
    bool const pairs = call.kind == Kind::all_to_all_v;
    std::int64_t const first = pairs ? size_ : 1;  // sizes of what this rank gives, or of its only block
    std::int64_t const bytes = 8 * (first + size_) + static_cast<std::int64_t>(sizeof(SourcePlace));
    if (distance_ == own || bytes > ComparisonMessage::most_contributed / size_) return;
    contribution_ = bytes;
    has_sizes_ = true;
    std::byte* const to = memory_->known.contributions;
    PerRank const& others = counts_from(call.kind) ? call.from_counts : call.to_counts;
    SourcePlace const place(call.where);
    copy(to, pairs ? call.from_counts.begin() : &call.count, 8 * first);
    copy(to + 8 * first, others.begin(), 8 * others.size());
    copy(to + 8 * (first + size_), &place, sizeof place);
  }
  /// Starts the first messages. When it throws, one of them may be under way.
  void begin() {
    if (distance_ != own) next_round();
  }

  /// True once all ranks are known to make the same call. Throws when they do not.
  bool advance() {
    if (distance_ == own) return core_.backend.test(receive_);
    ComparisonMessage& known = memory_->known;
    ComparisonMessage const& received = memory_->received;
    while (distance_ < size_) {
      if (!core_.backend.test(receive_) || !core_.backend.test(send_)) return false;
      std::int64_t const bytes = core_.backend.received(receive_).bytes;
      Tally::count(wire_, algorithm_, 0, bytes);
      known.verdict.merge(received.verdict);
      std::byte* const news = known.contributions + distance_ * contribution_;
      if (bytes == message_bytes()) copy(news, received.contributions, blocks() * contribution_);
      else if (known.verdict.differs.rank >= 0)  // what those sent that make another call is not passed on
        std::memset(news, 0, static_cast<std::size_t>(blocks() * contribution_));
      else  // ranks that make the same call send as much as this one does
        throw Error(ErrorKind::communication, name(kind_).data(),
                    concat("a comparison of calls came with ", bytes, " bytes instead of ", message_bytes(),
                           ". Something else than tutti sends on its communicator, or damages messages"));
      distance_ *= 2;
      next_round();
    }
    if (known.verdict.differs.rank < 0) {
      if (has_sizes_ && tells_sizes(kind_)) compare_sizes();
      return true;
    }
    throw Error(ErrorKind::communication, name(kind_).data(),
                concat("ranks disagree: ", describe_card(known.verdict.first), ", ",
                       describe_card(known.verdict.differs), ". Make the same call on every rank"));
  }
  /// Once it is complete, of a call whose contributions it has carried: makes this rank's result of them, reductions in
  /// rank order.
  void deliver(Collective const& call) const {
    if (call.count == 0) return;
    std::int64_t const block = call.block_bytes();
    auto* const to = static_cast<std::byte*>(call.to);
    bool const root_here = rank_ == call.root;
    switch (call.kind) {
      case Kind::barrier: break;
      case Kind::broadcast:
        if (!root_here) copy(to, contribution_of(call.root), block);
        break;
      case Kind::scatter: copy(to, contribution_of(call.root) + rank_ * block, block); break;
      case Kind::gather: case Kind::all_gather:
        for (int r = 0; r < size_ && (call.kind != Kind::gather || root_here); ++r)
          copy(to + r * block, contribution_of(r), block);
        break;
      case Kind::all_to_all:
        for (int r = 0; r < size_; ++r) copy(to + r * block, contribution_of(r) + rank_ * block, block);
        break;
      case Kind::reduce:
        if (root_here) fold(call, size_, 0);
        break;
      case Kind::reduce_scatter: fold(call, size_, rank_ * block); break;
      case Kind::scan: fold(call, rank_ + 1, 0); break;
      case Kind::exscan:
        if (rank_ > 0) fold(call, rank_, 0);
        break;
      default: fold(call, size_, 0);
    }
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

  static void copy(void* to, void const* from, std::int64_t bytes) noexcept {
    if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  /// Ranks whose contributions travel in this round: of those known, what the receiver lacks.
  std::int64_t blocks() const noexcept { return distance_ < size_ - distance_ ? distance_ : size_ - distance_; }
  std::int64_t message_bytes() const noexcept {
    return static_cast<std::int64_t>(sizeof(Verdict)) + blocks() * contribution_;
  }
  std::byte const* contribution_of(int rank) const noexcept {
    return memory_->known.contributions + (rank_ - rank + (rank > rank_ ? size_ : 0)) * contribution_;
  }
  /// Of the first `ranks` ranks, all contributions of each, from a byte on.
  void fold(Collective const& call, int ranks, std::int64_t at) const {
    List<void const*> inputs(static_cast<std::size_t>(ranks * call.contributions));
    void const** input = inputs.begin();
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t row = 0; row < call.contributions; ++row)
        *input++ = contribution_of(r) + at + row * call.block_bytes();
    void* to = call.to;
    call.reduction.fold(call.reduction.state, inputs.data(), static_cast<int>(inputs.size()), &to, 1, call.count);
  }

  std::int64_t size_at(int rank, int index) const noexcept {
    std::int64_t size;
    std::memcpy(&size, contribution_of(rank) + 8 * index, 8);
    return size;
  }
  /// Throws where a rank gives another one a block of a different size than that expects. All ranks find the same two.
  void compare_sizes() const {
    Collective const call = call_of(memory_->known.verdict.first.facts, 0);
    bool const pairs = call.kind == Kind::all_to_all_v, gathers = call.kind == Kind::gather_v;
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to) {
        if (!pairs && call.root != (gathers ? to : from)) continue;
        std::int64_t const given = size_at(from, pairs ? to : gathers ? 0 : 1 + to);
        std::int64_t const expected = size_at(to, pairs ? size_ + from : gathers ? 1 + from : 0);
        if (given == expected) continue;
        throw Error(ErrorKind::communication, name(kind_).data(),
                    concat("ranks disagree: ", with_sizes(call, from), ", ", with_sizes(call, to), ", which expects ",
                           expected * call.element_bytes(), " bytes from rank ", from, " and gets ",
                           given * call.element_bytes(), ". Make the same call with counts that fit on every rank"));
      }
  }
  /// Whether the blocks of `from` have the sizes that are told beside `count`, and not those of `to`.
  static bool counts_from(Kind kind) noexcept { return kind == Kind::scatter_v || kind == Kind::reduce_scatter_v; }
  SourcePlace place_of(int rank) const noexcept {
    SourcePlace place;
    std::memcpy(&place, contribution_of(rank) + contribution_ - sizeof place, sizeof place);
    return place;
  }
  /// With the sizes of its blocks where they have come.
  std::string describe_card(Card const& card) const {
    Collective const call = call_of(card.facts, 0);
    if (!has_sizes_ || call.kind != kind_ || place_of(card.rank).line == 0) return describe(card);
    return with_sizes(call, card.rank);
  }
  /// What a rank has told of its call.
  std::string with_sizes(Collective call, int rank) const {
    bool const pairs = call.kind == Kind::all_to_all_v;
    bool const counts = !rooted(call.kind) || rank == call.root;
    auto const sizes = [&](int first) {
      List<std::int64_t> list;
      for (int r = 0; r < size_; ++r) list.push_back(size_at(rank, first + r));
      return list;
    };
    List<std::int64_t> const from = sizes(pairs ? 0 : 1), to = sizes(pairs ? size_ : 1);
    if (!pairs) call.count = size_at(rank, 0);
    if (counts && (pairs || counts_from(call.kind))) call.from_counts = from;
    if (counts && !counts_from(call.kind)) call.to_counts = to;
    SourcePlace const place = place_of(rank);
    return concat("rank ", rank, " calls ", describe_at(call, place.name(), place.line));
  }

  void next_round() {
    if (distance_ >= size_) return;
    receive_ = core_.backend.start_recv(&memory_->received, sizeof(ComparisonMessage), DType::byte,
                                        (rank_ - distance_ + size_) % size_, tag_, Channel::internal);
    send_ = core_.backend.start_send(&memory_->known, message_bytes(), DType::byte, (rank_ + distance_) % size_, tag_,
                                     Channel::internal);
    Tally::count(wire_, algorithm_, message_bytes(), 0);
  }

  Core<B>& core_;
  Kind kind_;
  int rank_;
  int size_;
  WireTraffic* wire_;
  bool has_sizes_ = false;
  Algorithm algorithm_ = Algorithm::comparison;
  int distance_ = 1;
  int tag_ = 0;
  std::int64_t contribution_ = 0;  // bytes of each rank's
  Owner<ComparisonMemory> memory_;
  typename B::Operation receive_;
  typename B::Operation send_;
};

}  // namespace tutti::comm
