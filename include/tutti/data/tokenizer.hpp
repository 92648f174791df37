// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Byte-pair encoding: text to token ids and back. With an alphabet of bytes, every byte string can be encoded and
/// comes back unchanged.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/added_tokens.hpp>
#include <tutti/data/merges.hpp>
#include <tutti/data/pre_tokenizer.hpp>
#include <tutti/data/tokenizer_parts.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// Immutable once made: threads may share it.
class Tokenizer {
 public:
  /// Errors: format, when one of the 256 single bytes has no token, a merge has no result, or an id does not exist.
  explicit Tokenizer(TokenizerParts parts)
      : parts_(std::move(parts)), splitter_(parts_.patterns), table_(parts_.merges.size()) {
    auto const count = checked_cast<std::int32_t>(parts_.tokens.size());
    if (!parts_.ranks.empty() && parts_.ranks.size() != parts_.merges.size()) refuse("not every merge has a rank");
    if (!parts_.byte_tokens.empty() && parts_.byte_tokens.size() != 256) refuse("there are not 256 tokens of bytes");
    texts_ = parts_.tokens;
    special_.resize(texts_.size());
    add_specials(count);
    for (auto const& role :
         {parts_.roles.begin, parts_.roles.end, parts_.roles.end_of_turn, parts_.roles.unknown, parts_.roles.padding})
      if (role && (*role < 0 || *role >= count))
        refuse("token " + std::to_string(*role) + " is outside the vocabulary");
    std::vector<bool> byte_token(texts_.size());
    for (std::size_t byte = 0; byte < parts_.byte_tokens.size(); ++byte)
      if (std::int32_t const id = parts_.byte_tokens[byte]; id >= count)
        refuse("a byte's token is outside the vocabulary");
      else if (id >= 0) {
        byte_token[static_cast<std::size_t>(id)] = true;
        texts_[static_cast<std::size_t>(id)] = static_cast<char>(byte);
      }
    detail::PieceMap<std::int32_t> ids;  // of what merging can make or start from
    for (std::int32_t id = 0; id < count; ++id)
      if (!symbol(id).empty() && !is_special(id) && !byte_token[static_cast<std::size_t>(id)])
        ids.insert(symbol(id), id);
    for (std::size_t i = 0; i < parts_.loose.size(); ++i)
      ids.insert(parts_.loose[i], count + static_cast<std::int32_t>(i));
    prepare_symbols(ids);
    prepare_merges(ids);
    prepare_pieces(ids, byte_token);
    if (by_characters())
      for (std::size_t id = 0; id < texts_.size(); ++id)
        if (!special_[id] && !byte_token[id]) texts_[id] = replaced(texts_[id], space_mark, " ");
  }
  /// A tokenizer of bytes. `tokens[id]` are the bytes of token `id`. Merges are in the order of their ranks.
  Tokenizer(std::vector<std::string> tokens, std::vector<Merge> merges, std::vector<SpecialToken> specials,
            std::string_view pattern = gpt2_pattern, bool whole_pieces = false)
      : Tokenizer(TokenizerParts{.tokens = std::move(tokens),
                                 .merges = std::move(merges),
                                 .specials = std::move(specials),
                                 .patterns = {std::string(pattern)},
                                 .whole_pieces = whole_pieces}) {}

  /// Number of ids: one more than the highest.
  std::int32_t vocabulary() const noexcept { return static_cast<std::int32_t>(texts_.size()); }
  TokenizerParts const& parts() const noexcept { return parts_; }
  std::vector<std::string> const& tokens() const noexcept { return texts_; }
  std::vector<Merge> const& merges() const noexcept { return parts_.merges; }
  std::vector<SpecialToken> const& specials() const noexcept { return parts_.specials; }
  std::vector<std::string> const& patterns() const noexcept { return parts_.patterns; }
  bool whole_pieces() const noexcept { return parts_.whole_pieces; }
  TokenRoles const& roles() const noexcept { return parts_.roles; }

