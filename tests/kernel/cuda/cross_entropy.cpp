// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/cross_entropy.hpp>

#include "kernel/cross_entropy_oracle.hpp"
#include "kernel/cuda/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Case {
  std::int64_t rows, vocabulary;
  std::int32_t ignored;
  int ignored_in_four;
};

template <class T>
void check(Case const& shape, float spread, bool in_place) {
  auto const [rows, vocabulary, ignored, ignored_in_four] = shape;
  CAPTURE(sizeof(T), rows, vocabulary, spread, in_place);
  Random random(static_cast<std::uint64_t>(vocabulary));
  auto const z = as_stored<T>(random.floats(rows * vocabulary, spread, spread));
  auto const targets = random_targets(random, rows, vocabulary, ignored, ignored_in_four);
  LossOracle const oracle = loss_oracle({z.begin(), z.end()}, targets, vocabulary, ignored, 0.5);
  struct Result {
    std::vector<T> dlogits;
    std::vector<float> row_losses, loss;
  };
  auto const run = [&] {
    OnDevice const on_z(rounded<T>(z)), apart(std::vector<T>(z.size()));
    OnDevice const on_targets(targets);
    OnDevice<float> const row_losses(length(rows)), loss(1);
    OnDevice<T> const& to = in_place ? on_z : apart;
    kernel::cuda::cross_entropy(cuda_context(), kernel::CrossEntropyOf<T>{.rows = rows,
                                                                          .vocabulary = vocabulary,
                                                                          .ignored = ignored,
                                                                          .scale = 0.5f,
                                                                          .logits = on_z.data(),
                                                                          .targets = on_targets.data(),
                                                                          .loss = loss.data(),
                                                                          .row_losses = row_losses.data(),
                                                                          .dlogits = to.data()});
    Result result{to.read(), row_losses.read(), loss.read()};
    if (!in_place) {  // the loss alone is the same loss
      OnDevice<float> const alone(1);
      kernel::cuda::cross_entropy(cuda_context(), kernel::CrossEntropyOf<T>{.rows = rows,
                                                                            .vocabulary = vocabulary,
                                                                            .ignored = ignored,
                                                                            .logits = on_z.data(),
                                                                            .targets = on_targets.data(),
                                                                            .loss = alone.data()});
      REQUIRE(bits_equal(alone.read(), result.loss));
    }
    return result;
  };
  Result const result = run(), again = run();
  double const u = tolerance<float>(spread > 100 ? 4000 : 100);
  require_close_on_device(result.dlogits, oracle.dlogits, u + unit_roundoff(dtype_of<T>), 0.01, "dlogits");
  require_close_on_device(result.row_losses, oracle.row_losses, u, 1, "row loss");
  require_close_on_device(result.loss, {oracle.loss}, u, 1, "loss");
  REQUIRE(bits_equal(result.dlogits, again.dlogits));
  REQUIRE(bits_equal(result.loss, again.loss));
}

}  // namespace

TEST_CASE("Cross-entropy on a GPU agrees with double precision, in place, for rows at every alignment") {
  for (Case const& shape : std::vector<Case>{{0, 5, -1, 0},   {1, 1, -1, 0},    {3, 2, -1, 0},    {9, 17, -100, 1},
                                             {5, 64, 3, 1},   {4, 1000, -1, 4}, {7, 1025, -1, 1}, {40, 33, -1, 1},
                                             {2, 5003, -1, 0}})
    for (float const spread : {3.0f, 200.0f})
      for (bool const in_place : {false, true}) {
        check<float>(shape, spread, in_place);
        check<bfloat16>(shape, spread, in_place);
      }
}

