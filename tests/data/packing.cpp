// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/data/token_corpus.hpp>
#include <tutti/data/packing.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/data/loader.hpp>
#include <tutti/tensor/tensor.hpp>

#include <set>

using namespace tutti;

namespace {

constexpr std::int32_t mark = 7;

/// Files of documents of these sizes, each a mark and tokens that count on from 100.
struct Files {
  explicit Files(std::vector<std::vector<std::size_t>> const& files) {
    std::uint16_t next = 100;
    for (std::size_t k = 0; k < files.size(); ++k) {
      std::vector<std::uint16_t> tokens;
      for (std::size_t const size : files[k])
        for (std::size_t i = 0; i < size; ++i) tokens.push_back(i == 0 ? std::uint16_t{mark} : next++);
      io::write_token_shard(folder / ("train_" + std::to_string(k) + ".bin"), tokens);
    }
  }
  data::TokenCorpus corpus() const { return data::TokenCorpus(folder / "train_*.bin"); }
  test::ScratchFolder folder;
};

using Row = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("documents lie whole in sequences, each where the least room is left; longer ones are cut") {
  Files const files({{2, 5, 3, 1, 11}});
  data::TokenCorpus const corpus = files.corpus();
  data::DocumentPacking const packing(corpus, 5, mark);
  CHECK(packing.documents() == 5);
  CHECK(packing.cut() == 1);
  std::vector<Row> rows, targets;
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < packing.rows(); ++row) {
    rows.emplace_back(5), targets.emplace_back(5);
    counted += packing.fill(corpus, row, rows.back().data(), targets.back().data());
  }
  // 2: 7 100 | 5: 7 101 .. 104 | 3: 7 105 106 | 1: 7 | 11: 7 107 .. 116
  CHECK(rows == std::vector<Row>{{7, 107, 108, 109, 110},
                                 {111, 112, 113, 114, 115},
                                 {116, 7, 105, 106, 7},  // the rest, then the 3; the 1 where one is left
                                 {7, 101, 102, 103, 104},
                                 {7, 100, 7, 7, 7}});
  CHECK(targets == std::vector<Row>{{107, 108, 109, 110, 111},
                                    {112, 113, 114, 115, 116},
                                    {-1, 105, 106, 7, 7},
                                    {101, 102, 103, 104, 7},
                                    {100, 7, -1, -1, -1}});
  CHECK(counted == 21);  // every token but the first
  CHECK(packing.filled() == Approx(22 / 25.0));
}

TEST_CASE("every token but a file's first is a target once, whatever the sizes, and no document is torn") {
  std::vector<std::vector<std::size_t>> sizes(3);
  for (std::size_t i = 0; i < 120; ++i) sizes[i % 3].push_back(1 + i * 37 % 23);
  Files const files(sizes);
  for (std::int64_t const sequence : {1, 2, 7, 16, 64}) {
    INFO("sequences of " << sequence);
    data::TokenCorpus const corpus = files.corpus();
    data::DocumentPacking const packing(corpus, sequence, mark);
    data::ValidationLoader const held_out(files.corpus(), sequence, mark);
    CHECK(packing.documents() == 120);
    CHECK(held_out.windows() == packing.rows());
    std::multiset<std::int32_t> seen, expected;
    for (io::TokenShard const& shard : corpus.shards())
      expected.insert(std::next(shard.tokens().begin()), shard.tokens().end());
    std::int64_t counted = 0, predicted = 0;
    for (std::int64_t row = 0; row < packing.rows(); ++row) {
      Tensor<std::int32_t> tokens(Shape{1, sequence}), targets(Shape{1, sequence}), again(Shape{1, sequence}),
          again_targets(Shape{1, sequence});
      counted += packing.fill(corpus, row, tokens.data(), targets.data());
      predicted += held_out.fill(row, again, again_targets);
      for (std::int64_t t = 0; t < sequence; ++t) {
        REQUIRE(again(0, t) == tokens(0, t));
        REQUIRE(again_targets(0, t) == targets(0, t));
        if (targets(0, t) >= 0) seen.insert(targets(0, t));
        // What follows in the sequence is what is to be predicted, or a document begins.
        if (t + 1 < sequence && tokens(0, t + 1) != mark) REQUIRE(targets(0, t) == tokens(0, t + 1));
      }
    }
    CHECK(seen == expected);
    CHECK(counted == held_out.predictions());
    CHECK(predicted == counted);
    if (sequence == 64) CHECK(packing.filled() > 0.9);
  }
}

TEST_CASE("a loader of whole documents gives every sequence once per epoch, in another order each time") {
  Files const files({{2, 5, 3, 1, 11, 4, 4, 5, 3}});
  data::TrainLoader const loader(files.corpus(), 2, 5, 42, mark);
  REQUIRE(loader.packing() != nullptr);
  CHECK(loader.leaves_out_targets());
  std::int64_t const rows = loader.windows();
  std::vector<std::vector<Row>> epochs(2);
  Row tokens(5), targets(5);
  for (std::int64_t sample = 0; sample < 2 * rows; ++sample) {
    loader.fill_sample(sample, tokens.data(), targets.data());
    epochs[static_cast<std::size_t>(sample / rows)].push_back(tokens);
  }
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) std::sort(epoch.begin(), epoch.end());
  CHECK(epochs[0] == epochs[1]);
  Files const empty(std::vector<std::vector<std::size_t>>{{1}});
  REQUIRE_ERROR(data::DocumentPacking(empty.corpus(), 5, mark), ErrorKind::format, "fewer than two");
  REQUIRE_ERROR(data::DocumentPacking(files.corpus(), 0, mark), ErrorKind::invalid_argument, "sequence of 0");
}
