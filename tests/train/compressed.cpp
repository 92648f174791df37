// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose gradients are compressed, on ranks that are threads.
// Covers: <tutti/train/step_graph.hpp> <tutti/train/train_step.hpp>

#include "support/catch.hpp"
#include "train/compressed.hpp"

#include <tutti/backend/threads.hpp>

#include <cstddef>
#include <string>
#include <vector>

using namespace tutti;
using test::CompressedRun;

namespace {

/// By rank.
std::vector<CompressedRun> runs(optim::AnyCompressor const& compressor, int ranks, parallel::Replicas replicas,
                                std::int64_t micro_steps) {
  std::vector<CompressedRun> all(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    all[static_cast<std::size_t>(communicator.rank())] =
        test::train_compressed(communicator, compressor, replicas, micro_steps);
  });
  for (CompressedRun const& run : all) CHECK(run.wrong == "");
  return all;
}

/// A hook of the user's: gradients as their signs, all of the size of the mean magnitude.
struct SignCompressor {
  graph::Var average(optim::GradientAverage const& g) const {
    return g.with_feedback([&](graph::Var sum) -> optim::GradientAverage::Sent {
      graph::Var const said = sign(sum) * graph::broadcast_in_dim(mean_all(abs(sum)), sum.shape(), {});
      return {all_reduce(said, comm::PortOp::avg), said};
    });
  }
  std::string describe() const { return "as signs"; }
};

}  // namespace

TEST_CASE("training with compressed gradients is the same on all ranks, resumes bitwise, and learns as without") {
  std::vector<float> const plain = runs({}, 1, parallel::Replicas::per_rank, 1)[0].losses;
  std::int64_t const bytes = runs({}, 2, parallel::Replicas::per_rank, 1)[0].sent;
  struct Given {
    char const* name;
    double share;  ///< of the bytes that travel without, at most; vectors are a part of them
    double worse;  ///< loss after the last step, at most
  };
  for (Given const& given :
       {Given{"bf16", 0.51, 0.01}, Given{"int8", 0.31, 0.02}, Given{"topk:0.1", 0.18, 0.5},
        Given{"powersgd:4", 0.4, 0.4}})
    for (int ranks : {1, 2, 3, 4})
      for (parallel::Replicas replicas : {parallel::Replicas::per_node, parallel::Replicas::per_rank}) {
        std::int64_t const micro_steps = ranks == 2 ? 3 : 1;
        INFO(given.name << ", " << ranks << " ranks, one copy: " << (replicas == parallel::Replicas::per_node) << ", "
                        << micro_steps << " micro-steps");
        std::vector<CompressedRun> const all =
            runs(parallel::compressor_of(given.name), ranks, replicas, micro_steps);
        for (CompressedRun const& run : all) {
          CHECK(run.losses == all[0].losses);
          CHECK(run.matrix == all[0].matrix);
        }
        CHECK(static_cast<double>(all[0].sent) < given.share * static_cast<double>(bytes));
        CHECK(all[0].losses[0] == Approx(plain[0]).margin(1e-5));
        CHECK(all[0].losses.back() < plain.back() + given.worse);
        CHECK(all[0].losses.back() < plain[0] - 0.3);
      }
}

TEST_CASE("a compressor of the user's own is given to a training step") {
  std::vector<CompressedRun> const all = runs(SignCompressor{}, 2, parallel::Replicas::per_node, 1);
  CHECK(all[0].losses == all[1].losses);
  CHECK(all[0].losses.back() < all[0].losses[0] - 0.3);
}

TEST_CASE("gradients are not compressed where ranks of a tensor axis have parts of them") {
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(train::TrainStep<nn::Gpt2Loss>(
                    context, test::compressed_gpt2, optim::AdamW{},
                    {.batch = 2, .sequence = 8, .tensor = 2, .compress = parallel::compressor_of("int8")}),
                ErrorKind::unavailable, "gradients are not compressed where ranks of a tensor axis");
}
