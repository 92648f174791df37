// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/dataset.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace tutti;

namespace {
std::string sample_text() {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "entry " + std::to_string(i * 7919 % 300) + "\n  is the body of an entry with number " + std::to_string(i) +
            ".\n\n";
  return text;
}
}  // namespace

TEST_CASE("a prepared folder holds the text, in two parts, as tokens") {
  test::ScratchFolder const folder;
  std::string const text = sample_text();
  auto const written = data::prepare_dataset(text, folder / "a/b", "sample", {.vocabulary = 400});
  CHECK(data::read_dataset(folder / "a/b") == written);
  CHECK(written.vocabulary == 400);
  CHECK(written.end_of_text == 399);
  auto const tokenizer = data::read_tokenizer(folder / "a/b/tokenizer.json");
  auto const parts = data::hold_out(data::split_documents(text), 0.1);
  auto const check = [&](data::DatasetSplit const& split, std::vector<std::string_view> const& documents) {
    std::string expected;
    for (auto const document : documents) expected += document;
    data::TokenCorpus const corpus(folder / "a/b/" + split.file);
    io::TokenShard const& shard = corpus.shards()[0];
    std::vector<std::int32_t> const ids(shard.tokens().begin(), shard.tokens().end());
    CHECK(tokenizer.decode(ids) == expected);
    CHECK(ids[0] == written.end_of_text);
    CHECK(std::count(ids.begin(), ids.end(), written.end_of_text) == split.documents);
    CHECK(split.tokens == corpus.tokens());
    CHECK(split.text_bytes == static_cast<std::int64_t>(expected.size()));
    CHECK(data::count_text_bytes(corpus, tokenizer) == split.text_bytes);
    CHECK(data::describe_shard(shard) == split);
  };
  check(written.train, parts.train);
  check(written.validation, parts.validation);
  CHECK(written.train.text_bytes + written.validation.text_bytes == static_cast<std::int64_t>(text.size()));
}

TEST_CASE("the vocabulary is learned without the held-out part") {
  test::ScratchFolder const folder;
  std::string const text = sample_text();
  data::prepare_dataset(text, folder / "a", "sample", {.vocabulary = 400});
  auto const parts = data::hold_out(data::split_documents(text), 0.1);
  CHECK(data::tokenizer_to_json(data::train_bpe(parts.train, {.vocabulary = 400})) ==
        io::read_file(folder / "a/tokenizer.json"));
}

TEST_CASE("the same text and options give the same bytes, and a current folder is known as such") {
  test::ScratchFolder const folder;
  std::string const text = sample_text();
  data::DatasetOptions const options{.vocabulary = 400};
  auto const expected = data::dataset_fingerprint(text, options);
  CHECK(!data::dataset_is_current(folder / "a", expected));
  data::prepare_dataset(text, folder / "a", "sample", options);
  data::prepare_dataset(text, folder / "b", "sample", options);
  for (std::string const file : {"tokenizer.json", "train.bin", "validation.bin", "dataset.json"})
    CHECK(io::read_file(folder / "a/" + file) == io::read_file(folder / "b/" + file));
  CHECK(data::dataset_is_current(folder / "a", expected));
  CHECK(!data::dataset_is_current(folder / "a", data::dataset_fingerprint(text + " ", options)));
  CHECK(!data::dataset_is_current(folder / "a", data::dataset_fingerprint(text, {.vocabulary = 401})));
  CHECK(!data::dataset_is_current(folder / "a",
                                  data::dataset_fingerprint(text, {.vocabulary = 400, .validation_fraction = 0.2})));
  io::write_file(folder / "a/train.bin", io::read_file(folder / "a/train.bin").substr(0, 2000));
  CHECK(!data::dataset_is_current(folder / "a", expected));

  for (std::string const file : {"tokenizer.json", "train.bin", "validation.bin"}) {
    std::string const whole = io::read_file(folder / "b/" + file);
    REQUIRE(data::dataset_is_current(folder / "b", expected));
    for (std::string const& damaged : {std::string("{}"), whole.substr(0, whole.size() - 2) + "  "}) {
      io::write_file(folder / "b/" + file, damaged);
      INFO(file << " of " << damaged.size() << " bytes");
      CHECK(!data::dataset_is_current(folder / "b", expected));
    }
    io::write_file(folder / "b/" + file, whole);
  }
  // A description that does not say the contents, as an earlier version wrote it, is read; the folder is made again.
  std::string old = io::read_file(folder / "b/dataset.json");
  std::size_t const from = old.find("  \"contents\"");
  io::write_file(folder / "b/dataset.json", old.erase(from, old.find('\n', from) + 1 - from));
  CHECK(data::read_dataset(folder / "b").contents == 0);
  CHECK(!data::dataset_is_current(folder / "b", expected));
}

