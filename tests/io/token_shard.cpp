// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/token_shard.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <numeric>
#include <vector>

using namespace tutti;

namespace {
/// A file of 32-bit words in 1024 bytes, then raw bytes.
std::string file_of(std::vector<std::int32_t> words, std::string const& payload) {
  words.resize(256);
  return std::string(reinterpret_cast<char const*>(words.data()), 1024) + payload;
}
void require_refused(std::string const& bytes, std::string const& part) {
  test::ScratchFolder const folder;
  io::write_file(folder / "bad.bin", bytes);
  REQUIRE_ERROR(io::TokenShard(folder / "bad.bin"), ErrorKind::format, part);
  REQUIRE_ERROR(io::TokenShard(folder / "bad.bin"), ErrorKind::format, "bad.bin");
}
}  // namespace

TEST_CASE("a token file has llm.c's bytes and comes back") {
  test::ScratchFolder const folder;
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1025}, std::size_t{65536}}) {
    std::vector<std::uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), std::uint16_t{65535});
    io::write_token_shard(folder / "x.bin", tokens);
    io::TokenShard const shard(folder / "x.bin");
    CHECK(std::vector<std::uint16_t>(shard.tokens().begin(), shard.tokens().end()) == tokens);
    std::string const payload(reinterpret_cast<char const*>(tokens.data()), 2 * count);
    CHECK(io::read_file(folder / "x.bin") == file_of({20240520, 1, static_cast<std::int32_t>(count)}, payload));
  }
}

TEST_CASE("tokens of 32 bits are llm.c's Llama kind and come back") {
  test::ScratchFolder const folder;
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1025}}) {
    std::vector<std::int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 127000);
    io::write_wide_token_shard(folder / "x.bin", tokens);
    io::TokenShard const shard(folder / "x.bin");
    CHECK(shard.tokens().wide());
    CHECK(std::vector<std::int32_t>(shard.tokens().begin(), shard.tokens().end()) == tokens);
    std::string const payload(reinterpret_cast<char const*>(tokens.data()), 4 * count);
    CHECK(io::read_file(folder / "x.bin") == file_of({20240801, 7, static_cast<std::int32_t>(count)}, payload));
    std::vector<std::int32_t> part(count / 2);
    shard.tokens().copy(count - part.size(), part.size(), part.data());
    CHECK(std::equal(part.begin(), part.end(), tokens.end() - static_cast<std::ptrdiff_t>(part.size())));
  }
}

TEST_CASE("damaged and foreign token files are refused with a reason") {
  require_refused("", "0 bytes");
  require_refused(std::string(1023, '\0'), "1023 bytes");
  require_refused(file_of({1, 1, 0}, ""), "20240520");
  require_refused(file_of({20240801, 1, 0}, ""), "version 1; version 7 is read");
  require_refused(file_of({20240801, 7, 2}, "1234"), "needs 1032");
  require_refused(file_of({20240520, 2, 0}, ""), "version 2");
  require_refused(file_of({20240520, 1, -1}, ""), "negative");
  require_refused(file_of({20240520, 1, 2}, "123"), "needs 1028");
  require_refused(file_of({20240520, 1, 2}, "12345"), "needs 1028");
  require_refused(file_of({20240520, 1, 2147483647}, "1234"), "needs 4294968318");
}

TEST_CASE("a count of 2^31 tokens is refused before anything is read or written") {
  test::ScratchFolder const folder;
  std::uint16_t const one = 1;
  REQUIRE_ERROR(io::write_token_shard(folder / "x.bin", std::span(&one, std::size_t{1} << 31)),
                ErrorKind::invalid_argument, "31 bits");
  CHECK(folder.names().empty());
}

TEST_CASE("a token file damaged in its header is refused or read, never worse") {
  test::ScratchFolder const folder;
  std::vector<std::uint16_t> const tokens = {1, 2, 3};
  io::write_token_shard(folder / "good", tokens);
  auto const outcome =
      test::damage_everywhere(io::read_file(folder / "good"), folder / "bad", 40, [](std::string const& path) {
        int sum = 0;
        io::TokenShard const shard(path);
        for (std::int32_t const token : shard.tokens()) sum += token;
        CHECK(sum == 6);
      });
  CHECK(outcome.refused > 100);
}
