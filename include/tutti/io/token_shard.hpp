// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Token files of llm.c, byte for byte: 256 words of header (20240520, version 1, count), then 16-bit tokens.

#include <tutti/io/file.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>

namespace tutti::io {

namespace detail {
/// Every file of llm.c begins with 256 words of 32 bits.
using LlmcHeader = std::array<std::int32_t, 256>;
inline constexpr std::size_t llmc_header_bytes = sizeof(LlmcHeader);

/// The header of a mapped file; all zero when the file is shorter than a header.
inline LlmcHeader read_llmc_header(Storage<Cpu> const& storage) noexcept {
  LlmcHeader header{};
  if (storage.bytes() >= llmc_header_bytes) std::memcpy(header.data(), storage.data(), llmc_header_bytes);
  return header;
}
}  // namespace detail

/// A token file, mapped read-only.
class TokenShard {
 public:
  /// Errors: io; format, with the file, what is wrong with it and what to do.
  explicit TokenShard(std::string path) : path_(std::move(path)), storage_(map_file(path_)) {
    detail::LlmcHeader const header = detail::read_llmc_header(storage_);
    if (storage_.bytes() < detail::llmc_header_bytes)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes, fewer than a header of 1024");
    if (header[0] == 20240801)
      refuse("it holds 32-bit tokens of another vocabulary (magic 20240801); only 16-bit token files are read");
    if (header[0] != 20240520) refuse("its first word is " + std::to_string(header[0]) + ", not 20240520");
    if (header[1] != 1) refuse("it has version " + std::to_string(header[1]) + "; version 1 is read");
    if (header[2] < 0) refuse("its token count is negative (more than 2^31 - 1 tokens were written)");
    std::size_t const expected = detail::llmc_header_bytes + 2 * static_cast<std::size_t>(header[2]);
    if (storage_.bytes() != expected)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes and its count of " + std::to_string(header[2]) +
             " tokens needs " + std::to_string(expected));
    count_ = static_cast<std::size_t>(header[2]);
  }

  std::string const& path() const noexcept { return path_; }
  std::span<std::uint16_t const> tokens() const noexcept {
    if (count_ == 0) return {};
    auto const* first = static_cast<char const*>(storage_.data()) + detail::llmc_header_bytes;
    return {reinterpret_cast<std::uint16_t const*>(first), count_};
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
};

/// Errors: invalid_argument, when there are 2^31 tokens or more; io. The file is complete or absent.
inline void write_token_shard(std::string const& path, std::span<std::uint16_t const> tokens,
                              std::source_location where = std::source_location::current()) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(
        ErrorKind::invalid_argument, "write_token_shard",
        std::to_string(tokens.size()) + " tokens do not fit one file, whose count has 31 bits. Write several files",
        where);
  detail::LlmcHeader header{};
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  AtomicFile file(path);
  file.write(header.data(), detail::llmc_header_bytes);
  file.write(tokens.data(), tokens.size_bytes());
  file.commit();
}

}  // namespace tutti::io
