// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A service's places for sequences: what their caches hold, and which idle one is given up.

#include <tutti/infer/cache_moves.hpp>
#include <tutti/infer/cache_options.hpp>
#include <tutti/infer/generation.hpp>
#include <tutti/infer/stopping.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

struct Slot {
  std::shared_ptr<Generation> generation;  ///< null: idle
  std::string session;
  std::vector<std::int32_t> tokens;   ///< in the cache
  std::vector<std::int32_t> pending;  ///< what goes in, from `todo` on: the prompt, or what a shift has left
  std::size_t todo = 0;
  std::optional<std::int32_t> next;  ///< drawn and not yet appended
  std::int64_t used = 0, came = 0;   ///< turns
  std::chrono::steady_clock::time_point idle_since{};
  std::optional<HiddenMean> mean;  ///< of the prompt, where an embedding is asked for
};

/// What of the caches serves a prompt that a slot gets.
struct CacheReuse {
  std::size_t same = 0;          ///< tokens at the beginning that the slot's cache holds
  Slot const* donor = nullptr;   ///< whose cache holds more of it; null: none
  std::size_t copied = 0;        ///< tokens at its beginning
  std::vector<CacheMove> moves;  ///< then, of the slot's own
  std::size_t tokens = 0;        ///< at the beginning of the prompt that are in the cache after all this
};

/// Not thread-safe.
class Slots {
 public:
  Slots(std::size_t count, CacheOptions options) : slots_(count), options_(options) {}

