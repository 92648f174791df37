// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/parallel/mesh.hpp>

#include <array>
#include <tuple>
#include <vector>

using namespace tutti;

TEST_CASE("sizes that are not said follow from the ranks; what does not fit is refused with what does") {
  auto const is = [](parallel::MeshSizes const& sizes, int data, int tensor) {
    return sizes.data == data && sizes.tensor == tensor;
  };
  CHECK(is(parallel::mesh_sizes(1, 0, 0), 1, 1));
  CHECK(is(parallel::mesh_sizes(4, 0, 1), 4, 1));
  CHECK(is(parallel::mesh_sizes(4, 0, 2), 2, 2));
  CHECK(is(parallel::mesh_sizes(4, 2, 0), 2, 2));
  CHECK(is(parallel::mesh_sizes(6, 2, 3), 2, 3));
  for (auto [ranks, data, tensor, sentence] :
       std::vector<std::tuple<int, int, int, char const*>>{
           {4, 0, 3, "--data-parallel (any) x --tensor-parallel 3 is not the number of ranks, 4"},
           {4, 2, 1, "These fit, data x tensor: 4 x 1, 2 x 2, 1 x 4"},
           {6, 6, 6, "6 x 1, 3 x 2, 2 x 3, 1 x 6"},
           {2, -1, 2, "is not the number of ranks, 2"},
           {4, 0, 65536, "is not the number of ranks, 4"},
           {4, 65536, 65536, "is not the number of ranks, 4"}})  // whose product 32 bits do not hold
    REQUIRE_ERROR(parallel::mesh_sizes(ranks, data, tensor), ErrorKind::configuration, sentence);
  CHECK(parallel::mesh_sizes(4, 0, 1, 2).data == 2);
  CHECK(parallel::mesh_sizes(4, 1, 1, 4).pipeline == 4);
  REQUIRE_ERROR(parallel::mesh_sizes(4, 0, 1, 3), ErrorKind::configuration,
                "--data-parallel (any) x --pipeline-parallel 3 is not the number of ranks, 4. These fit, data x "
                "pipeline: 4 x 1, 2 x 2, 1 x 4");
  CHECK(parallel::mesh_sizes(8, 0, 2, 2).data == 2);
  REQUIRE_ERROR(parallel::mesh_sizes(4, 2, 2, 2), ErrorKind::configuration,
                "--data-parallel 2 x --tensor-parallel 2 x --pipeline-parallel 2 is not the number of ranks, 4. These "
                "fit, data x tensor x pipeline: 4 x 1 x 1, 2 x 2 x 1, 2 x 1 x 2, 1 x 4 x 1, 1 x 2 x 2, 1 x 1 x 4");
}

TEST_CASE("stages of a pipeline are far apart, ranks of one stage share out the batch") {
  std::vector<std::array<int, 4>> found(4);
  threads::run(4, [&](Communicator<Threads>& communicator) {
    parallel::DataParallel const mesh = parallel::mesh(communicator, {2, 1, 2});
    found[static_cast<std::size_t>(communicator.rank())] = {mesh.port->rank(), mesh.pipeline->rank(),
                                                            mesh.pipeline->size(), mesh.all->rank()};
  });
  CHECK(found == std::vector<std::array<int, 4>>{{0, 0, 2, 0}, {1, 0, 2, 1}, {0, 1, 2, 2}, {1, 1, 2, 3}});
}

TEST_CASE("neighbours are of one tensor line, ranks of one number in it of one data line") {
  std::vector<std::array<int, 6>> found(4);
  std::vector<int> alone(2);
  threads::run(4, [&](Communicator<Threads>& communicator) {
    parallel::DataParallel const mesh = parallel::mesh(communicator, {2, 2});
    found[static_cast<std::size_t>(communicator.rank())] = {mesh.port->rank(),   mesh.port->size(),
                                                            mesh.tensor->rank(), mesh.tensor->size(),
                                                            mesh.all->rank(),    mesh.node == nullptr ? 1 : 0};
  });
  for (int rank = 0; rank < 4; ++rank)
    CHECK(found[static_cast<std::size_t>(rank)] == std::array<int, 6>{rank / 2, 2, rank % 2, 2, rank, 1});
  threads::run(2, [&](Communicator<Threads>& communicator) {
    parallel::DataParallel const flat = parallel::mesh(communicator, {2, 1});
    bool const one = !flat.tensor && !flat.all && flat.everyone().get() == flat.port.get();
    alone[static_cast<std::size_t>(communicator.rank())] = one ? 1 : 0;
  });
  CHECK(alone == std::vector<int>{1, 1});
}
