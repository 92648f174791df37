// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where in a grammar a text can be: stacks of positions, each of which is kept once.

#include <tutti/core/error.hpp>
#include <tutti/infer/grammar.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::infer::detail {

/// A stack is known by the number of its top. The grammar is not copied: it must outlive it.
class GrammarStacks {
 public:
  static constexpr std::int32_t done = -2;  ///< a head where the text may end

  explicit GrammarStacks(Grammar const& grammar) : grammar_(grammar) {}

  std::size_t size() const noexcept { return nodes_.size(); }
  void clear() { nodes_.clear(), numbers_.clear(); }
  /// What may come at a head; null where the text may end.
  GrammarElement const* element_of(std::int32_t head) const {
    return head == done ? nullptr : &grammar_.at(nodes_[at(head)].position);
  }
  /// The heads of what may come first.
  std::vector<std::int32_t> begin() {
    std::vector<std::int32_t> heads;
    for (std::int32_t const position : grammar_.alternatives(grammar_.root())) expand(node(position, no_node), heads);
    return heads;
  }
  /// Adds the heads of what may come behind one.
  void go_on(std::int32_t head, std::vector<std::int32_t>& heads) {
    auto const [position, below] = nodes_[at(head)];
    expand(node(position + 1, below), heads);
  }
  /// Drops all stacks but those of `heads`, which get their new numbers.
  void keep(std::vector<std::int32_t>& heads) {
    std::vector<Node> const nodes = std::move(nodes_);
    clear();
    for (std::int32_t& head : heads) {
      if (head == done) continue;
      std::vector<std::int32_t> stack;
      for (std::int32_t n = head; n != no_node; n = nodes[at(n)].below) stack.push_back(n);
      head = no_node;
      while (!stack.empty()) {
        head = node(nodes[at(stack.back())].position, head);
        stack.pop_back();
      }
    }
  }

 private:
  using Kind = GrammarElement::Kind;
  static constexpr std::int32_t no_node = -1;
  static constexpr std::size_t most_heads = 1 << 12;

  /// Where to go on: a position, and below it those to return to.
  struct Node {
    std::int32_t position, below;
  };

  static std::size_t at(std::int32_t index) noexcept { return static_cast<std::size_t>(index); }
  static std::uint64_t key(std::int32_t a, std::int32_t b) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(a)} << 32 | static_cast<std::uint32_t>(b);
  }
  std::int32_t node(std::int32_t position, std::int32_t below) {
    auto const [found, is_new] = numbers_.emplace(key(position, below), static_cast<std::int32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({position, below});
    return found->second;
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

  Grammar const& grammar_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::int32_t> numbers_;
};

}  // namespace tutti::infer::detail
