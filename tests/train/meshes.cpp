// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/train_step.hpp> <tutti/train/step_graph.hpp> <tutti/parallel/mesh.hpp>
#include "support/catch.hpp"
#include "train/meshes.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/optim/muon.hpp>
#include <tutti/optim/sgd.hpp>

#include <string>
#include <vector>

using namespace tutti;

namespace {

template <class Loss>
std::string on_threads(typename Loss::Config const& config, parallel::MeshSizes const& sizes,
                       test::MeshRun const& run = {}) {
  std::vector<std::string> wrong(static_cast<std::size_t>(sizes.data * sizes.tensor));
  threads::run(sizes.data * sizes.tensor, [&](Communicator<Threads>& communicator) {
    wrong[static_cast<std::size_t>(communicator.rank())] =
        test::train_on_mesh<Loss>(communicator, config, sizes, run);
  });
  std::string all;
  for (std::string const& one : wrong) all += one;
  return all;
}

}  // namespace

TEST_CASE("every mesh trains a GPT-2 as one rank does, twice the same bits, from what any other left") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, sizes) == "");
  }
}
TEST_CASE("and a LLaMA with grouped heads") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {1, 4}, {2, 2}, {4, 1}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, sizes) == "");
  }
}
TEST_CASE("micro-steps, recomputed blocks and SGD go with a tensor axis") {
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {1, 2}, {.micro_steps = 4}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2}, {.micro_steps = 2, .recompute = graph::Recompute::block}) ==
        "");
  CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {1, 2}, {.recompute = graph::Recompute::pointwise}) == "");
  CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {1, 2}, {.optimizer = optim::Sgd{.momentum = 0.9}}) == "");
}