TEST_CASE("Cross-entropy on a GPU keeps rows of 50,257 classes in shared memory or reads them twice") {
  check<float>({1, 50'257, -1, 0}, 3, true);
  check<bfloat16>({2, 50'257, -1, 0}, 3, true);
}

TEST_CASE("Chunks of padded rows share one count of targets, and padded classes get a gradient of zero") {
  std::int64_t const rows = 5, vocabulary = 101, padded = 104, stride = 112;
  Random random(4);
  std::vector<float> const z = as_stored<bfloat16>(random.floats(rows * stride, 3));
  std::vector<std::int32_t> const targets{7, -1, 100, 0, 50};
  std::vector<double> dense;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < vocabulary; ++j) dense.push_back(double{z[length(row * stride + j)]});
  LossOracle const oracle = loss_oracle(dense, targets, vocabulary, -1, 2);
  OnDevice const on_z(rounded<bfloat16>(z));
  OnDevice const on_targets(targets);
  OnDevice<kernel::cuda::TargetCount> const count(1);
  OnDevice<float> const row_losses(length(rows)), loss(1);
  kernel::cuda::count_targets(cuda_context(), on_targets.data(), rows, vocabulary, -1, 2.0f, count.data());
  for (std::int64_t first = 0; first < rows; first += 2) {
    kernel::cuda::LogitRowsOf<bfloat16> chunk;
    chunk.rows = std::min<std::int64_t>(2, rows - first);
    chunk.vocabulary = vocabulary;
    chunk.padded = padded;
    chunk.stride = stride;
    chunk.count = count.data();
    chunk.logits = on_z.data() + first * stride;
    chunk.targets = on_targets.data() + first;
    chunk.row_losses = row_losses.data() + first;
    chunk.gradient = on_z.data() + first * stride;
    kernel::cuda::cross_entropy_rows(cuda_context(), chunk);
  }
  kernel::cuda::mean_loss(cuda_context(), row_losses.data(), rows, count.data(), loss.data());
  std::vector<double> expected;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < stride; ++j)
      expected.push_back(j < vocabulary ? oracle.dlogits[length(row * vocabulary + j)]
                         : j < padded   ? 0
                                        : double{z[length(row * stride + j)]});
  require_close_on_device(on_z.read(), expected, tolerance<float>(100) + unit_roundoff(DType::bfloat16), 0.01,
                          "gradient");
  require_close_on_device(loss.read(), {oracle.loss}, tolerance<float>(100), 1, "loss");
}

TEST_CASE("Logits of minus infinity are classes that cannot be") {
  float const none = -std::numeric_limits<float>::infinity();
  OnDevice const z(std::vector<float>{none, 1, none, 1, none});
  OnDevice const targets(std::vector<std::int32_t>{3});
  OnDevice<float> const loss(1);
  kernel::cuda::cross_entropy(cuda_context(), kernel::CrossEntropy{.rows = 1,
                                                                   .vocabulary = 5,
                                                                   .logits = z.data(),
                                                                   .targets = targets.data(),
                                                                   .loss = loss.data(),
                                                                   .dlogits = z.data()});
  require_close_on_device(loss.read(), {std::log(2.0)}, tolerance<float>(), 1, "loss");
  require_close_on_device(z.read(), {0, 0.5, 0, -0.5, 0}, tolerance<float>(), 1, "gradient");
}

TEST_CASE("A target outside the classes is named when the host waits, and its row takes no part") {
  for (std::int32_t const bad : {6, -2}) {
    OnDevice const z(std::vector<float>(18, 1.0f));
    OnDevice const targets(std::vector<std::int32_t>{0, -1, bad});
    OnDevice<float> const loss(1);
    kernel::cuda::cross_entropy(cuda_context(), kernel::CrossEntropy{.rows = 3,
                                                                     .vocabulary = 6,
                                                                     .logits = z.data(),
                                                                     .targets = targets.data(),
                                                                     .loss = loss.data(),
                                                                     .dlogits = z.data()});
    REQUIRE_ERROR(cuda_context().wait(), ErrorKind::out_of_range, "target " + std::to_string(bad) + " of row 2");
    require_close_on_device(loss.read(), {std::log(6.0)}, tolerance<float>(), 1, "loss");
    auto const gradient = z.read();
    for (std::size_t i = 6; i < 18; ++i) REQUIRE(gradient[i] == 0);
  }
}
