// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which tokens a grammar allows next. Stacks of positions are interned, sets of them are states, and what a state does
/// with a character, and which tokens it allows, is computed once: where a text stays in few states, as inside of a
/// string, a step costs a look-up.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/candidates.hpp>
#include <tutti/infer/grammar.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::infer {

/// The texts of a vocabulary's tokens in the order of their bytes, so that tokens with a common beginning share the
/// walk through it. One for all matchers of a tokenizer.
class GrammarVocabulary {
 public:
  /// `pieces[id]`: the bytes of a token, empty for one that is no text. `ends`: tokens that end a generation.
  GrammarVocabulary(std::span<std::string const> pieces, std::span<std::int32_t const> ends)
      : pieces_(pieces.begin(), pieces.end()), ends_(ends.begin(), ends.end()) {
    for (std::size_t id = 0; id < pieces_.size(); ++id)
      if (!pieces_[id].empty() && !is_end(static_cast<std::int32_t>(id)))
        order_.push_back(static_cast<std::int32_t>(id));
    std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
      return std::pair(std::string_view(piece(a)), a) < std::pair(std::string_view(piece(b)), b);
    });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      std::string_view const own = piece(order_[i]), before = i == 0 ? std::string_view() : piece(order_[i - 1]);
      std::size_t shared = 0;
      while (shared < own.size() && shared < before.size() && own[shared] == before[shared]) ++shared;
      shared_.push_back(shared);
    }
  }

  std::size_t size() const noexcept { return pieces_.size(); }
  std::string const& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }
  bool is_end(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  std::span<std::int32_t const> ends() const noexcept { return ends_; }
  /// Tokens by their bytes, and how many bytes each shares with the one before.
  std::span<std::int32_t const> order() const noexcept { return order_; }
  std::span<std::size_t const> shared() const noexcept { return shared_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::int32_t> ends_, order_;
  std::vector<std::size_t> shared_;
};

/// Follows one text. Neither grammar nor vocabulary is copied: they must outlive it.
class GrammarMatcher {
 public:
  GrammarMatcher(Grammar const& grammar, GrammarVocabulary const& vocabulary)
      : grammar_(grammar), vocabulary_(vocabulary) {
    reset();
  }

  void reset() {
    forget();
    std::vector<std::int32_t> heads;
    for (std::int32_t const position : grammar_.alternatives(grammar_.root())) expand(node(position, no_node), heads);
    place_ = {intern(std::move(heads)), {}};
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
        if (GrammarElement const* const element = element_of(head); element && element->kind == Kind::token)
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
        if (GrammarElement const* const element = element_of(head); element && element->kind == Kind::token)
          if ((token == element->number) != element->negated) go_on(head, heads);
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
  static constexpr std::int32_t no_node = -1, done = -2, nowhere = -1, unknown = -2;
  static constexpr std::size_t most_masks = 256, most_nodes = 1 << 18, most_states = 1 << 14, most_heads = 1 << 12;

  /// Where to go on: a position, and below it those to return to.
  struct Node {
    std::int32_t position, below;
  };
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
  static std::uint64_t key(std::int32_t a, std::int32_t b) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(a)} << 32 | static_cast<std::uint32_t>(b);
  }
  std::int32_t node(std::int32_t position, std::int32_t below) {
    auto const [found, is_new] = node_numbers_.emplace(key(position, below), static_cast<std::int32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({position, below});
    return found->second;
  }
  GrammarElement const* element_of(std::int32_t head) const {
    return head == done ? nullptr : &grammar_.at(nodes_[at(head)].position);
  }
  /// The heads of what may come at a node: rules are entered until there are terminals.
  void expand(std::int32_t start, std::vector<std::int32_t>& heads) {
    std::vector<std::int32_t> open{start}, seen{start};
    while (!open.empty()) {
      std::int32_t const here = open.back();
      open.pop_back();
      auto const add = [&](std::int32_t next) {
        if (std::find(seen.begin(), seen.end(), next) != seen.end()) return;
        seen.push_back(next);
        open.push_back(next);
      };
      auto const [position, below] = nodes_[at(here)];
      GrammarElement const& element = grammar_.at(position);
      switch (element.kind) {
        case Kind::characters:
        case Kind::token: heads.push_back(here); break;
        case Kind::end:
          if (below == no_node) heads.push_back(done);
          else add(below);
          break;
        case Kind::rule: {
          // A rule at the end needs no way back: repetitions stay at one depth.
          std::int32_t const back = grammar_.at(position + 1).kind == Kind::end ? below : node(position + 1, below);
          for (std::int32_t const alternative : grammar_.alternatives(element.number)) add(node(alternative, back));
          break;
        }
      }
      if (heads.size() > most_heads || seen.size() > 16 * most_heads)
        throw Error(ErrorKind::invalid_argument, "GrammarMatcher",
                    "the grammar has too many readings of this text at once. Make it less ambiguous");
    }
  }
  void go_on(std::int32_t head, std::vector<std::int32_t>& heads) {
    auto const [position, below] = nodes_[at(head)];
    expand(node(position + 1, below), heads);
  }
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
      if (GrammarElement const* const element = element_of(head);
          element && element->kind == Kind::characters && element->takes(character))
        go_on(head, heads);
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
      if (GrammarElement const* const element = element_of(head);
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

  void forget() { nodes_.clear(), node_numbers_.clear(), states_.clear(), state_numbers_.clear(), masks_.clear(); }
  /// Stacks that deep nesting has left behind are given up; those of this place are kept.
  void trim() {
    if (nodes_.size() < enough_nodes_ && states_.size() < most_states) return;
    std::vector<Node> const nodes = std::move(nodes_);
    std::vector<std::int32_t> const heads = states_[at(place_.state)].heads;
    forget();
    std::vector<std::int32_t> kept;
    for (std::int32_t const head : heads) {
      if (head == done) {
        kept.push_back(done);
        continue;
      }
      std::vector<std::int32_t> stack;
      for (std::int32_t n = head; n != no_node; n = nodes[at(n)].below) stack.push_back(n);
      std::int32_t below = no_node;
      while (!stack.empty()) {
        below = node(nodes[at(stack.back())].position, below);
        stack.pop_back();
      }
      kept.push_back(below);
    }
    place_.state = intern(std::move(kept));
    enough_nodes_ = std::max(most_nodes, 2 * nodes_.size());  // so that a deep text is not copied at every token
  }

  Grammar const& grammar_;
  GrammarVocabulary const& vocabulary_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::int32_t> node_numbers_;
  std::vector<State> states_;
  std::map<std::vector<std::int32_t>, std::int32_t> state_numbers_;
  std::map<Place, std::vector<bool>> masks_;
  Place place_{nowhere, {}};
  std::size_t enough_nodes_ = most_nodes;
};

}  // namespace tutti::infer