  bool is_special(std::int32_t id) const noexcept {
    return id >= 0 && id < vocabulary() && special_[static_cast<std::size_t>(id)];
  }
  /// Id of an added token by its content.
  std::optional<std::int32_t> special(std::string_view content) const {
    for (SpecialToken const& token : parts_.specials)
      if (token.content == content) return token.id;
    return std::nullopt;
  }
  /// The token that stands between documents: `<|endoftext|>`, or what LLaMA's vocabularies have in its place.
  std::optional<std::int32_t> document_mark() const {
    for (std::string_view const mark : {std::string_view(end_of_text_mark), std::string_view("<|end_of_text|>"),
                                        std::string_view("</s>")})
      if (auto const id = special(mark)) return id;
    return parts_.roles.end;
  }
  /// Id of `document_mark`. Errors: format, when the vocabulary has none.
  std::int32_t end_of_text() const {
    if (auto const id = document_mark()) return *id;
    throw Error(ErrorKind::format, "Tokenizer::end_of_text",
                "the vocabulary has no <|endoftext|>, <|end_of_text|> or </s>. Use a tokenizer that has one");
  }
  /// Bytes that a token stands for (of a special token, its mark). Errors: out_of_range.
  std::string const& token_bytes(std::int32_t id) const {
    if (id < 0 || id >= vocabulary())
      throw Error(ErrorKind::out_of_range, "Tokenizer::token_bytes",
                  "token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary()));
    return texts_[static_cast<std::size_t>(id)];
  }

  std::vector<std::int32_t> encode(std::string_view text, Marks marks = Marks::as_text) const {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 1);
    encode_to(ids, text, marks);
    return ids;
  }
  /// With the tokens of beginning and end that the tokenizer asks for.
  std::vector<std::int32_t> encode_complete(std::string_view text, Marks marks = Marks::as_text) const {
    std::vector<std::int32_t> ids;
    if (roles().add_begin && roles().begin) ids.push_back(*roles().begin);
    encode_to(ids, text, marks);
    if (roles().add_end && roles().end) ids.push_back(*roles().end);
    return ids;
  }
  /// Appends to `ids`. Bytes that are not UTF-8 are kept (see PreTokenizer::split).
  /// Cost: one table look-up for a piece that is a token or was seen before in this call; otherwise n log n in its
  /// bytes. Errors: format, when a character has no token and the vocabulary has none for what is unknown.
  void encode_to(std::vector<std::int32_t>& ids, std::string_view text, Marks marks = Marks::as_text) const {
    Encoder(*this, ids).text(text, marks);
  }
  /// Appends the documents one after another, each behind the token `before`. Cheaper than one by one: pieces seen in
  /// one document are known in the next.
  void encode_documents(std::vector<std::int32_t>& ids, std::span<std::string_view const> documents,
                        std::int32_t before) const {
    Encoder encoder(*this, ids);
    for (std::string_view const document : documents) {
      ids.push_back(before);
      encoder.text(document, Marks::as_text);
    }
  }

  /// f(encode), in which encode(text, marks) appends to `ids`. Pieces seen in one call of it are known in the next.
  template <class F>
  void encode_parts(std::vector<std::int32_t>& ids, F&& f) const {
    Encoder encoder(*this, ids);
    f([&](std::string_view text, Marks marks) { encoder.text(text, marks); });
  }

