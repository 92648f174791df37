// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which tokens a grammar allows next. Stacks of positions are interned, sets of them are states, and what a state does
/// with a character, and which tokens it allows, is computed once: where a text stays in few states, as inside of a
/// string, a step costs a look-up.

#include <tutti/infer/candidates.hpp>
#include <tutti/infer/grammar.hpp>
#include <tutti/infer/grammar_stacks.hpp>
#include <tutti/infer/grammar_vocabulary.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Follows one text. Neither grammar nor vocabulary is copied: they must outlive it.
class GrammarMatcher {
 public:
  GrammarMatcher(Grammar const& grammar, GrammarVocabulary const& vocabulary)
      : stacks_(grammar), vocabulary_(vocabulary) {
    reset();
  }

  void reset() {
    stacks_.clear();
    forget();
    place_ = {intern(stacks_.begin()), {}};
  }

  /// Whether the text may end here.
  bool complete() const {
    if (place_.partial.left != 0) return false;
    std::vector<std::int32_t> const& heads = states_[at(place_.state)].heads;
    return std::find(heads.begin(), heads.end(), done) != heads.end();
  }
  /// Whether nothing but the end may follow.
  bool finished() const { return complete() && states_[at(place_.state)].heads.size() == 1; }

  /// By token: whether it may follow. Tokens that end a generation may where the text may end.
  std::vector<bool> const& allowed() {
    if (auto const found = masks_.find(place_); found != masks_.end()) return found->second;
    std::vector<bool> mask(vocabulary_.size(), false);
    if (complete())
      for (std::int32_t const id : vocabulary_.ends())
        if (at(id) < mask.size()) mask[at(id)] = true;
    std::vector<Place> places{place_};  // behind so many bytes of the token
    std::size_t dead = SIZE_MAX;        // behind so many bytes there was no way on
    for (std::size_t i = 0; i < vocabulary_.order().size(); ++i) {
      std::size_t const shared = vocabulary_.shared()[i];
      if (dead != SIZE_MAX && shared >= dead) continue;
      dead = SIZE_MAX;
      std::string const& piece = vocabulary_.piece(vocabulary_.order()[i]);
      places.resize(std::min(places.size(), shared + 1));
      while (places.size() <= piece.size()) {
        Place const next = step(places.back(), static_cast<unsigned char>(piece[places.size() - 1]));
        if (next.state == nowhere) break;
        places.push_back(next);
      }
      if (places.size() <= piece.size()) dead = places.size();
      else mask[at(vocabulary_.order()[i])] = true;
    }
    if (place_.partial.left == 0)
      for (std::int32_t const head : states_[at(place_.state)].heads)
        if (GrammarElement const* const element = stacks_.element_of(head); element && element->kind == Kind::token)
          for (std::size_t id = 0; id < mask.size(); ++id)
            if ((static_cast<std::int32_t>(id) == element->number) != element->negated &&
                !vocabulary_.is_end(static_cast<std::int32_t>(id)))
              mask[id] = true;
    if (masks_.size() >= most_masks) masks_.clear();
    return masks_.emplace(place_, std::move(mask)).first->second;
  }

  /// Drops the tokens that may not follow: for Sampler's `restrict`.
  void operator()(Candidates& candidates) {
    std::vector<bool> const& mask = allowed();
    candidates.keep_if([&](std::int32_t id) { return at(id) < mask.size() && mask[at(id)]; });
  }

  /// Goes on behind a token. False, and nothing changes, for one that may not follow.
  bool accept(std::int32_t token) {
    if (token < 0 || at(token) >= vocabulary_.size()) return false;
    if (vocabulary_.is_end(token)) return complete();
    std::vector<std::int32_t> heads;
    Place const text = follow(place_, vocabulary_.piece(token));
    if (place_.partial.left == 0)
      for (std::int32_t const head : std::vector<std::int32_t>(states_[at(place_.state)].heads))
        if (GrammarElement const* const element = stacks_.element_of(head); element && element->kind == Kind::token)
          if ((token == element->number) != element->negated) stacks_.go_on(head, heads);
    if (heads.empty()) {
      if (vocabulary_.piece(token).empty() || text.state == nowhere) return false;
      place_ = text;
    } else {
      // Both as a token and as text, where the text ends with a whole character.
      if (text.state != nowhere && text.partial.left == 0 && !vocabulary_.piece(token).empty())
        heads.insert(heads.end(), states_[at(text.state)].heads.begin(), states_[at(text.state)].heads.end());
      place_ = {intern(std::move(heads)), {}};
    }
    trim();
    return true;
  }
  /// The same of text. False, and nothing changes, where it does not fit.
  bool accept(std::string_view text) {
    Place const next = follow(place_, text);
    if (next.state == nowhere) return false;
    place_ = next;
    trim();
    return true;
  }

