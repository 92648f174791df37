// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/program.hpp>
#include "support/catch.hpp"
#include "support/jax_folder.hpp"

#include <tutti/federate/program.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <variant>

using namespace tutti;
using namespace tutti::federate;

namespace {

Program some_program() {
  Program program;
  program.model = nn::Gpt2Config{
      .layers = 2, .heads = 2, .channels = 32, .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 64};
  program.options.batch = 3;
  program.options.sequence = 32;
  program.options.learning_rate = 0.0125;
  program.options.schedule = optim::ScheduleKind::wsd;
  program.options.compute = train::Compute::bfloat16;
  program.options.data = "/a/place/of/mine";
  program.steps = 77;
  program.samples_per_step = 12;
  program.data_hash = "0123456789abcdef";
  program.data_tokens = 12345;
  program.outer_momentum = 0.5;
  program.bits = parallel::OuterBits::int8;
  program.fragments = 2;
  return program;
}
/// The program's text with one word replaced.
Program with(std::string const& from, std::string const& to) {
  std::string text = to_text(some_program());
  std::size_t const at = text.find(from);
  REQUIRE(at != text.npos);
  return parse_program(text.replace(at, from.size(), to));
}
data::TokenCorpus corpus_of(std::string const& folder, std::vector<std::vector<std::uint16_t>> const& shards) {
  std::filesystem::remove_all(folder + "/shards");
  std::filesystem::create_directory(folder + "/shards");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::int32_t header[256] = {20240520, 1, static_cast<std::int32_t>(shards[i].size())};
    std::ofstream file(folder + "/shards/" + std::to_string(i) + ".bin", std::ios::binary);
    file.write(reinterpret_cast<char const*>(header), sizeof(header));
    file.write(reinterpret_cast<char const*>(shards[i].data()), static_cast<std::streamsize>(2 * shards[i].size()));
  }
  return data::TokenCorpus(folder + "/shards/*.bin");
}

}  // namespace

TEST_CASE("a program is read as it was told, without what is the teller's own") {
  Program told = some_program();
  std::string const text = to_text(told);
  Program const heard = parse_program(text);
  CHECK(to_text(heard) == text);
  CHECK(std::get<nn::Gpt2Config>(heard.model) == std::get<nn::Gpt2Config>(told.model));
  CHECK(heard.options.batch == 3);
  CHECK(heard.options.learning_rate == 0.0125);
  CHECK(heard.options.schedule == optim::ScheduleKind::wsd);
  CHECK(heard.options.compute == train::Compute::bfloat16);
  CHECK(heard.steps == 77);
  CHECK(heard.bits == parallel::OuterBits::int8);
  CHECK(heard.fragments == 2);
  CHECK(heard.options.data.empty());
  CHECK(!tutti::test::contains(text, "/a/place/of/mine"));
  CHECK_FALSE(heard.whole);
  CHECK(!tutti::test::contains(text, "whole"));
  told.whole = true;
  CHECK(parse_program(to_text(told)).whole);
}