  /// Whether a space was put before the text, which decoding takes away.
  bool drops_first_space() const noexcept { return parts_.prefix_space != PrefixSpace::none; }
  /// The bytes that the ids stand for; special tokens stand for none. Errors: out_of_range.
  std::string decode(std::span<std::int32_t const> ids) const {
    std::string text;
    for (std::int32_t const id : ids) {
      std::string const& bytes = token_bytes(id);
      if (!is_special(id)) text += bytes;
    }
    if (drops_first_space() && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "Tokenizer",
                why + (by_characters() ? ". Use a complete tokenizer" : ". Use a complete byte-level tokenizer"));
  }
  bool by_characters() const noexcept { return parts_.alphabet == Alphabet::characters; }
  bool spaces_in_normalizer() const noexcept {
    return by_characters() && (parts_.prefix_space == PrefixSpace::none || parts_.prefix_space == PrefixSpace::always);
  }
  /// The text of a symbol, as it stands in normalized text.
  std::string const& symbol(std::int32_t id) const noexcept {
    auto const place = static_cast<std::size_t>(id);
    return place < parts_.tokens.size() ? parts_.tokens[place] : parts_.loose[place - parts_.tokens.size()];
  }
  static std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string result;
    for (std::size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size()))
      (result += text.substr(0, at)) += to;
    return result += text;
  }
  /// What the text becomes before normalized marks are looked for.
  std::string normalized(std::string_view text) const {
    std::string result = parts_.nfc ? normalize_nfc(text) : std::string(text);
    if (!spaces_in_normalizer()) return result;
    std::string const spaced = replaced(result, " ", space_mark);
    return parts_.prefix_space == PrefixSpace::always && !spaced.empty() ? std::string(space_mark) + spaced : spaced;
  }
  bool normalizes() const noexcept { return parts_.nfc || spaces_in_normalizer(); }

  void add_specials(std::int32_t count) {
    for (SpecialToken const& special : parts_.specials) {
      if (special.content.empty() || special.id < 0 || special.id >= count)
        refuse("special token '" + special.content + "' with id " + std::to_string(special.id) +
               " is empty or outside the vocabulary");
      special_[static_cast<std::size_t>(special.id)] = special.special;
      texts_[static_cast<std::size_t>(special.id)] = special.content;
      if (special.special || parts_.tokens[static_cast<std::size_t>(special.id)].empty())
        parts_.tokens[static_cast<std::size_t>(special.id)] = special.content;
      if (!special.normalized) {
        raw_marks_.add(special);
        continue;
      }
      SpecialToken found = special;
      found.content = normalized(special.content);
      marks_.add(std::move(found));
    }
  }
  void prepare_symbols(detail::PieceMap<std::int32_t> const& ids) {
    byte_ids_.fill(-1);
    for (unsigned byte = 0; byte < (by_characters() ? 128u : 256u); ++byte) {
      char const character = static_cast<char>(byte);
      auto const* const found = ids.find(std::string_view(&character, 1));
      if (found != nullptr) byte_ids_[byte] = *found;
      else if (!by_characters() && !parts_.roles.unknown && !parts_.drop_unknown)
        refuse("byte " + std::to_string(byte) + " has no token");
    }
    if (!by_characters()) return;
    auto const collect = [&](std::string const& text, std::int32_t id) {
      auto const* const known = ids.find(text);
      if (known != nullptr && *known == id && text.size() > 1 && utf8_front(text).length == text.size())
        characters_.insert(text, id);
    };
    for (std::int32_t id = 0; id < vocabulary() + static_cast<std::int32_t>(parts_.loose.size()); ++id)
      collect(symbol(id), id);
  }
  /// The text of a special token wherever it stands: it never comes to merging where marks count, and is not to become
  /// the token where they do not.
  bool is_cut_out(std::string const& text) const {
    return std::any_of(parts_.specials.begin(), parts_.specials.end(), [&](SpecialToken const& special) {
      return special.special && !special.single_word && special.content == text;
    });
  }
  void prepare_merges(detail::PieceMap<std::int32_t> const& ids) {
    std::int32_t const count = vocabulary() + static_cast<std::int32_t>(parts_.loose.size());
    cut_at_spaces_ = by_characters() && parts_.patterns.empty();
    for (std::size_t place = 0; place < parts_.merges.size(); ++place) {
      auto const [left, right] = parts_.merges[place];
      auto const who = [&] { return "merge " + std::to_string(place); };
      if (left < 0 || left >= count || right < 0 || right >= count)
        refuse(who() + " names an id outside the vocabulary");
      std::string const made = symbol(left) + symbol(right);
      auto const* const found = ids.find(made);
      if (found == nullptr && is_cut_out(made)) continue;
      if (symbol(left).empty() || symbol(right).empty() || found == nullptr)
        refuse(who() + " makes a token that the vocabulary lacks");
      std::int32_t const rank = parts_.ranks.empty() ? static_cast<std::int32_t>(place) : parts_.ranks[place];
      if (!table_.insert(left, right, rank, *found)) refuse(who() + " stands twice");
      if (cut_at_spaces_) {  // may the text be cut before every space? not if a token holds a space behind something
        std::size_t front = 0;
        while (made.compare(front, space_mark.size(), space_mark) == 0) front += space_mark.size();
        cut_at_spaces_ = made.find(space_mark, front) == std::string::npos;
      }
    }
  }
  /// Pieces that are encoded as one token are known by heart.
  void prepare_pieces(detail::PieceMap<std::int32_t> const& ids, std::vector<bool> const& byte_token) {
    detail::Merger merger;
    for (std::int32_t id = 0; id < vocabulary(); ++id) {
      auto const place = static_cast<std::size_t>(id);
      std::string const& text = parts_.tokens[place];
      auto const* const own = text.empty() ? nullptr : ids.find(text);
      if (own == nullptr || *own != id || byte_token[place]) continue;
      merger.symbols.clear();
      if (parts_.whole_pieces) merger.symbols = {id};
      else if (append_symbols(merger.symbols, text)) merger.merge(table_);
      if (merger.symbols.size() == 1 && merger.symbols[0] == id) pieces_.insert(text, id);
    }
  }

  /// The symbols from which merging starts. False when something has no token and there is none for the unknown.
  bool append_symbols(std::vector<std::int32_t>& symbols, std::string_view text) const {
    if (!by_characters()) {
      for (char const byte : text)
        if (std::int32_t const id = byte_ids_[static_cast<unsigned char>(byte)]; id >= 0) symbols.push_back(id);
        else if (!append_unknown(symbols)) return false;
      return true;
    }
    while (!text.empty()) {
      std::size_t const length = std::max<std::size_t>(utf8_front(text).length, 1);
      std::string_view const character = text.substr(0, length);
      std::int32_t const* const id = length == 1 ? nullptr : characters_.find(character);
      if (length == 1 && byte_ids_[static_cast<unsigned char>(text[0])] >= 0)
        symbols.push_back(byte_ids_[static_cast<unsigned char>(text[0])]);
      else if (id != nullptr) symbols.push_back(*id);
      else if (!append_bytes(symbols, character)) return false;
      text.remove_prefix(length);
    }
    return true;
  }
  /// The tokens of the bytes of a character that has none itself.
  bool append_bytes(std::vector<std::int32_t>& symbols, std::string_view character) const {
    auto const token = [&](char byte) {
      return parts_.byte_tokens.empty() ? -1 : parts_.byte_tokens[static_cast<unsigned char>(byte)];
    };
    if (std::any_of(character.begin(), character.end(), [&](char byte) { return token(byte) < 0; }))
      return append_unknown(symbols);
    for (char const byte : character) symbols.push_back(token(byte));
    return true;
  }
  bool append_unknown(std::vector<std::int32_t>& symbols) const {
    if (parts_.drop_unknown) return true;
    if (!parts_.roles.unknown) return false;
    if (!parts_.fuse_unknown || symbols.empty() || symbols.back() != *parts_.roles.unknown)
      symbols.push_back(*parts_.roles.unknown);
    return true;
  }

  /// One call of `encode`: the pieces it has seen, and room to work.
  class Encoder {
   public:
    Encoder(Tokenizer const& of, std::vector<std::int32_t>& ids) : of_(of), ids_(ids) {}

    void text(std::string_view text, Marks marks) {
      auto const mark = [&](SpecialToken const& found) { ids_.push_back(found.id); };
      of_.raw_marks_.split(
          text, marks,
          [&](std::string_view part) {
            bool const first = part.data() == text.data();
            std::string const other = of_.normalizes() ? of_.normalized(part) : std::string();
            std::string_view const whole = of_.normalizes() ? std::string_view(other) : part;
            of_.marks_.split(
                whole, marks, [&](std::string_view plain) { cut(plain, first && plain.data() == whole.data()); }, mark);
          },
          mark);
    }

   private:
    struct Place {
      std::size_t first = 0, count = 0;  // in `ids_`
    };

    /// Text without marks; `first`: nothing stands before it.
    void cut(std::string_view text, bool first) {
      auto const give = [&](std::string_view part) { piece(part); };
      if (!of_.by_characters()) return of_.splitter_.split(text, give);
      std::string spaced;
      if (!of_.spaces_in_normalizer()) {
        spaced = replaced(text, " ", space_mark);
        bool const wanted = of_.parts_.prefix_space == PrefixSpace::unless_present || first;
        if (wanted && !spaced.starts_with(space_mark)) spaced.insert(0, space_mark);
        text = spaced;
      }
      if (!of_.cut_at_spaces_) return of_.splitter_.split(text, give);
      while (!text.empty()) {
        std::size_t front = 0;
        while (text.substr(front).starts_with(space_mark)) front += space_mark.size();
        std::size_t const end = std::min(text.find(space_mark, front), text.size());
        piece(text.substr(0, end));
        text.remove_prefix(end);
      }
    }

    void piece(std::string_view text) {
      if (text.size() == 1) {
        std::int32_t const id = of_.byte_ids_[static_cast<unsigned char>(text[0])];
        if (id >= 0 && id < of_.vocabulary()) return ids_.push_back(id);
      }
      if (auto const* const id = of_.pieces_.find(text)) return ids_.push_back(*id);
      bool const short_enough = text.size() <= 64;
      if (auto const* const known = short_enough ? seen_.find(text) : nullptr) {
        ids_.resize(ids_.size() + known->count);
        std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(known->first), known->count,
                    ids_.end() - static_cast<std::ptrdiff_t>(known->count));
        return;
      }
      std::size_t const first = ids_.size();
      merger_.symbols.clear();
      if (!of_.append_symbols(merger_.symbols, text))
        throw Error(ErrorKind::format, "Tokenizer::encode",
                    "a character of the text has no token and the vocabulary has none for what is unknown. "
                    "Use a tokenizer that covers the text");
      merger_.merge(of_.table_);
      for (std::int32_t const id : merger_.symbols)
        if (id < of_.vocabulary()) ids_.push_back(id);
        else if (!of_.append_bytes(ids_, of_.symbol(id)))
          throw Error(ErrorKind::format, "Tokenizer::encode",
                      "the character '" + of_.symbol(id) + "' has no token. Use a tokenizer that covers the text");
      if (short_enough && seen_.size() < (std::size_t{1} << 18)) seen_.insert(text, {first, ids_.size() - first});
    }

    Tokenizer const& of_;
    std::vector<std::int32_t>& ids_;
    detail::PieceMap<Place> seen_;
    detail::Merger merger_;
  };

  TokenizerParts parts_;
  PreTokenizer splitter_;
  detail::MergeTable table_;
  detail::AddedTokens raw_marks_, marks_;  // looked for in the text as it is, and in the normalized text
  detail::PieceMap<std::int32_t> pieces_, characters_;
  std::vector<std::string> texts_;  // what each token stands for
  std::vector<bool> special_;
  std::array<std::int32_t, 256> byte_ids_{};
  bool cut_at_spaces_ = false;
};

}  // namespace tutti::data
