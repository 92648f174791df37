// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A tensor on its way here: which chunks are there, which to ask for next, whether all are what was sent.

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/federate/message.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace tutti::federate {

/// Chunks may come in any order, twice, or damaged; those that are missing are asked for again after `resume`.
class Assembly {
 public:
  /// Sizes are positive, and were checked against the run's facts by the caller: this takes the memory.
  Assembly(std::uint64_t of, std::int64_t bytes, std::uint64_t checksum, std::int64_t chunk_bytes, std::int64_t window)
      : of_(of),
        checksum_(checksum),
        chunk_bytes_(chunk_bytes),
        window_(window),
        bytes_(static_cast<std::size_t>(bytes)),
        chunks_(static_cast<std::size_t>((bytes + chunk_bytes - 1) / chunk_bytes), Chunked::missing) {}

  std::uint64_t of() const noexcept { return of_; }
  std::uint64_t checksum() const noexcept { return checksum_; }
  bool complete() const noexcept { return arrived_ == static_cast<std::int64_t>(chunks_.size()); }
  /// Chunks that were not what their checksum says.
  std::int64_t damaged() const noexcept { return damaged_; }
  /// Of the whole, once complete.
  bool intact() const noexcept { return hash_bytes(bytes_) == checksum_; }
  std::span<std::byte const> bytes() const noexcept { return bytes_; }
  std::vector<std::byte> take() noexcept { return std::move(bytes_); }

  /// What to ask for next, while fewer than `window` chunks are under way.
  std::optional<Ask> next() {
    if (under_way_ >= window_) return std::nullopt;
    while (search_ < chunks_.size() && chunks_[search_] != Chunked::missing) ++search_;
    if (search_ == chunks_.size()) return std::nullopt;
    chunks_[search_] = Chunked::asked;
    ++under_way_;
    return Ask{of_, static_cast<std::int64_t>(search_) * chunk_bytes_, size_of_chunk(search_)};
  }
  /// Returns whether the chunk is one of this tensor. A damaged one is asked for again.
  bool arrive(Chunk const& chunk) {
    if (chunk.of != of_ || chunk.offset < 0 || chunk.offset % chunk_bytes_ != 0) return false;
    auto const index = static_cast<std::size_t>(chunk.offset / chunk_bytes_);
    if (index >= chunks_.size() || static_cast<std::int64_t>(chunk.bytes.size()) != size_of_chunk(index)) return false;
    if (chunks_[index] == Chunked::there) return true;
    if (chunks_[index] == Chunked::asked) --under_way_;
    if (hash_bytes(chunk.bytes) != chunk.checksum) {
      ++damaged_;
      chunks_[index] = Chunked::missing;
      search_ = std::min(search_, index);
      return true;
    }
    std::memcpy(bytes_.data() + chunk.offset, chunk.bytes.data(), chunk.bytes.size());
    chunks_[index] = Chunked::there;
    ++arrived_;
    return true;
  }
  /// What was asked for on a connection that is no more comes no more.
  void resume() {
    for (Chunked& chunk : chunks_)
      if (chunk == Chunked::asked) chunk = Chunked::missing;
    under_way_ = 0;
    search_ = 0;
  }

 private:
  enum class Chunked : unsigned char { missing, asked, there };

  std::int64_t size_of_chunk(std::size_t index) const noexcept {
    return std::min(chunk_bytes_,
                    static_cast<std::int64_t>(bytes_.size()) - static_cast<std::int64_t>(index) * chunk_bytes_);
  }

  std::uint64_t of_, checksum_;
  std::int64_t chunk_bytes_, window_, under_way_ = 0, arrived_ = 0, damaged_ = 0;
  std::size_t search_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<Chunked> chunks_;
};

/// The answer to `ask` out of `bytes`, or none where it asks for what is not there. Chunks are at most `most` bytes.
inline std::optional<Chunk> answer(Ask const& ask, std::span<std::byte const> bytes, std::int64_t most) {
  auto const all = static_cast<std::int64_t>(bytes.size());
  if (ask.offset < 0 || ask.bytes < 1 || ask.bytes > most || ask.offset > all - ask.bytes) return std::nullopt;
  auto const part = bytes.subspan(static_cast<std::size_t>(ask.offset), static_cast<std::size_t>(ask.bytes));
  return Chunk{ask.of, ask.offset, hash_bytes(part), part};
}

}  // namespace tutti::federate
