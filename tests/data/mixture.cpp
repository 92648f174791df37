// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/mixture.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/tensor/tensor.hpp>

#include <map>
#include <set>

using namespace tutti;

namespace {

/// Files whose tokens tell set and place: set k has tokens from 10000 k on.
struct Sets {
  explicit Sets(std::vector<std::size_t> const& sizes) : sizes_(sizes) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      std::vector<std::uint16_t> tokens(sizes[k]);
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(10000 * k + i);
      io::write_token_shard(path(k), tokens);
    }
  }
  std::string path(std::size_t k) const { return folder / ("set" + std::to_string(k) + ".bin"); }
  data::MixtureLoader loader(std::vector<double> const& weights, std::int64_t batch, std::uint64_t seed = 42) const {
    std::vector<data::MixtureSet> sets;
    for (std::size_t k = 0; k < weights.size(); ++k)
      sets.push_back({"set" + std::to_string(k), data::TokenCorpus(path(k)), weights[k]});
    return data::MixtureLoader(std::move(sets), batch, 4, seed);
  }
  test::ScratchFolder folder;
  std::vector<std::size_t> sizes_;
};

}  // namespace

TEST_CASE("weights become whole parts of as few samples as can have them") {
  using Parts = std::vector<std::int64_t>;
  CHECK(data::mixture_parts({5}) == Parts{1});
  CHECK(data::mixture_parts({0.7, 0.3}) == Parts{7, 3});
  CHECK(data::mixture_parts({2, 2, 4}) == Parts{1, 1, 2});
  CHECK(data::mixture_parts({1, 999}) == Parts{1, 999});
  CHECK(data::mixture_parts({1, 1999}) == Parts{1, 999});
  auto const odd = data::mixture_parts({0.123456, 0.654321, 0.222223});
  CHECK(odd == Parts{124, 654, 222});
  REQUIRE_ERROR(data::mixture_parts({}), ErrorKind::invalid_argument, "no sets");
  REQUIRE_ERROR(data::mixture_parts({1, 0}), ErrorKind::invalid_argument, "weight of 0");
  REQUIRE_ERROR(data::mixture_parts({1, 1e300 * 1e300}), ErrorKind::invalid_argument, "impossible");
  REQUIRE_ERROR(data::mixture_parts({1, 3000}), ErrorKind::invalid_argument, "one sample in 2000");
}

TEST_CASE("every few samples have the shares that were asked for, and each set is read once per epoch of its own") {
  Sets const files({90, 42});  // 22 windows and 10
  auto const loader = files.loader({0.7, 0.3}, 5);
  CHECK(loader.sets() == 2);
  CHECK(loader.share(0) == Approx(0.7));
  CHECK(loader.tokens() == 132);
  std::map<std::size_t, std::set<std::int64_t>> seen;
  for (std::int64_t block = 0; block < 30; ++block) {
    std::int64_t first = 0;
    for (std::int64_t g = block * 10; g < block * 10 + 10; ++g) {
      auto const [set, sample] = loader.choice(g);
      first += set == 0;
      CHECK(seen[set].insert(sample).second);  // no sample twice
    }
    CHECK(first == 7);
  }
  CHECK(*seen[0].rbegin() == 30 * 7 - 1);  // and none left out
  CHECK(*seen[1].rbegin() == 30 * 3 - 1);
  CHECK(loader.epochs_at(20, 0) == Approx(20 * 5 * 0.7 / static_cast<double>(loader.loader(0).windows())));
  CHECK(loader.epochs_at(20) == std::max(loader.epochs_at(20, 0), loader.epochs_at(20, 1)));
}

TEST_CASE("samples are a function of seed and number: of no layout, nor of where a run begins") {
  Sets const files({90, 42, 60});
  std::vector<double> const weights{0.5, 0.2, 0.3};
  auto const loader = files.loader(weights, 6), again = files.loader(weights, 6), other = files.loader(weights, 6, 43);
  Tensor<std::int32_t> whole(Shape{6, 4}), targets(Shape{6, 4}), part(Shape{2, 4}), part_targets(Shape{2, 4}),
      elsewhere(Shape{6, 4});
  bool differs = false;
  for (std::int64_t step = 11; step >= 0; --step) {
    loader.fill(step, 0, whole, targets);
    for (std::int64_t first = 0; first < 6; first += 2) {
      again.fill(step, first, part, part_targets);
      for (std::int64_t row = 0; row < 2; ++row)
        for (std::int64_t t = 0; t < 4; ++t) {
          REQUIRE(part(row, t) == whole(first + row, t));
          REQUIRE(part_targets(row, t) == whole(first + row, t) + 1);
        }
    }
    other.fill(step, 0, elsewhere, targets);
    differs = differs || !std::equal(whole.elements().begin(), whole.elements().end(), elsewhere.elements().begin());
  }
  CHECK(differs);
  REQUIRE_ERROR(loader.fill(0, 5, part, part_targets), ErrorKind::out_of_range, "outside the batch of 6");
}

TEST_CASE("a mixture of one set is that set's loader") {
  Sets const files({90});
  data::MixtureLoader const mixture(data::TokenCorpus(files.path(0)), 3, 4, 7);
  data::TrainLoader const alone(data::TokenCorpus(files.path(0)), 3, 4, 7);
  Tensor<std::int32_t> a(Shape{3, 4}), b(Shape{3, 4}), targets(Shape{3, 4});
  for (std::int64_t step = 0; step < 20; ++step) {
    mixture.fill(step, 0, a, targets);
    alone.fill(step, 0, b, targets);
    CHECK(std::equal(a.elements().begin(), a.elements().end(), b.elements().begin()));
  }
  CHECK(mixture.windows() == alone.windows());
  CHECK(mixture.epochs_at(5) == alone.epochs_at(5));
}