TEST_CASE("impossible inputs and damaged descriptions are refused in a sentence") {
  test::ScratchFolder const folder;
  REQUIRE_ERROR(data::prepare_dataset("", folder / "a", "x"), ErrorKind::invalid_argument, "too short");
  REQUIRE_ERROR(data::prepare_dataset("a", folder / "a", "x"), ErrorKind::invalid_argument, "too short");
  REQUIRE_ERROR(data::prepare_dataset(sample_text(), folder / "a", "x", {.vocabulary = (1 << 22) + 1}),
                ErrorKind::invalid_argument, "4194305");
  REQUIRE_ERROR(data::prepare_dataset(sample_text(), folder / "a", "x", {.vocabulary = 3}), ErrorKind::invalid_argument,
                "vocabulary of 3");
  CHECK(folder.names().empty());
  data::prepare_dataset(sample_text(), folder / "a", "x", {.vocabulary = 300});
  std::string const good = io::read_file(folder / "a/dataset.json");
  auto const change = [&](std::string const& from, std::string const& to, std::string const& part) {
    std::string bad = good;
    REQUIRE(bad.find(from) != std::string::npos);
    bad.replace(bad.find(from), from.size(), to);
    io::write_file(folder / "a/dataset.json", bad);
    REQUIRE_ERROR(data::read_dataset(folder / "a"), ErrorKind::format, part);
    REQUIRE_ERROR(data::read_dataset(folder / "a"), ErrorKind::format, "a/dataset.json");
  };
  change("tutti dataset", "other", "format");
  change("\"version\": 1", "\"version\": 2", "version");
  change("\"vocabulary\": 300", "\"vocabulary\": -300", "vocabulary");
  change("\"vocabulary\": 300", "\"vocabulary\": 70000000", "vocabulary");
  change("\"fingerprint\": \"", "\"fingerprint\": \"x", "fingerprint");
  change("\"train\"", "\"training\"", "train");
  change("\"tokens\"", "\"words\"", "tokens");
  change("}\n", "", "damaged");
  REQUIRE_ERROR(data::read_dataset(folder / "none"), ErrorKind::io, "none/dataset.json");
  CHECK(!data::dataset_is_current(folder / "a", 0));
}

TEST_CASE("a vocabulary beyond 65536 is written as tokens of 32 bits") {
  test::ScratchFolder const folder;
  data::Tokenizer const small = data::train_bpe(std::vector<std::string_view>{"aaaa"}, {.vocabulary = 258});
  data::TokenizerParts parts = small.parts();
  parts.tokens[257].clear();  // the mark moves to the end
  parts.tokens.resize(65537);
  parts.specials = {{std::string(data::end_of_text_mark), 65536}};
  data::Tokenizer const large(parts);
  data::Dataset const dataset = data::prepare_dataset(sample_text(), folder / "a", "x", {}, &large);
  io::TokenShard const shard(folder / "a/train.bin");
  CHECK(shard.tokens().wide());
  CHECK(shard.tokens()[0] == 65536);
  CHECK(data::read_dataset(folder / "a") == dataset);
}

TEST_CASE("a shard without a description, or with that of another, has none") {
  test::ScratchFolder const folder;
  std::vector<std::uint16_t> const tokens = {1, 2, 3};
  io::write_token_shard(folder / "train.bin", tokens);
  CHECK(!data::describe_shard(io::TokenShard(folder / "train.bin")));
  data::prepare_dataset(sample_text(), folder.path(), "x", {.vocabulary = 300});
  CHECK(data::describe_shard(io::TokenShard(folder / "train.bin")));
  io::write_token_shard(folder / "train.bin", tokens);
  CHECK(!data::describe_shard(io::TokenShard(folder / "train.bin")));
}
