// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Meshes of data, tensor and pipeline axes, of ranks that are processes.
// Covers: <tutti/train/train_step.hpp> <tutti/parallel/mesh.hpp>

#include "support/catch.hpp"
#include "train/meshes.hpp"

#include <tutti/backend/mpi.hpp>

#include <string>

using namespace tutti;

TEST_CASE("every mesh of processes trains as one does, twice the same bits, from what any other left") {
  Communicator<Mpi> communicator(Mpi(MPI_COMM_WORLD, {}));
  auto const require = [&](parallel::MeshSizes const& sizes, std::string const& wrong) {
    bool const good = communicator.all_reduce(wrong.empty() ? 0 : 1, sum) == 0;
    INFO(sizes.data << " x " << sizes.tensor << " x " << sizes.pipeline << ": " << wrong);
    REQUIRE(good);
  };
  for (int tensor = 1; tensor <= communicator.size(); ++tensor) {
    if (communicator.size() % tensor != 0) continue;
    parallel::MeshSizes const sizes{communicator.size() / tensor, tensor};
    require(sizes, test::train_on_mesh<nn::Gpt2Loss>(communicator, test::mesh_gpt2, sizes) +
                       test::train_on_mesh<nn::LlamaLoss>(communicator, test::mesh_llama, sizes));
    if (tensor > 1)
      require(sizes,
              test::train_on_mesh<nn::Gpt2Loss>(communicator, test::mesh_gpt2, sizes, {.sequence_parallel = true}) +
                  test::train_on_mesh<nn::LlamaLoss>(communicator, test::mesh_llama, sizes,
                                                     {.sequence_parallel = true}));
  }
  if (communicator.size() > 1)
    require({communicator.size(), 1},
            test::train_on_mesh<nn::Gpt2Loss>(communicator, test::mesh_gpt2, {communicator.size(), 1}, {.zero = 3}));
  if (communicator.size() == 4) {
    require({2, 2}, test::train_on_mesh<nn::LlamaLoss>(communicator, test::mesh_llama, {2, 2},
                                                       {.sequence_parallel = true, .zero = 3}) +
                        test::train_on_mesh<nn::Gpt2Loss>(communicator, test::mesh_gpt2, {2, 2},
                                                          {.replicas = parallel::Replicas::sharded}));
    require({2, 1, 2},
            test::train_on_mesh<nn::Gpt2Loss>(communicator, test::deep_gpt2, {2, 1, 2}, {.micro_steps = 2, .zero = 2}));
  }
  for (int stages = 2; stages <= communicator.size(); ++stages) {
    if (communicator.size() % stages != 0) continue;
    parallel::MeshSizes const sizes{communicator.size() / stages, 1, stages};
    require(sizes, test::train_on_mesh<nn::Gpt2Loss>(communicator, test::deep_gpt2, sizes, {.micro_steps = 2}));
    test::MeshRun const parts{.micro_steps = 4, .schedule = parallel::PipelineSchedule::interleaved,
                              .virtual_stages = 2};
    nn::LlamaConfig deeper = test::deep_llama;
    deeper.layers = 2 * stages;
    if (stages <= 4 && sizes.data <= 2)
      require(sizes, test::train_on_mesh<nn::LlamaLoss>(communicator, deeper, sizes, parts));
    if (sizes.data == communicator.size() / 2)
      require(sizes, test::train_on_mesh<nn::LlamaLoss>(communicator, test::deep_llama, sizes, {.micro_steps = 2}));
  }
}
