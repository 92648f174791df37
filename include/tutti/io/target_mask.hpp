// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which tokens of a token file count as targets: a file beside it, as llm.c's format has no place for that.
/// Layout, little-endian: "tuttimsk"; version 1 and zero, 32 bits each; tokens, tokens that count and hash_bytes of the
/// token file, 64 bits each; 24 zero bytes; then a bit for each token, the lowest of a byte first, and zeros to the
/// end of the last byte.

#include <tutti/core/hash.hpp>
#include <tutti/io/token_shard.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tutti::io {

namespace detail {
inline constexpr char mask_magic[9] = "tuttimsk";
struct MaskHeader {
  char magic[8] = {};
  std::uint32_t version = 1, zero = 0;
  std::uint64_t tokens = 0, counted = 0, hash = 0;
  std::uint64_t rest[3] = {};
};
static_assert(sizeof(MaskHeader) == 64);
}  // namespace detail

/// hash_bytes of a file behind what `before` is of. Errors: io.
inline std::uint64_t hash_file(std::string const& path, std::uint64_t before = 0) {
  Storage<Cpu> const bytes = map_file(path);
  return hash_bytes({static_cast<std::byte const*>(bytes.data()), bytes.bytes()}, before);
}

/// Where the mask of a token file lies: "train.mask" for "train.bin".
inline std::string mask_path(std::string const& shard) {
  return (shard.ends_with(".bin") ? shard.substr(0, shard.size() - 4) : shard) + ".mask";
}

/// A mask, mapped read-only.
class TargetMask {
 public:
  /// Of that token file, all of which is read. Errors: io; format, with the file, what is wrong with it and what to do.
  explicit TargetMask(TokenShard const& shard) : path_(mask_path(shard.path())), storage_(map_file(path_)) {
    detail::MaskHeader header;
    if (storage_.bytes() < sizeof(header))
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes, fewer than a header of 64");
    std::memcpy(&header, storage_.data(), sizeof(header));
    if (std::memcmp(header.magic, detail::mask_magic, 8) != 0) refuse("it does not begin with \"tuttimsk\"");
    if (header.version != 1) refuse("it has version " + std::to_string(header.version) + "; version 1 is read");
    if (header.tokens != shard.tokens().size())
      refuse("it is of " + std::to_string(header.tokens) + " tokens and '" + shard.path() + "' has " +
             std::to_string(shard.tokens().size()));
    std::size_t const expected = sizeof(header) + (shard.tokens().size() + 7) / 8;
    if (storage_.bytes() != expected)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes and its tokens need " + std::to_string(expected));
    if (header.hash != hash_file(shard.path()))
      refuse("it was made for other tokens than '" + shard.path() + "' has now");
    counted_ = static_cast<std::int64_t>(header.counted);
    if (count(0, shard.tokens().size()) != counted_)
      refuse("its header says that " + std::to_string(header.counted) + " tokens count, and its bits say otherwise");
  }

  std::string const& path() const noexcept { return path_; }
  /// Tokens that count, of all.
  std::int64_t counted() const noexcept { return counted_; }
  bool operator[](std::size_t token) const noexcept { return ((bits()[token / 8] >> (token % 8)) & 1u) != 0; }
  /// Tokens that count among `count` from `begin` on; they must exist.
  std::int64_t count(std::size_t begin, std::size_t count) const noexcept {
    std::int64_t found = 0;
    std::size_t const end = begin + count;
    while (begin < end && begin % 8 != 0) found += (*this)[begin++] ? 1 : 0;
    for (; begin + 8 <= end; begin += 8) found += std::popcount(bits()[begin / 8]);
    while (begin < end) found += (*this)[begin++] ? 1 : 0;
    return found;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "TargetMask",
                "'" + path_ + "' is not a usable mask of targets: " + why +
                    ". Make both files again with prepare_text, or remove the mask to learn from every token");
  }
  unsigned char const* bits() const noexcept {
    return static_cast<unsigned char const*>(storage_.data()) + sizeof(detail::MaskHeader);
  }

  std::string path_;
  Storage<Cpu> storage_;
  std::int64_t counted_ = 0;
};

/// Writes the mask of a token file that is there: `counts[i]` says whether token i counts.
/// Errors: io. The file is complete or absent.
inline void write_target_mask(std::string const& shard, std::vector<bool> const& counts) {
  detail::MaskHeader header;
  std::memcpy(header.magic, detail::mask_magic, 8);
  std::vector<unsigned char> bits((counts.size() + 7) / 8);
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i]) {
      bits[i / 8] = static_cast<unsigned char>(bits[i / 8] | (1u << (i % 8)));
      ++header.counted;
    }
  header.tokens = counts.size();
  header.hash = hash_file(shard);
  AtomicFile file(mask_path(shard));
  file.write(&header, sizeof(header));
  file.write(bits.data(), bits.size());
  file.commit();
}

}  // namespace tutti::io
