// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/vocabulary_files.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/data/bpe_trainer.hpp>

#include <functional>
#include <random>

using namespace tutti;

namespace {

std::string const corpus =
    "the cat's \u00e9t\u00e9; the cats 1999, the other cat\n\n  thinks that the cat sat there.\n";

data::Tokenizer trained() {
  std::vector<std::string_view> const documents = {corpus, corpus};
  return data::train_bpe(documents, {.vocabulary = 275});
}

std::string base64(std::string_view bytes) {
  static char const digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : digits[word >> (18 - 6 * k) & 63];
  }
  return text;
}

/// The same vocabulary in each of the three forms.
struct Files {
  std::string merges = "#version: 0.2\n", encoder = "{", ranks, llmc;
  Files() {
    data::Tokenizer const from = trained();
    std::vector<std::int32_t> header = {20240328, 2, from.vocabulary(), from.end_of_text()};
    header.resize(256);
    llmc.assign(reinterpret_cast<char const*>(header.data()), 1024);
    for (auto const& merge : from.merges())
      merges += data::spell_bytes(from.token_bytes(merge.left)) + " " +
                data::spell_bytes(from.token_bytes(merge.right)) + "\n";
    for (std::int32_t id = 0; id < from.vocabulary(); ++id) {
      std::string const& bytes = from.token_bytes(id);
      encoder += (id == 0 ? "" : ", ") + io::quote_json(data::spell_bytes(bytes)) + ": " + std::to_string(id);
      if (!from.is_special(id)) ranks += base64(bytes) + " " + std::to_string(id) + "\n";
      llmc += static_cast<char>(bytes.size());
      llmc += bytes;
    }
    encoder += "}";
  }
  data::RankOptions rank_options() const {
    return {{std::string(data::gpt2_pattern)}, {{std::string(data::end_of_text_mark), 274}}, false};
  }
  std::vector<std::function<data::Tokenizer(std::string const&)>> parsers() const {
    return {[this](std::string const& text) { return data::parse_gpt2_vocabulary(text, "m", encoder, "e"); },
            [this](std::string const& text) { return data::parse_gpt2_vocabulary(merges, "m", text, "e"); },
            [this](std::string const& text) { return data::parse_ranks(text, "r", rank_options()); },
            [](std::string const& text) { return data::parse_llmc_tokenizer(text, "l"); }};
  }
  std::vector<std::string const*> texts() const { return {&merges, &encoder, &ranks, &llmc}; }
};

}  // namespace

TEST_CASE("every form of one vocabulary encodes alike") {
  Files const files;
  auto const expected = trained();
  test::ScratchFolder const folder;
  for (auto const& [name, text] : {std::pair("vocab.bpe", &files.merges), std::pair("encoder.json", &files.encoder),
                                   std::pair("x.tiktoken", &files.ranks), std::pair("tokenizer.bin", &files.llmc)})
    io::write_file(folder / name, *text);
  std::vector<data::Tokenizer> read;
  read.push_back(data::read_gpt2_vocabulary(folder / "vocab.bpe", folder / "encoder.json"));
  read.push_back(data::read_ranks(folder / "x.tiktoken", files.rank_options()));
  read.push_back(data::read_llmc_tokenizer(folder / "tokenizer.bin"));
  CHECK(read[0].merges() == expected.merges());
  std::mt19937 random(2);
  for (data::Tokenizer const& tokenizer : read) {
    CHECK(tokenizer.vocabulary() == 275);
    CHECK(tokenizer.end_of_text() == 274);
    CHECK(tokenizer.encode("<|endoftext|>", data::Marks::as_tokens) == std::vector<std::int32_t>{274});
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (std::size_t n = random() % 60; n > 0; --n)
        text += round % 4 == 0 ? static_cast<char>(random()) : corpus[random() % corpus.size()];
      text += corpus.substr(random() % 40, random() % 40);
      REQUIRE(tokenizer.encode(text) == expected.encode(text));
      REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("version 1 of llm.c's file has GPT-2's end of text") {
  Files files;
  std::int32_t const one = 1;
  std::memcpy(files.llmc.data() + 4, &one, 4);
  REQUIRE_ERROR(data::parse_llmc_tokenizer(files.llmc, "l"), ErrorKind::format, "50256");
}

TEST_CASE("vocabulary files are refused with name, place and reason") {
  Files const files;
  auto const parsers = files.parsers();
  auto const refused = [&](std::size_t form, std::string text, std::string const& part) {
    REQUIRE_ERROR(parsers[form](text), ErrorKind::format, part);
    REQUIRE_ERROR(parsers[form](text), ErrorKind::format, std::string("'") + "merl"[form] + "'");
  };
  refused(0, "#version: 0.2\nt h\nnone\n", "line 3");
  refused(0, "t qqq\n", "line 1");
  refused(0, "t h\nt h\n", "twice");
  refused(1, "[]", "not a table");
  refused(1, R"({"a": -1})", "no usable id");
  refused(1, R"({"a": 1, "b": 1})", "stands twice");
  refused(1, R"({"a b": 1})", "alphabet");
  refused(2, "", "empty");
  refused(2, "IQ==\n", "line 1");
  refused(2, "IQ== 0\nI!== 1\n", "line 2");
  refused(2, "IQ= 0\n", "base64");
  refused(2, "IQ== x\n", "rank");
  refused(2, "IQ== 99999999999\n", "rank");
  refused(2, "IQ== 0\nIg== 0\n", "earlier");
  refused(2, "IQ== 0\n", "has no token");
  refused(3, "", "1024");
  refused(3, std::string(1024, '\0'), "20240328");
  refused(3, files.llmc.substr(0, files.llmc.size() - 1), "cut off");
  refused(3, files.llmc + "x", "follow");
}

TEST_CASE("vocabulary files damaged at random are refused or read; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  Files const files;
  auto const parsers = files.parsers();
  auto const texts = files.texts();
  std::vector<std::string> good;
  for (std::string const* text : texts) good.push_back(*text);
  test::Fuzzer fuzzer(1600, good, {" 0\n", "IQ== 274\n", "\": 274, \"", "#version: 9\n", "\u0120", "=="});
  std::vector<int> refused(parsers.size()), read(parsers.size());
  while (fuzzer.next()) {
    std::string const damaged = fuzzer.damaged();
    std::size_t const form = fuzzer.which();
    try {
      auto const tokenizer = parsers[form](damaged);
      REQUIRE(tokenizer.decode(tokenizer.encode(corpus)) == corpus);
      ++read[form];
    } catch (Error const& error) {
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused[form];
    }
  }
  for (std::size_t form = 0; form < parsers.size(); ++form) {
    INFO("form " << form << ": " << refused[form] << " refused, " << read[form] << " read");
    CHECK(refused[form] > 40);
  }
}
