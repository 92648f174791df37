// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/target_mask.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <vector>

using namespace tutti;

TEST_CASE("a mask says of every token whether it counts, for any number of tokens") {
  test::ScratchFolder const folder;
  CHECK(io::mask_path("a/train.bin") == "a/train.mask");
  CHECK(io::mask_path("tokens") == "tokens.mask");
  for (std::size_t const size : {0u, 1u, 7u, 8u, 9u, 1000u}) {
    std::string const path = folder / "a.bin";
    io::write_token_shard(path, std::vector<std::uint16_t>(size, 5));
    std::vector<bool> counts(size);
    for (std::size_t i = 0; i < size; ++i) counts[i] = i % 3 == 1 || i % 7 == 0;
    io::write_target_mask(path, counts);
    io::TargetMask const mask{io::TokenShard(path)};
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < size; ++i) {
      REQUIRE(mask[i] == counts[i]);
      counted += counts[i];
    }
    CHECK(mask.counted() == counted);
    for (std::size_t begin = 0; begin < std::min<std::size_t>(size, 20); ++begin)
      for (std::size_t count = 0; begin + count <= std::min<std::size_t>(size, 40); ++count) {
        std::int64_t expected = 0;
        for (std::size_t i = begin; i < begin + count; ++i) expected += counts[i];
        REQUIRE(mask.count(begin, count) == expected);
      }
  }
}

TEST_CASE("a mask that is damaged or of other tokens is refused") {
  test::ScratchFolder const folder;
  std::string const path = folder / "a.bin", mask = folder / "a.mask";
  io::write_token_shard(path, std::vector<std::uint16_t>(20, 5));
  io::TokenShard const shard(path);
  io::write_target_mask(path, std::vector<bool>(20, true));
  std::string const whole = io::read_file(mask);
  CHECK(whole.size() == 64 + 3);
  auto const refused = [&](std::string const& bytes, char const* why) {
    io::write_file(mask, bytes);
    REQUIRE_ERROR(io::TargetMask(shard), ErrorKind::format, why);
  };
  refused("", "0 bytes");
  refused("x" + whole.substr(1), "tuttimsk");
  refused(whole.substr(0, 8) + '\2' + whole.substr(9), "version 2");
  refused(whole.substr(0, 16) + '\7' + whole.substr(17), "7 tokens");
  refused(whole + "x", "68 bytes");
  refused(whole.substr(0, 24) + '\7' + whole.substr(25), "7 tokens count");
  io::write_file(mask, whole);
  CHECK(io::TargetMask(shard).counted() == 20);
  io::write_token_shard(path, std::vector<std::uint16_t>(20, 6));
  REQUIRE_ERROR(io::TargetMask(io::TokenShard(path)), ErrorKind::format, "other tokens");
}