 private:
  using Kind = GrammarElement::Kind;
  static constexpr std::int32_t done = detail::GrammarStacks::done, nowhere = -1, unknown = -2;
  static constexpr std::size_t most_masks = 256, most_nodes = 1 << 18, most_states = 1 << 14;

  struct State {
    std::vector<std::int32_t> heads;  // nodes at a terminal, rising; `done` where the text may end
    std::array<std::int32_t, 128> ascii;
    std::unordered_map<char32_t, std::int32_t> others = {};
  };
  /// A character of several bytes of which some have come.
  struct Partial {
    char32_t value = 0;
    std::uint8_t left = 0, bytes = 0;
    friend auto operator<=>(Partial const&, Partial const&) = default;
  };
  struct Place {
    std::int32_t state;
    Partial partial;
    friend auto operator<=>(Place const&, Place const&) = default;
  };

  static std::size_t at(std::int32_t index) noexcept { return static_cast<std::size_t>(index); }
  std::int32_t intern(std::vector<std::int32_t> heads) {
    std::sort(heads.begin(), heads.end());
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
    if (heads.empty()) return nowhere;
    auto const [found, is_new] = state_numbers_.emplace(heads, static_cast<std::int32_t>(states_.size()));
    if (is_new) {
      states_.push_back({.heads = std::move(heads), .ascii = {}});
      states_.back().ascii.fill(unknown);
    }
    return found->second;
  }
  /// The state behind a character.
  std::int32_t after(std::int32_t state, char32_t character) {
    State const& from = states_[at(state)];
    if (character < 128) {
      if (from.ascii[character] != unknown) return from.ascii[character];
    } else if (auto const found = from.others.find(character); found != from.others.end()) return found->second;
    std::vector<std::int32_t> heads;
    for (std::int32_t const head : std::vector<std::int32_t>(from.heads))
      if (GrammarElement const* const element = stacks_.element_of(head);
          element && element->kind == Kind::characters && element->takes(character))
        stacks_.go_on(head, heads);
    std::int32_t const next = intern(std::move(heads));
    if (character < 128) states_[at(state)].ascii[character] = next;
    else states_[at(state)].others.emplace(character, next);
    return next;
  }
  /// Behind a byte; `nowhere` where it does not fit, or is not UTF-8.
  Place step(Place const& from, unsigned char byte) {
    Place const none{nowhere, {}};
    Partial partial = from.partial;
    if (partial.left == 0) {
      if (byte < 0x80) return {after(from.state, byte), {}};
      if (byte < 0xc2 || byte > 0xf4) return none;
      partial.bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      partial.left = static_cast<std::uint8_t>(partial.bytes - 1);
      partial.value = byte & (0x7fu >> partial.bytes);
    } else {
      if ((byte & 0xc0u) != 0x80u) return none;
      partial.value = partial.value << 6 | (byte & 0x3fu);
      --partial.left;
    }
    // The characters that it can become: neither written longer than need be, nor half of a pair of UTF-16.
    constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000}, most = 0x10ffff;
    char32_t first = partial.value << (6 * partial.left), last = first | ((char32_t{1} << (6 * partial.left)) - 1);
    first = std::max(first, least[partial.bytes]), last = std::min(last, most);
    if (first > last || (first >= 0xd800 && last <= 0xdfff)) return none;
    if (partial.left == 0) return {after(from.state, first), {}};
    for (std::int32_t const head : states_[at(from.state)].heads)
      if (GrammarElement const* const element = stacks_.element_of(head);
          element && element->kind == Kind::characters && element->takes_some(first, last))
        return {from.state, partial};
    return none;
  }
  Place follow(Place place, std::string_view text) {
    for (char const c : text) {
      place = step(place, static_cast<unsigned char>(c));
      if (place.state == nowhere) break;
    }
    return place;
  }

  void forget() { states_.clear(), state_numbers_.clear(), masks_.clear(); }
  /// Stacks that deep nesting has left behind are given up; those of this place are kept.
  void trim() {
    if (stacks_.size() < enough_nodes_ && states_.size() < most_states) return;
    std::vector<std::int32_t> heads = states_[at(place_.state)].heads;
    stacks_.keep(heads);
    forget();
    place_.state = intern(std::move(heads));
    enough_nodes_ = std::max(most_nodes, 2 * stacks_.size());  // so that a deep text is not copied at every token
  }

  detail::GrammarStacks stacks_;
  GrammarVocabulary const& vocabulary_;
  std::vector<State> states_;
  std::map<std::vector<std::int32_t>, std::int32_t> state_numbers_;
  std::map<Place, std::vector<bool>> masks_;
  Place place_{nowhere, {}};
  std::size_t enough_nodes_ = most_nodes;
};

}  // namespace tutti::infer