  std::vector<Slot>& all() noexcept { return slots_; }
  std::vector<Slot> const& all() const noexcept { return slots_; }
  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(slots_.begin(), slots_.end(), [](Slot const& slot) { return slot.generation != nullptr; }));
  }
  /// Of the running answers; the smallest number where there is none.
  int highest_priority() const {
    int priority = std::numeric_limits<int>::min();
    for (Slot const& slot : slots_)
      if (slot.generation) priority = std::max(priority, slot.generation->request_.priority);
    return priority;
  }
  /// Tokens that the running answers have so far.
  std::int64_t drawn() const {
    std::int64_t sum = 0;
    for (Slot const& slot : slots_)
      if (slot.generation) sum += static_cast<std::int64_t>(slot.generation->drawing_->result().tokens.size());
    return sum;
  }
  /// Adds each row's hidden state to the mean that its slot keeps, where it keeps one.
  void add_hidden(std::span<NewToken const> rows, Decoder const& decoder) {
    auto const channels = static_cast<std::size_t>(decoder.model().channels());
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (auto& mean = slots_[static_cast<std::size_t>(rows[i].slot)].mean)
        mean->add(decoder.hidden().subspan(i * channels, channels));
  }

  /// Tokens at the beginning of the prompt that the slot's cache serves; the last token of a prompt always goes in
  /// again, for its logits.
  static std::size_t reusable(Slot const& slot, Request const& request) {
    if (slot.session != request.session || !request.reuse || request.embed) return 0;
    auto const same = static_cast<std::size_t>(
        std::mismatch(slot.tokens.begin(), slot.tokens.end(), request.prompt.begin(), request.prompt.end()).first -
        slot.tokens.begin());
    return std::min(same, request.prompt.size() - 1);
  }

  /// The idle slot that serves most of the prompt, else the one that goes first; null: all are busy.
  Slot* choose(Request const& request) {
    bool const room = std::any_of(slots_.begin(), slots_.end(),
                                  [](Slot const& slot) { return !slot.generation && slot.tokens.empty(); });
    double const share = room ? options_.similarity : std::min(options_.similarity, 0.5);
    Slot* best = nullptr;
    std::size_t most = 0;
    for (Slot& slot : slots_) {
      std::size_t const tokens = slot.generation ? 0 : within(slot, request).tokens;
      bool const similar = tokens + 1 == request.prompt.size() ||
                           static_cast<double>(tokens) >= share * static_cast<double>(slot.tokens.size());
      if (tokens > most && similar) best = &slot, most = tokens;
    }
    return best != nullptr ? best : first(options_.order, true);
  }

  /// What serves a request in this slot.
  CacheReuse reuse(Slot const& slot, Request const& request) const {
    CacheReuse reuse = within(slot, request);
    for (Slot const& other : slots_)
      if (std::size_t const same = &other == &slot ? 0 : reusable(other, request);
          static_cast<std::int64_t>(same) >= static_cast<std::int64_t>(reuse.tokens) + options_.copy)
        reuse = {0, &other, same, {}, same};
    return reuse;
  }

  /// `tokens` of the prompt are in the slot's cache, as `reuse` says, when they have been copied and moved.
  void begin(Slot& slot, std::shared_ptr<Generation> generation, std::size_t tokens) {
    Request const& request = generation->request();
    if (tokens == 0) slot.came = ++turns_;
    slot.session = request.session;
    slot.tokens.assign(request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
    slot.pending = request.prompt;
    slot.todo = tokens;
    slot.next.reset();
    slot.generation = std::move(generation);
  }

  /// The slot becomes idle, and caches that are too much are cut.
  std::shared_ptr<Generation> release(Slot& slot) {
    slot.used = ++turns_;
    slot.idle_since = std::chrono::steady_clock::now();
    slot.next.reset();
    std::shared_ptr<Generation> generation = std::move(slot.generation);
    slot.generation.reset();
    trim();
    return generation;
  }

  /// Says what the cache of an idle slot holds, for who has put it there.
  void put(Slot& slot, std::string session, std::vector<std::int32_t> tokens) {
    slot.session = std::move(session), slot.tokens = std::move(tokens);
    slot.came = slot.used = ++turns_;
    slot.idle_since = std::chrono::steady_clock::now();
    trim();
  }

  /// Forgets what was kept for a session, or too long.
  void forget(std::string const& session) {
    for (Slot& slot : slots_)
      if (!slot.generation && slot.session == session) slot.tokens.clear();
  }
  void forget_old() {
    if (options_.retention.count() <= 0) return;
    auto const now = std::chrono::steady_clock::now();
    for (Slot& slot : slots_)
      if (!slot.generation && now - slot.idle_since > options_.retention) slot.tokens.clear();
  }

  /// Tokens that caches hold.
  std::int64_t cached() const {
    std::int64_t sum = 0;
    for (Slot const& slot : slots_) sum += static_cast<std::int64_t>(slot.tokens.size());
    return sum;
  }

  /// A full cache loses tokens behind the first `keep`; those that stay go in again, with `next` behind them.
  static void shift(Slot& slot, ContextShift const& how, std::int32_t next) {
    auto const size = static_cast<std::int64_t>(slot.tokens.size());
    std::int64_t const keep = std::clamp<std::int64_t>(how.keep, 0, size - 1), left = size - keep;
    std::int64_t const discard = std::clamp<std::int64_t>(how.discard > 0 ? how.discard : left / 2, 1, left);
    slot.pending = slot.tokens;
    slot.pending.erase(slot.pending.begin() + keep, slot.pending.begin() + keep + discard);
    slot.pending.push_back(next);
    slot.tokens.resize(static_cast<std::size_t>(keep));
    slot.todo = static_cast<std::size_t>(keep);
    slot.next.reset();
  }

 private:
  /// Of the slot's own cache: the beginning, and behind it runs that can be moved to where the prompt has them.
  CacheReuse within(Slot const& slot, Request const& request) const {
    CacheReuse reuse;
    reuse.tokens = reuse.same = reusable(slot, request);
    if (options_.chunk <= 0 || slot.session != request.session || !request.reuse || request.embed) return reuse;
    std::vector<std::int32_t> const &held = slot.tokens, &wanted = request.prompt;
    for (std::size_t at = reuse.same; at < held.size();) {
      std::size_t run = 0;
      while (at + run < held.size() && reuse.tokens + run + 1 < wanted.size() &&
             held[at + run] == wanted[reuse.tokens + run])
        ++run;
      if (run < static_cast<std::size_t>(options_.chunk)) {
        ++at;
        continue;
      }
      reuse.moves.push_back(
          {static_cast<std::int64_t>(at), static_cast<std::int64_t>(reuse.tokens), static_cast<std::int64_t>(run)});
      reuse.tokens += run;
      at += run;
    }
    return reuse;
  }
  /// The idle slot that goes first, null where there is none; `empty_too`: one that holds nothing goes before all.
  Slot* first(CacheOrder order, bool empty_too) {
    auto const rank = [order](Slot const& slot) {
      return order == CacheOrder::lru    ? slot.used
             : order == CacheOrder::fifo ? slot.came
                                         : static_cast<std::int64_t>(slot.tokens.size());
    };
    Slot* found = nullptr;
    for (Slot& slot : slots_) {
      if (slot.generation) continue;
      if (slot.tokens.empty()) {
        if (empty_too) return &slot;
        continue;
      }
      if (found == nullptr || rank(slot) < rank(*found)) found = &slot;
    }
    return found;
  }
  void trim() {
    if (options_.tokens <= 0) return;
    std::int64_t held = 0;
    for (Slot const& slot : slots_)
      if (!slot.generation) held += static_cast<std::int64_t>(slot.tokens.size());
    while (held > options_.tokens) {
      Slot* const victim = first(options_.deletion, false);
      auto const size = static_cast<std::int64_t>(victim->tokens.size());
      std::int64_t const gone = options_.partial ? std::min(size, held - options_.tokens) : size;
      victim->tokens.resize(static_cast<std::size_t>(size - gone));
      held -= gone;
    }
  }

  std::vector<Slot> slots_;
  CacheOptions options_;
  std::int64_t turns_ = 0;
};

}  // namespace tutti::infer
