// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/setup.hpp>

using namespace tutti;
using namespace tutti::train;
namespace fs = std::filesystem;

namespace {

struct Data {
  fs::path folder = fs::temp_directory_path() / ("tutti-setup-" + std::to_string(::getpid()));
  Data() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::vector<std::uint16_t> tokens(1000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 50);
    io::write_token_shard((folder / "train.bin").string(), tokens);
    io::write_token_shard((folder / "validation.bin").string(), std::span(tokens).first(100));
  }
  ~Data() { fs::remove_all(folder); }

  Setup with(std::vector<std::string> words, int ranks = 1) const {
    words.insert(words.begin(), {"train_gpt2", "--data", folder.string(), "--layers", "1", "--channels", "8", "--heads",
                                 "2", "--vocabulary", "60"});
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    Parsed const parsed = parse(static_cast<int>(argv.size()), argv.data());
    INFO(parsed.text);
    REQUIRE(!parsed.leave);
    return make_setup(parsed.options, ranks);
  }
};

}  // namespace

TEST_CASE("a folder stands for its token files") {
  Data const data;
  Setup const s = data.with({"--sequence", "16"});
  CHECK(s.train->corpus().tokens() == 1000);
  REQUIRE(s.validation);
  CHECK(s.validation->predictions() == 99);
  CHECK(s.model.vocabulary == 60);
  CHECK(s.model.padded_vocabulary == 128);
  CHECK(s.model.max_tokens == 16);
}

TEST_CASE("the batch is divided by ranks and micro-steps, whichever way it is said") {
  Data const data;
  struct Row {
    std::vector<std::string> words;
    int ranks;
    std::int64_t rows, micro_steps, global_rows;
  };
  for (Row const& row : std::vector<Row>{{{"--batch", "3"}, 2, 3, 1, 6},
                                         {{"--batch", "3", "--sync-freq", "4"}, 2, 3, 4, 24},
                                         {{"--batch", "2", "--total-tokens", "192"}, 2, 2, 3, 12},
                                         {{"--total-tokens", "192", "--sync-freq", "2"}, 2, 3, 2, 12},
                                         {{"--total-tokens", "192"}, 3, 4, 1, 12},
                                         {{"--total-tokens", "112"}, 1, 1, 7, 7}}) {
    std::vector<std::string> words{"--sequence", "16"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    Setup const s = data.with(words, row.ranks);
    INFO(row.words.back() << " on " << row.ranks);
    CHECK(s.rows == row.rows);
    CHECK(s.micro_steps == row.micro_steps);
    CHECK(s.global_rows == row.global_rows);
    CHECK(s.tokens_per_step() == row.global_rows * 16);
  }
}

TEST_CASE("without --steps a run is one pass over the data") {
  Data const data;
  Setup const s = data.with({"--sequence", "16", "--batch", "4"});
  CHECK(s.steps == s.train->windows() / 4);
}

TEST_CASE("what does not fit is refused by flag and number") {
  Data const data;
  auto const refuse = [&](std::vector<std::string> words, int ranks, char const* part) {
    REQUIRE_ERROR(data.with(words, ranks), ErrorKind::configuration, part);
  };
  refuse({"--sequence", "16", "--total-tokens", "100"}, 1, "--total-tokens 100 is not a multiple of --sequence 16");
  refuse({"--sequence", "16", "--total-tokens", "48"}, 2, "2 ranks cannot share evenly");
  refuse({"--sequence", "16", "--total-tokens", "96", "--batch", "4"}, 1, "--batch 4 does not divide");
  refuse({"--sequence", "16", "--total-tokens", "96", "--sync-freq", "4"}, 1, "--sync-freq 4 does not divide");
  refuse({"--sequence", "16", "--total-tokens", "96", "--sync-freq", "2", "--batch", "4"}, 1, "needs --batch 3");
}
