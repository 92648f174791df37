// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sequences that consist of whole documents.

#include <tutti/core/error.hpp>
#include <tutti/data/token_corpus.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::data {

/// Which documents of a corpus share a sequence: best-fit decreasing (Ding et al. 2024, "Fewer Truncations Improve
/// Language Modeling"), the longest document first, each where the least room is left for it. A document begins with
/// `mark`. One that is longer than a sequence is cut: its whole sequences stand alone, and its rest, which begins
/// without a mark, at the front of one. What is left of a sequence is filled with marks, whose targets are ignored.
/// Every token of a file but the first is the target of one position, where no mask leaves it out.
/// Determinism  a function of the tokens and the length of sequences
/// Cost         16 bytes a document; n log n at the beginning
class DocumentPacking {
 public:
  /// Errors: format, when there is nothing to predict; invalid_argument, for a length below one.
  DocumentPacking(TokenCorpus const& corpus, std::int64_t sequence, std::int32_t mark)
      : sequence_(sequence), mark_(mark) {
    if (sequence < 1)
      throw Error(ErrorKind::invalid_argument, "DocumentPacking",
                  "a sequence of " + std::to_string(sequence) + " tokens is impossible. Ask for one or more");
    std::vector<Piece> whole;
    std::vector<std::vector<Piece>> rows;
    for (std::size_t shard = 0; shard < corpus.shards().size(); ++shard) find(corpus, shard, whole, rows);
    std::stable_sort(whole.begin(), whole.end(), [](Piece a, Piece b) { return a.count > b.count; });
    std::set<std::pair<std::int64_t, std::size_t>> room;  // of rows that have some
    auto const left = [&](std::size_t row) {
      std::int64_t used = 0;
      for (Piece const& piece : rows[row]) used += piece.count;
      return sequence - used;
    };
    for (std::size_t row = 0; row < rows.size(); ++row)
      if (std::int64_t const some = left(row); some > 0) room.emplace(some, row);
    for (Piece const& piece : whole) {
      auto const best = room.lower_bound({piece.count, 0});
      std::size_t row = rows.size();
      std::int64_t some = sequence;
      if (best == room.end()) {
        rows.emplace_back();
      } else {
        some = best->first;
        row = best->second;
        room.erase(best);
      }
      rows[row].push_back(piece);
      if (some > piece.count) room.emplace(some - piece.count, row);
    }
    for (auto const& row : rows) {
      pieces_.insert(pieces_.end(), row.begin(), row.end());
      ends_.push_back(pieces_.size());
    }
    if (rows.empty())
      throw Error(ErrorKind::format, "DocumentPacking",
                  "'" + corpus.pattern() + "' has fewer than two tokens. Use more text");
  }

  /// Sequences.
  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t documents() const noexcept { return documents_; }
  /// Documents that are longer than a sequence.
  std::int64_t cut() const noexcept { return cut_; }
  /// Share of the positions of all sequences that hold text.
  double filled() const noexcept {
    std::int64_t used = 0;
    for (Piece const& piece : pieces_) used += piece.count;
    return static_cast<double>(used) / (static_cast<double>(rows()) * static_cast<double>(sequence_));
  }

  /// One sequence of tokens and targets. Gives the number of targets that count. Requires 0 <= row < rows().
  std::int64_t fill(TokenCorpus const& corpus, std::int64_t row, std::int32_t* tokens, std::int32_t* targets) const {
    auto const at = static_cast<std::size_t>(row);
    std::int64_t used = 0, counted = 0;
    for (std::size_t i = at == 0 ? 0 : ends_[at - 1]; i < ends_[at]; ++i) {
      Piece const& piece = pieces_[i];
      auto const from = static_cast<std::size_t>(piece.begin), count = static_cast<std::size_t>(piece.count);
      auto const source = corpus.shards()[piece.shard].tokens();
      source.copy(from, count, tokens + used);
      std::size_t const next = std::min(count, source.size() - 1 - from);  // behind the last token there is none
      counted += corpus.copy_targets(piece.shard, from + 1, next, targets + used);
      if (next < count) targets[used + static_cast<std::int64_t>(next)] = ignored_target;
      used += piece.count;
    }
    std::fill(tokens + used, tokens + sequence_, mark_);
    std::fill(targets + used, targets + sequence_, ignored_target);
    return counted;
  }

 private:
  /// Tokens that follow one another.
  struct Piece {
    std::int64_t begin = 0;
    std::int32_t count = 0;
    std::uint32_t shard = 0;
  };

  /// Documents of a shard that fit into `whole`, what is cut of others into rows.
  void find(TokenCorpus const& corpus, std::size_t shard, std::vector<Piece>& whole,
            std::vector<std::vector<Piece>>& rows) {
    auto const tokens = corpus.shards()[shard].tokens();
    auto const size = static_cast<std::int64_t>(tokens.size());
    if (size < 2) return;
    std::int64_t begin = 0, next = 0;
    auto const put = [&](std::int64_t end) {
      ++documents_;
      bool const headless = tokens[static_cast<std::size_t>(begin)] != mark_;  // the front of the file may be
      bool const longer = end - begin > sequence_;
      cut_ += longer ? 1 : 0;
      for (; end - begin > 0; begin += sequence_) {
        Piece const piece{begin, static_cast<std::int32_t>(std::min(end - begin, sequence_)),
                          static_cast<std::uint32_t>(shard)};
        if (longer || headless) rows.push_back({piece});
        else whole.push_back(piece);
      }
      begin = end;
    };
    for (std::int32_t const token : tokens) {
      if (token == mark_ && next > begin) put(next);
      ++next;
    }
    put(size);
  }

  std::int64_t sequence_, documents_ = 0, cut_ = 0;
  std::int32_t mark_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> ends_;  // of the rows, in pieces_
};

}  // namespace tutti::data
