// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Token files of llm.c, byte for byte: 256 words of header (magic, version, count), then tokens of 16 bits (GPT-2's
/// kind: 20240520, version 1) or of 32 bits (Llama 3's kind: 20240801, version 7).

#include <tutti/io/file.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::io {

namespace detail {
/// Every file of llm.c begins with 256 words of 32 bits.
using LlmcHeader = std::array<std::int32_t, 256>;
inline constexpr std::size_t llmc_header_bytes = sizeof(LlmcHeader);
inline constexpr std::int32_t tokens_magic = 20240520, tokens_version = 1, wide_tokens_magic = 20240801,
                              wide_tokens_version = 7;

/// The header of a mapped file; all zero when the file is shorter than a header.
inline LlmcHeader read_llmc_header(Storage<Cpu> const& storage) noexcept {
  LlmcHeader header{};
  if (storage.bytes() >= llmc_header_bytes) std::memcpy(header.data(), storage.data(), llmc_header_bytes);
  return header;
}
}  // namespace detail

/// Tokens of either width, where they lie in a file. Valid as long as the file is mapped.
class TokenView {
 public:
  using value_type = std::int32_t;
  class iterator {
   public:
    using value_type = std::int32_t;
    using difference_type = std::ptrdiff_t;
    using reference = std::int32_t;
    using pointer = void;
    using iterator_category = std::input_iterator_tag;
    iterator() = default;
    iterator(void const* first, std::size_t at, bool wide) noexcept : first_(first), at_(at), wide_(wide) {}
    std::int32_t operator*() const noexcept { return token(first_, at_, wide_); }
    iterator& operator++() noexcept { return ++at_, *this; }
    iterator operator++(int) noexcept { return {first_, at_++, wide_}; }
    friend bool operator==(iterator const& a, iterator const& b) noexcept { return a.at_ == b.at_; }

   private:
    void const* first_ = nullptr;
    std::size_t at_ = 0;
    bool wide_ = false;
  };

  TokenView() = default;
  TokenView(void const* first, std::size_t count, bool wide) noexcept : first_(first), count_(count), wide_(wide) {}
  std::size_t size() const noexcept { return count_; }
  bool wide() const noexcept { return wide_; }  ///< 32 bits each
  std::int32_t operator[](std::size_t at) const noexcept { return token(first_, at, wide_); }
  iterator begin() const noexcept { return {first_, 0, wide_}; }
  iterator end() const noexcept { return {first_, count_, wide_}; }
  TokenView first(std::size_t count) const noexcept { return {first_, std::min(count, count_), wide_}; }
  /// Tokens `begin` to `begin + count` into `to`; they must exist.
  void copy(std::size_t begin, std::size_t count, std::int32_t* to) const noexcept {
    if (count == 0) return;
    if (wide_) std::copy_n(static_cast<std::int32_t const*>(first_) + begin, count, to);
    else std::copy_n(static_cast<std::uint16_t const*>(first_) + begin, count, to);
  }

 private:
  static std::int32_t token(void const* first, std::size_t at, bool wide) noexcept {
    return wide ? static_cast<std::int32_t const*>(first)[at] : static_cast<std::uint16_t const*>(first)[at];
  }
  void const* first_ = nullptr;
  std::size_t count_ = 0;
  bool wide_ = false;
};

/// A token file, mapped read-only.
class TokenShard {
 public:
  /// Errors: io; format, with the file, what is wrong with it and what to do.
  explicit TokenShard(std::string path, std::source_location where = std::source_location::current())
      : path_(std::move(path)), storage_(map_file(path_, where)) {
    detail::LlmcHeader const header = detail::read_llmc_header(storage_);
    if (storage_.bytes() < detail::llmc_header_bytes)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes, fewer than a header of 1024");
    wide_ = header[0] == detail::wide_tokens_magic;
    if (!wide_ && header[0] != detail::tokens_magic)
      refuse("its first word is " + std::to_string(header[0]) + ", neither 20240520 nor 20240801");
    std::int32_t const version = wide_ ? detail::wide_tokens_version : detail::tokens_version;
    if (header[1] != version)
      refuse("it has version " + std::to_string(header[1]) + "; version " + std::to_string(version) + " is read");
    if (header[2] < 0) refuse("its token count is negative (more than 2^31 - 1 tokens were written)");
    std::size_t const expected = detail::llmc_header_bytes + (wide_ ? 4 : 2) * static_cast<std::size_t>(header[2]);
    if (storage_.bytes() != expected)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes and its count of " + std::to_string(header[2]) +
             " tokens needs " + std::to_string(expected));
    count_ = static_cast<std::size_t>(header[2]);
  }

  std::string const& path() const noexcept { return path_; }
  /// Tokens of 32 bits may be negative in a damaged file; `data::TokenCorpus::require_vocabulary` looks.
  TokenView tokens() const noexcept {
    if (count_ == 0) return {nullptr, 0, wide_};
    return {static_cast<char const*>(storage_.data()) + detail::llmc_header_bytes, count_, wide_};
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "TokenShard",
                "'" + path_ + "' is not a usable token file: " + why +
                    ". Make it again with prepare_text or llm.c's data scripts");
  }

  std::string path_;
  Storage<Cpu> storage_;
  std::size_t count_ = 0;
  bool wide_ = false;
};

namespace detail {
inline void write_tokens(std::string const& path, void const* tokens, std::size_t count, bool wide,
                         std::source_location where) {
  if (count > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(ErrorKind::invalid_argument, "write_token_shard",
                std::to_string(count) + " tokens do not fit one file, whose count has 31 bits. Write several files",
                where);
  LlmcHeader header{};
  header[0] = wide ? wide_tokens_magic : tokens_magic;
  header[1] = wide ? wide_tokens_version : tokens_version;
  header[2] = static_cast<std::int32_t>(count);
  AtomicFile file(path);
  file.write(header.data(), llmc_header_bytes);
  file.write(tokens, count * (wide ? 4 : 2));
  file.commit();
}
}  // namespace detail

/// 16-bit tokens. Errors: invalid_argument, when there are 2^31 tokens or more; io. The file is complete or absent.
inline void write_token_shard(std::string const& path, std::span<std::uint16_t const> tokens,
                              std::source_location where = std::source_location::current()) {
  detail::write_tokens(path, tokens.data(), tokens.size(), false, where);
}
/// 32-bit tokens, for vocabularies beyond 65536. Errors: as above.
inline void write_wide_token_shard(std::string const& path, std::span<std::int32_t const> tokens,
                                   std::source_location where = std::source_location::current()) {
  detail::write_tokens(path, tokens.data(), tokens.size(), true, where);
}

}  // namespace tutti::io