TEST_CASE("a program that makes no sense is refused") {
  REQUIRE_ERROR(with("\"kind\": \"model\"", "\"kind\": \"gpt2\""), ErrorKind::unavailable,
                "this worker knows kind model");
  REQUIRE_ERROR(with("\"gpt2\"", "\"rnn\""), ErrorKind::unavailable, "another architecture");
  REQUIRE_ERROR(with("\"gpt2\"", "\"llama\""), ErrorKind::format, "lacks a fact");
  REQUIRE_ERROR(with("\"gpt2\"", "\"stablehlo\""), ErrorKind::format, "lacks a fact");
  REQUIRE_ERROR(with("\"layers\": 2", "\"layers\": \"2\""), ErrorKind::format, "one of another type");
  REQUIRE_ERROR(with("\"layers\": 2", "\"layers\": 0"), ErrorKind::configuration, "layers 0");
  REQUIRE_ERROR(with("\"steps\"", "\"stops\""), ErrorKind::format, "lacks a fact");
  REQUIRE_ERROR(with("\"fragments\": 2", "\"fragments\": 0"), ErrorKind::format, "do not fit each other");
  REQUIRE_ERROR(with("\"steps\": 77", "\"steps\": 0"), ErrorKind::format, "do not fit each other");
  REQUIRE_ERROR(with("\"sequence\": 32", "\"sequence\": 65"), ErrorKind::format, "do not fit each other");
  REQUIRE_ERROR(with("\"batch\": 3", "\"batch\": -3"), ErrorKind::configuration, "--batch");
  REQUIRE_ERROR(with("\"wsd\"", "\"waltz\""), ErrorKind::configuration, "--schedule waltz");
  REQUIRE_ERROR(with("\"int8\"", "\"int2\""), ErrorKind::format, "unknown bits");
  REQUIRE_ERROR(parse_program("[]"), ErrorKind::format, "");
  REQUIRE_ERROR(parse_program("{"), ErrorKind::format, "");
}

TEST_CASE("a LLaMA and a StableHLO module are told whole") {
  Program told = some_program();
  told.model = nn::LlamaConfig{.layers = 2, .heads = 4, .kv_heads = 2, .channels = 32, .head_size = 8, .hidden = 96,
                               .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 64,
                               .pairing = kernel::RotaryPairing::interleaved, .window = 16, .tied = false};
  std::string text = to_text(told);
  CHECK(std::get<nn::LlamaConfig>(parse_program(text).model) == std::get<nn::LlamaConfig>(told.model));
  CHECK(to_text(parse_program(text)) == text);
  told.options.dropout = 0.1;
  REQUIRE_ERROR(parse_program(to_text(told)), ErrorKind::format, "do not fit each other");

  told = some_program();
  train::StablehloConfig module = train::read_stablehlo(test::jax_folder() + "/gpt.mlir");
  module.vocabulary = 16;
  told.model = module;
  told.options.batch = module.batch;
  told.options.sequence = module.sequence;
  text = to_text(told);
  CHECK(!test::contains(text, test::jax_folder()));
  auto const heard = std::get<train::StablehloConfig>(parse_program(text).model);
  CHECK(heard.hash == module.hash);
  CHECK(heard.vocabulary == 16);
  CHECK(heard.values.empty());
  REQUIRE(heard.parameters.size() == module.parameters.size());
  for (std::size_t i = 0; i < heard.parameters.size(); ++i)
    CHECK(heard.parameters[i].name == module.parameters[i].name);
  told.options.batch += 1;
  REQUIRE_ERROR(parse_program(to_text(told)), ErrorKind::format, "do not fit each other");
  std::string const call = "stablehlo.tanh";
  std::size_t const at = text.find(call);
  REQUIRE(at != text.npos);
  REQUIRE_ERROR(parse_program(std::string(text).replace(at, call.size(), "{{{{{{{{")), ErrorKind::format,
                "the shepherd's module:");
}

TEST_CASE("the hash of data tells one token, one order and one division into files from another") {
  std::string name = (std::filesystem::temp_directory_path() / "tutti_corpus_XXXXXX").string();
  std::string const folder = ::mkdtemp(name.data());
  auto const hash = [&](std::vector<std::vector<std::uint16_t>> const& shards) {
    return hash_corpus(corpus_of(folder, shards));
  };
  std::vector<std::uint16_t> many(70000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint16_t>(i % 251);
  std::uint64_t const one = hash({{1, 2, 3, 4}});
  CHECK(hash({{1, 2, 3, 4}}) == one);
  CHECK(hash({{1, 2, 3, 5}}) != one);
  CHECK(hash({{2, 1, 3, 4}}) != one);
  CHECK(hash({{1, 2}, {3, 4}}) != one);
  std::uint64_t const large = hash({many});
  many[69999] ^= 1;
  CHECK(hash({many}) != large);
  std::filesystem::remove_all(folder);
}
