// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/options.hpp>

#include <filesystem>

using namespace tutti;
using namespace tutti::train;

namespace {

Parsed parse_words(std::vector<char const*> words) {
  words.insert(words.begin(), "train_gpt2");
  return parse(static_cast<int>(words.size()), words.data());
}

std::string config_file(std::string const& text) {
  auto const path =
      (std::filesystem::temp_directory_path() / ("tutti-options-" + std::to_string(::getpid()) + ".json")).string();
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("flags reach their options, with a blank or an equals sign") {
  Options const o = parse_words({"--data", "a*.bin", "--steps=7", "--learning-rate", "1e-3", "--layers", "2",
                                 "--channels=64", "--heads", "4"})
                        .options;
  CHECK(o.data == "a*.bin");
  CHECK(o.steps == 7);
  CHECK(o.learning_rate == 1e-3);
  CHECK(o.channels == 64);
  CHECK(o.given.contains("steps"));
  CHECK(!o.given.contains("batch"));
}

TEST_CASE("--gradient-clip is --clip, and the last of two counts") {
  CHECK(parse_words({"--data", "x", "--gradient-clip", "0.5"}).options.clip == 0.5);
  CHECK(parse_words({"--data", "x", "--clip", "0.5", "--gradient-clip", "2"}).options.clip == 2);
}

TEST_CASE("a file says the same names, and the command line wins over it") {
  std::string const path = config_file(R"({"data": "x", "steps": 5, "learning-rate": 0.01})");
  Options const o = parse_words({"--config", path.c_str(), "--steps", "9"}).options;
  CHECK(o.steps == 9);
  CHECK(o.learning_rate == 0.01);
  CHECK(o.given.contains("learning-rate"));
}

TEST_CASE("a file with an unknown key, a wrong type or damaged text gets a sentence") {
  CHECK(test::contains(parse_words({"--config", config_file(R"({"data": "x", "stepz": 5})").c_str()}).text, "stepz"));
  REQUIRE_ERROR(parse_words({"--config", config_file(R"({"data": ["x"]})").c_str()}), ErrorKind::configuration,
                "'data'");
  REQUIRE_ERROR(parse_words({"--config", config_file("{").c_str()}), ErrorKind::configuration, "its JSON is damaged");
  REQUIRE_ERROR(parse_words({"--config", config_file("[1]").c_str()}), ErrorKind::configuration, "object");
  REQUIRE_ERROR(parse_words({"--config", "/nonexistent.json"}), ErrorKind::configuration, "cannot open");
}

TEST_CASE("unknown flags and values that are no numbers leave with code 2 and the name") {
  for (auto words : std::vector<std::vector<char const*>>{
           {"--data", "x", "--stepz", "3"}, {"--data", "x", "--steps", "three"}, {"--data", "x", "stray"}}) {
    Parsed const parsed = parse_words(words);
    CHECK(parsed.leave);
    CHECK(parsed.code == 2);
    CHECK((test::contains(parsed.text, "step") || test::contains(parsed.text, "stray")));
  }
}

TEST_CASE("--help names every flag and leaves with code 0") {
  Parsed const parsed = parse_words({"--help"});
  CHECK(parsed.leave);
  CHECK(parsed.code == 0);
  for (char const* flag : {"--model",
                           "--layers",
                           "--channels",
                           "--heads",
                           "--vocabulary",
                           "--data",
                           "--validation-data",
                           "--batch",
                           "--sequence",
                           "--total-tokens",
                           "--steps",
                           "--learning-rate",
                           "--warmup",
                           "--schedule",
                           "--weight-decay",
                           "--clip",
                           "--gradient-clip",
                           "--validate-every",
                           "--sample-every",
                           "--checkpoint-every",
                           "--keep",
                           "--resume",
                           "--seed",
                           "--threads",
                           "--backend",
                           "--ranks",
                           "--out",
                           "--sync-freq",
                           "--config"}) {
    INFO(flag);
    CHECK(test::contains(parsed.text, flag));
  }
}

TEST_CASE("impossible values are refused by the name of their flag") {
  std::vector<std::pair<std::vector<char const*>, char const*>> const cases{
      {{"--data", "x", "--steps", "0"}, "--steps 0"},
      {{"--data", "x", "--batch", "0"}, "--batch 0"},
      {{"--data", "x", "--sequence", "-3"}, "--sequence -3"},
      {{"--data", "x", "--learning-rate", "nan"}, "--learning-rate"},
      {{"--data", "x", "--clip", "-1"}, "--clip -1"},
      {{"--data", "x", "--beta2", "1"}, "--beta2 1"},
      {{"--data", "x", "--schedule", "cubic"}, "cubic"},
      {{"--data", "x", "--backend", "smoke"}, "--backend smoke"},
      {{"--data", "x", "--ranks", "0"}, "--ranks 0"},
      {{"--data", "x", "--sync-freq", "0"}, "--sync-freq 0"},
      {{"--data", "x", "--layers", "2"}, "all three"},
      {{"--data", "x", "--layers", "2", "--channels", "65", "--heads", "4"}, "--channels 65"},
      {{"--data", "x", "--model", "d12", "--layers", "2"}, "--model d12"},
      {{"--steps", "3"}, "--data"},
      {{"--resume", "latest"}, "--out"}};
  for (auto const& [words, part] : cases) REQUIRE_ERROR(parse_words(words), ErrorKind::configuration, part);
}
