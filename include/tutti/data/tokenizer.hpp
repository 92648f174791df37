// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Byte-level byte-pair encoding: text to token ids and back. Every byte string can be encoded and comes back
/// unchanged.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/pre_tokenizer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

/// The text that marks the boundary between documents in GPT-2's vocabulary.
inline constexpr std::string_view end_of_text_mark = "<|endoftext|>";

/// A token that no merge makes; it stands for a mark such as `<|endoftext|>`.
struct SpecialToken {
  std::string content;
  std::int32_t id = 0;

  friend bool operator==(SpecialToken const&, SpecialToken const&) = default;
};

/// Two neighbours that become one token; the rank of a merge is its place in the list.
struct Merge {
  std::int32_t left = 0, right = 0;

  friend bool operator==(Merge const&, Merge const&) = default;
};

/// What `encode` does with marks in the text: data should not be able to end a document, so plain text is the default.
enum class Marks : unsigned char { as_text, as_tokens };

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

  explicit MergeTable(std::size_t count) {
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

}  // namespace detail

/// Immutable once made: threads may share it.
class Tokenizer {
 public:
  /// `tokens[id]` are the bytes of token `id`, empty where an id has none. Merges are in the order of their ranks.
  /// `whole_pieces`: a piece that is itself a token is taken without merging (what Hugging Face calls ignore_merges).
  /// Errors: format, when one of the 256 single bytes has no token, a merge has no result, or an id does not exist.
  Tokenizer(std::vector<std::string> tokens, std::vector<Merge> merges, std::vector<SpecialToken> specials,
            std::string_view pattern = gpt2_pattern, bool whole_pieces = false)
      : tokens_(std::move(tokens)),
        merges_(std::move(merges)),
        specials_(std::move(specials)),
        splitter_(pattern),
        table_(merges_.size()),
        whole_pieces_(whole_pieces) {
    auto const count = checked_cast<std::int32_t>(tokens_.size());
    special_.resize(tokens_.size());
    for (SpecialToken const& special : specials_) {
      if (special.content.empty() || special.id < 0 || special.id >= count)
        refuse("special token '" + special.content + "' with id " + std::to_string(special.id) +
               " is empty or outside the vocabulary");
      special_[static_cast<std::size_t>(special.id)] = true;
      tokens_[static_cast<std::size_t>(special.id)] = special.content;
      special_starts_[static_cast<unsigned char>(special.content[0])] = true;
    }
    by_length_ = specials_;
    std::sort(by_length_.begin(), by_length_.end(), [](auto const& a, auto const& b) {
      return a.content.size() != b.content.size() ? a.content.size() > b.content.size() : a.id < b.id;
    });
    ids_.reserve(tokens_.size());
    for (std::int32_t id = 0; id < count; ++id)
      if (!token(id).empty() && !is_special(id)) ids_.emplace(token(id), id);
    for (unsigned byte = 0; byte < 256; ++byte) {
      char const character = static_cast<char>(byte);
      auto const found = ids_.find(std::string_view(&character, 1));
      if (found == ids_.end()) refuse("byte " + std::to_string(byte) + " has no token");
      byte_ids_[byte] = found->second;
    }
    for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
      auto const [left, right] = merges_[rank];
      std::string const who = "merge " + std::to_string(rank);
      if (left < 0 || left >= count || right < 0 || right >= count) refuse(who + " names an id outside the vocabulary");
      auto const found = ids_.find(token(left) + token(right));
      if (token(left).empty() || token(right).empty() || found == ids_.end())
        refuse(who + " makes a token that the vocabulary lacks");
      if (!table_.insert(left, right, static_cast<std::int32_t>(rank), found->second)) refuse(who + " stands twice");
    }
  }
  // The index refers to the strings of this object: moving keeps them in place, copying would not.
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  /// Number of ids: one more than the highest.
  std::int32_t vocabulary() const noexcept { return static_cast<std::int32_t>(tokens_.size()); }
  std::vector<std::string> const& tokens() const noexcept { return tokens_; }
  std::vector<Merge> const& merges() const noexcept { return merges_; }
  std::vector<SpecialToken> const& specials() const noexcept { return specials_; }
  std::string const& pattern() const noexcept { return splitter_.pattern(); }
  bool whole_pieces() const noexcept { return whole_pieces_; }

  bool is_special(std::int32_t id) const noexcept {
    return id >= 0 && id < vocabulary() && special_[static_cast<std::size_t>(id)];
  }
  /// Id of a special token by its content.
  std::optional<std::int32_t> special(std::string_view content) const {
    for (SpecialToken const& token : specials_)
      if (token.content == content) return token.id;
    return std::nullopt;
  }
  /// Id of `<|endoftext|>`. Errors: format, when the vocabulary has none.
  std::int32_t end_of_text() const {
    if (auto const id = special(end_of_text_mark)) return *id;
    throw Error(ErrorKind::format, "Tokenizer::end_of_text",
                "the vocabulary has no <|endoftext|>. Use a tokenizer with that special token");
  }
  /// Bytes of a token (of a special token, its mark). Errors: out_of_range.
  std::string const& token_bytes(std::int32_t id) const {
    if (id < 0 || id >= vocabulary())
      throw Error(ErrorKind::out_of_range, "Tokenizer::token_bytes",
                  "token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary()));
    return token(id);
  }

  std::vector<std::int32_t> encode(std::string_view text, Marks marks = Marks::as_text) const {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 1);
    encode_to(ids, text, marks);
    return ids;
  }
  /// Appends to `ids`. Bytes that are not UTF-8 are kept (see PreTokenizer::split).
  /// Cost: one table look-up for a piece seen before in this call; otherwise n log n in the bytes of the piece.
  void encode_to(std::vector<std::int32_t>& ids, std::string_view text, Marks marks = Marks::as_text) const {
    Encoder encoder{*this, ids, {}, {}, {}};
    auto const plain = [&](std::string_view part) {
      splitter_.split(part, [&](std::string_view piece) { encoder.piece(piece); });
    };
    if (marks == Marks::as_text || specials_.empty()) return plain(text);
    std::size_t begin = 0, at = 0;
    while (at < text.size()) {
      SpecialToken const* const mark =
          special_starts_[static_cast<unsigned char>(text[at])] ? mark_at(text.substr(at)) : nullptr;
      if (mark == nullptr) {
        ++at;
        continue;
      }
      plain(text.substr(begin, at - begin));
      ids.push_back(mark->id);
      begin = at += mark->content.size();
    }
    plain(text.substr(begin));
  }

  /// Appends the documents one after another, each behind the token `before`. Cheaper than one by one: pieces seen in
  /// one document are known in the next.
  void encode_documents(std::vector<std::int32_t>& ids, std::span<std::string_view const> documents,
                        std::int32_t before) const {
    Encoder encoder{*this, ids, {}, {}, {}};
    for (std::string_view const document : documents) {
      ids.push_back(before);
      splitter_.split(document, [&](std::string_view piece) { encoder.piece(piece); });
    }
  }

  /// The bytes that the ids stand for; special tokens stand for none. Errors: out_of_range.
  std::string decode(std::span<std::int32_t const> ids) const {
    std::string text;
    for (std::int32_t const id : ids) {
      std::string const& bytes = token_bytes(id);
      if (!is_special(id)) text += bytes;
    }
    return text;
  }

 private:
  [[noreturn]] static void refuse(std::string const& why) {
    throw Error(ErrorKind::format, "Tokenizer", why + ". Use a complete byte-level tokenizer");
  }
  std::string const& token(std::int32_t id) const noexcept { return tokens_[static_cast<std::size_t>(id)]; }
  SpecialToken const* mark_at(std::string_view text) const noexcept {
    for (SpecialToken const& special : by_length_)
      if (text.starts_with(special.content)) return &special;
    return nullptr;
  }

  /// One call of `encode`: the words it has seen, and room to work.
  struct Encoder {
    Tokenizer const& of;
    std::vector<std::int32_t>& ids;
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;  // place in `ids`
    std::vector<std::int32_t> symbols;
    std::vector<std::int32_t> ranks;

    void piece(std::string_view text) {
      if (text.size() == 1) {
        ids.push_back(of.byte_ids_[static_cast<unsigned char>(text[0])]);
        return;
      }
      if (auto const known = seen.find(text); known != seen.end()) {
        auto const [first, count] = known->second;
        ids.resize(ids.size() + count);
        std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(first), count,
                    ids.end() - static_cast<std::ptrdiff_t>(count));
        return;
      }
      std::size_t const first = ids.size();
      auto const whole = of.whole_pieces_ ? of.ids_.find(text) : of.ids_.end();
      if (whole != of.ids_.end()) ids.push_back(whole->second);
      else if (text.size() <= 64) merge_short(text);
      else merge_long(text);
      if (text.size() <= 64 && seen.size() < (std::size_t{1} << 20))
        seen.emplace(text, std::pair(first, ids.size() - first));
    }

    /// Lowest rank first, the leftmost among equals, by looking at all: pieces are short.
    void merge_short(std::string_view text) {
      static constexpr std::int32_t none = 0x7fffffff;
      symbols.clear();
      for (char const byte : text) symbols.push_back(of.byte_ids_[static_cast<unsigned char>(byte)]);
      auto const rank_at = [&](std::size_t i) {
        auto const* const merge = i + 1 < symbols.size() ? of.table_.find(symbols[i], symbols[i + 1]) : nullptr;
        return merge != nullptr ? merge->rank : none;
      };
      ranks.resize(symbols.size());
      for (std::size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
      for (;;) {
        auto const best = std::min_element(ranks.begin(), ranks.end());
        if (*best == none) break;
        auto const i = static_cast<std::size_t>(best - ranks.begin());
        symbols[i] = of.table_.find(symbols[i], symbols[i + 1])->id;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        ranks.erase(best + 1);
        ranks[i] = rank_at(i);
        if (i > 0) ranks[i - 1] = rank_at(i - 1);
      }
      ids.insert(ids.end(), symbols.begin(), symbols.end());
    }

    /// The same order of merges through a heap over a linked list, for a line of a million dashes.
    void merge_long(std::string_view text) {
      if (text.size() > 0x7fffffff)
        throw Error(
            ErrorKind::invalid_argument, "Tokenizer::encode",
            "a piece of " + std::to_string(text.size()) + " bytes has no place to cut. Break the text into documents");
      struct Link {
        std::int32_t symbol, previous, next;
      };
      struct Candidate {
        std::int32_t rank, place, left, right;
        bool operator<(Candidate const& other) const noexcept {
          return rank != other.rank ? rank > other.rank : place > other.place;
        }
      };
      auto const size = static_cast<std::int32_t>(text.size());
      std::vector<Link> links(text.size());
      std::priority_queue<Candidate> queue;
      auto const at = [&](std::int32_t place) -> Link& { return links[static_cast<std::size_t>(place)]; };
      auto const offer = [&](std::int32_t place) {
        if (place < 0 || at(place).next < 0) return;
        std::int32_t const left = at(place).symbol, right = at(at(place).next).symbol;
        if (auto const* const merge = of.table_.find(left, right)) queue.push({merge->rank, place, left, right});
      };
      for (std::int32_t i = 0; i < size; ++i)
        at(i) = {of.byte_ids_[static_cast<unsigned char>(text[static_cast<std::size_t>(i)])], i - 1,
                 i + 1 < size ? i + 1 : -1};
      for (std::int32_t i = 0; i < size; ++i) offer(i);
      while (!queue.empty()) {
        Candidate const best = queue.top();
        queue.pop();
        Link& left = at(best.place);
        // Stale when either side was merged in the meantime; a swallowed place has symbol -1.
        if (left.symbol != best.left || left.next < 0 || at(left.next).symbol != best.right) continue;
        left.symbol = of.table_.find(best.left, best.right)->id;
        Link& right = at(left.next);
        right.symbol = -1;
        left.next = right.next;
        if (left.next >= 0) at(left.next).previous = best.place;
        offer(left.previous);
        offer(best.place);
      }
      for (std::int32_t i = 0; i >= 0; i = at(i).next) ids.push_back(at(i).symbol);
    }
  };

  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::vector<SpecialToken> specials_, by_length_;
  PreTokenizer splitter_;
  detail::MergeTable table_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<bool> special_;
  std::array<bool, 256> special_starts_{};
  std::array<std::int32_t, 256> byte_ids_{};
  bool whole_pieces_ = false;
};

/// Turns tokens into text as they come: holds back the bytes of a character until it is complete, so that what `push`
/// returns can be printed at once. All returned pieces together are exactly `decode` of all ids.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamDecoder(Tokenizer const& tokenizer) noexcept : tokenizer_(&tokenizer) {}

  /// Errors: out_of_range.
  std::string push(std::int32_t id) {
    std::string const& bytes = tokenizer_->token_bytes(id);
    if (!tokenizer_->is_special(id)) held_ += bytes;
    std::size_t ready = held_.size();
    for (std::size_t back = 1; back <= 3 && back <= held_.size(); ++back)
      if (Utf8Front const front = utf8_front(std::string_view(held_).substr(held_.size() - back)); front.truncated)
        ready = held_.size() - back;
    std::string text = held_.substr(0, ready);
    held_.erase(0, ready);
    return text;
  }
  /// What is left, complete or not.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  Tokenizer const* tokenizer_;
  std::string held_;
};

}  // namespace tutti::data
