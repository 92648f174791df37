// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/loader.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/tensor/tensor.hpp>

#include <cmath>
#include <numeric>
#include <set>

using namespace tutti;

namespace {

/// Token files whose tokens count on from file to file, so a token tells its place.
struct Files {
  explicit Files(std::vector<std::size_t> const& sizes) {
    std::uint16_t next = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      std::vector<std::uint16_t> tokens(sizes[k]);
      for (auto& token : tokens) token = next++;
      io::write_token_shard(folder / ("train_" + std::to_string(k) + ".bin"), tokens);
    }
  }
  data::TokenCorpus corpus() const { return data::TokenCorpus(folder / "train_*.bin"); }
  test::ScratchFolder folder;
};

using Rows = std::vector<std::vector<std::int32_t>>;

/// The tokens of a step as `ranks` ranks see them, put together; targets are checked on the way.
Rows step_rows(data::TrainLoader const& loader, std::int64_t step, std::int64_t ranks, std::int64_t micro) {
  Rows rows;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    data::Share const share = data::share_of(loader.batch(), rank, ranks);
    for (std::int64_t done = 0; done < share.count; done += micro) {
      Shape const shape{std::min(micro, share.count - done), loader.sequence()};
      Tensor<std::int32_t> tokens(shape), targets(shape);
      loader.fill(step, share.begin + done, tokens, targets);
      for (std::int64_t row = 0; row < shape[0]; ++row) {
        rows.emplace_back();
        for (std::int64_t t = 0; t < shape[1]; ++t) {
          rows.back().push_back(tokens(row, t));
          REQUIRE(targets(row, t) == tokens(row, t) + 1);
        }
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("tokens of 32 bits are read like those of 16, and foreign ones are found") {
  test::ScratchFolder const folder;
  std::vector<std::int32_t> tokens(50);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = 100'000 + static_cast<std::int32_t>(i);
  io::write_wide_token_shard(folder / "wide.bin", tokens);
  data::TrainLoader const loader(data::TokenCorpus(folder / "wide.bin"), 3, 4, 7);
  for (auto const& row : step_rows(loader, 0, 1, 2)) CHECK((row[0] >= 100'000 && row[0] < 100'050));
  data::ValidationLoader const validation(data::TokenCorpus(folder / "wide.bin"), 4);
  Tensor<std::int32_t> inputs({1, 4}), targets({1, 4});
  CHECK(validation.fill(1, inputs, targets) == 4);
  CHECK(inputs(0, 0) == 100'004);
  CHECK(targets(0, 3) == 100'008);
  data::TokenCorpus(folder / "wide.bin").require_vocabulary(100'050);
  REQUIRE_ERROR(data::TokenCorpus(folder / "wide.bin").require_vocabulary(100'049), ErrorKind::format, "token 100049");
  tokens[3] = -5;
  io::write_wide_token_shard(folder / "wide.bin", tokens);
  REQUIRE_ERROR(data::TokenCorpus(folder / "wide.bin").require_vocabulary(200'000), ErrorKind::format, "position 3");
}

TEST_CASE("shares are contiguous, complete and even") {
  for (std::int64_t total : {0, 1, 2, 7, 8, 100})
    for (std::int64_t parts : {1, 2, 3, 4, 9}) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        data::Share const share = data::share_of(total, part, parts);
        CHECK(share.begin == next);
        CHECK((share.count == total / parts || share.count == total / parts + 1));
        next += share.count;
      }
      CHECK(next == total);
    }
}

TEST_CASE("what a step sees does not depend on ranks, micro-batches or what came before") {
  Files const files({501, 97, 1000});
  data::TrainLoader const loader(files.corpus(), 12, 8, 42), again(files.corpus(), 12, 8, 42),
      other(files.corpus(), 12, 8, 43);
  int different = 0;
  for (std::int64_t step = 0; step < 50; ++step) {
    Rows const expected = step_rows(loader, step, 1, 12);
    for (std::int64_t ranks : {1, 2, 3, 4})
      for (std::int64_t micro : {1, 2, 3}) REQUIRE(step_rows(loader, step, ranks, micro) == expected);
    different += step_rows(other, step, 1, 12) != expected;
  }
  CHECK(different == 50);
  for (std::int64_t step : {49, 0, 7, 31}) CHECK(step_rows(again, step, 1, 12) == step_rows(loader, step, 2, 3));
}

TEST_CASE("an epoch reads every window once and windows do not overlap") {
  for (std::vector<std::size_t> const& sizes :
       std::vector<std::vector<std::size_t>>{{9}, {17}, {100}, {64, 9, 700}, {5000, 33}}) {
    Files const files(sizes);
    data::TrainLoader const loader(files.corpus(), 1, 8, 5);
    std::set<std::int64_t> begins_of_epoch[3];
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int32_t> seen;
      for (std::int64_t i = 0; i < loader.windows(); ++i) {
        Rows const rows = step_rows(loader, epoch * loader.windows() + i, 1, 1);
        begins_of_epoch[epoch].insert(rows[0][0]);
        for (std::int32_t const token : rows[0]) REQUIRE(seen.insert(token).second);
      }
      auto const total = static_cast<std::int64_t>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
      CHECK(static_cast<std::int64_t>(seen.size()) == loader.windows() * 8);
      CHECK(static_cast<std::int64_t>(seen.size()) > total - static_cast<std::int64_t>(sizes.size()) * 16 - 1);
    }
    if (sizes[0] == 5000) CHECK((begins_of_epoch[0] != begins_of_epoch[1] || begins_of_epoch[1] != begins_of_epoch[2]));
  }
}

TEST_CASE("the epochs differ in their order") {
  Files const files({1000});
  data::TrainLoader const loader(files.corpus(), 1, 8, 5);
  std::vector<std::int64_t> order[2];
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t i = 0; i < loader.windows(); ++i)
      order[epoch].push_back(loader.place(epoch * loader.windows() + i, 0).token / 8);
  CHECK(order[0] != order[1]);
  CHECK(loader.epochs_at(loader.windows()) == 1.0);
}

TEST_CASE("impossible batches and files are refused") {
  Files const files({50, 8});
  REQUIRE_ERROR(data::TrainLoader(files.corpus(), 1, 8, 0), ErrorKind::format, "train_1.bin");
  REQUIRE_ERROR(data::TrainLoader(files.corpus(), 0, 4, 0), ErrorKind::invalid_argument, "batch of 0");
  REQUIRE_ERROR(data::TrainLoader(files.corpus(), 1, 0, 0), ErrorKind::invalid_argument, "sequences of 0");
  REQUIRE_ERROR(data::TrainLoader(data::TokenCorpus(std::vector<io::TokenShard>{}), 1, 4, 0), ErrorKind::format,
                "no token file");
  REQUIRE_ERROR(data::TokenCorpus(files.folder / "none_*.bin"), ErrorKind::io, "no file matches");
}

TEST_CASE("rows outside the global batch and wrong shapes are refused") {
  Files const files({50});
  data::TrainLoader const loader(files.corpus(), 4, 8, 0);
  Tensor<std::int32_t> tokens({2, 8}), targets({2, 8}), narrow({2, 7});
  CHECK_NOTHROW(loader.fill(0, 2, tokens, targets));
  REQUIRE_ERROR(loader.fill(0, 3, tokens, targets), ErrorKind::out_of_range, "[3, 5)");
  REQUIRE_ERROR(loader.fill(0, -1, tokens, targets), ErrorKind::out_of_range, "batch of 4");
  REQUIRE_ERROR(loader.fill(-1, 0, tokens, targets), ErrorKind::out_of_range, "step -1");
  REQUIRE_ERROR(loader.fill(0, 0, narrow, narrow), ErrorKind::shape, "(2, 7)");
  REQUIRE_ERROR(loader.fill(std::int64_t{1} << 62, 0, tokens, targets), ErrorKind::overflow, "64 bits");
}

TEST_CASE("tokens outside a vocabulary are found with their place") {
  Files const files({10, 10});
  CHECK_NOTHROW(files.corpus().require_vocabulary(20));
  REQUIRE_ERROR(files.corpus().require_vocabulary(15), ErrorKind::format, "position 5");
  CHECK(files.corpus().tokens() == 20);
}

TEST_CASE("validation predicts every token once, whatever the batches") {
  for (std::vector<std::size_t> const& sizes :
       std::vector<std::vector<std::size_t>>{{2}, {9}, {10}, {100}, {64, 1, 9, 700}}) {
    Files const files(sizes);
    data::ValidationLoader const loader(files.corpus(), 8);
    for (std::int64_t batch : {1, 3, 4}) {
      std::set<std::int32_t> predicted;
      std::int64_t counted = 0;
      Tensor<std::int32_t> tokens({batch, 8}), targets({batch, 8});
      for (std::int64_t first = 0; first < loader.windows(); first += batch) {
        tokens.fill(-7);
        targets.fill(-7);
        counted += loader.fill(first, tokens, targets);
        for (std::int64_t row = 0; row < batch; ++row)
          for (std::int64_t t = 0; t < 8; ++t) {
            REQUIRE(tokens(row, t) >= 0);
            REQUIRE(targets(row, t) >= data::ignored_target);
            if (targets(row, t) == data::ignored_target) continue;
            REQUIRE(tokens(row, t) + 1 == targets(row, t));
            REQUIRE(predicted.insert(targets(row, t)).second);
          }
      }
      CHECK(counted == loader.predictions());
      CHECK(static_cast<std::int64_t>(predicted.size()) == loader.predictions());
    }
    std::int64_t expected = 0;
    for (std::size_t const size : sizes) expected += static_cast<std::int64_t>(size) - 1;
    CHECK(loader.predictions() == expected);
    Tensor<std::int32_t> tokens({1, 8}), targets({1, 8});
    CHECK(loader.fill(loader.windows(), tokens, targets) == 0);
    CHECK(targets(0, 0) == data::ignored_target);
    // Up to a window that is not the last: rows from it on do not count.
    Tensor<std::int32_t> two_tokens({2, 8}), two_targets({2, 8});
    std::int64_t const first = loader.fill(0, tokens, targets);
    CHECK(loader.fill(0, two_tokens, two_targets, 1) == first);
    CHECK(two_targets(0, 0) == targets(0, 0));
    CHECK(two_targets(1, 0) == data::ignored_target);
  }
  Files const empty({1});
  REQUIRE_ERROR(data::ValidationLoader(empty.corpus(), 8), ErrorKind::format, "fewer than two");
  REQUIRE_ERROR(data::ValidationLoader(empty.corpus(), 0), ErrorKind::invalid_argument, "sequence of 0");
}

TEST_CASE("bits per byte: a model that knows nothing of 256 equal bytes needs 8 bits each") {
  CHECK(std::abs(data::bits_per_byte(100 * std::log(256.0), 100) - 8) < 1e-12);
  CHECK(data::bits_per_byte(1, 0) == 0);
}
