// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Ranks as a mesh for training: along one axis they share out the sequences of a batch, along others a model: a part
/// of each layer, or some layers each.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/mesh.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::parallel {

struct MeshSizes {
  int data = 1, tensor = 1, pipeline = 1;
};

/// The mesh of so many ranks where `data` or `tensor` may be 0: as many as are left.
/// Errors: configuration, with the meshes that fit.
inline MeshSizes mesh_sizes(int ranks, int data, int tensor, int pipeline = 1,
                            std::source_location where = std::source_location::current()) {
  MeshSizes sizes{data, tensor, pipeline};
  auto const left = [&](std::int64_t known) {
    return known > 0 && ranks % known == 0 ? static_cast<int>(ranks / known) : 1;
  };
  auto const product = [](int a, int b) { return std::int64_t{a} * b; };
  if (tensor == 0) sizes.tensor = data > 0 ? left(product(data, pipeline)) : 1;
  if (data == 0) sizes.data = left(product(sizes.tensor, pipeline));
  std::int64_t const groups = pipeline > 0 && ranks % pipeline == 0 ? ranks / pipeline : 0;
  if (sizes.data > 0 && sizes.tensor > 0 && product(sizes.data, sizes.tensor) == groups) return sizes;
  bool const staged = pipeline != 1, divided = tensor != 1 || !staged;
  std::string fitting;
  for (int one = ranks; one >= 1; --one) {
    int const rest = ranks / one;
    for (int two = divided ? rest : 1; two >= 1 && ranks % one == 0; --two)
      if (rest % two == 0 && (staged || two == rest))
        fitting += concat(fitting.empty() ? "" : ", ", one, divided ? concat(" x ", two) : std::string(),
                          staged ? concat(" x ", rest / two) : std::string());
  }
  throw Error(ErrorKind::configuration, "parallel::mesh",
              concat("--data-parallel ", data == 0 ? std::string("(any)") : std::to_string(data),
                     divided ? concat(" x --tensor-parallel ", sizes.tensor) : std::string(),
                     staged ? concat(" x --pipeline-parallel ", pipeline) : std::string(),
                     " is not the number of ranks, ", ranks, ". These fit, data", divided ? " x tensor" : "",
                     staged ? " x pipeline" : "", ": ", fitting),
              where);
}

/// Neighbours in number have one model together, of several a part each; stages of a pipeline are furthest apart. With
/// an axis beside that of data every rank keeps its parts of the state for itself.
/// Ranks  all, with the same sizes. Blocking. Errors: configuration, for sizes whose product is not the ranks.
template <Backend B>
DataParallel mesh(Communicator<B>& communicator, MeshSizes const& sizes, Replicas replicas = Replicas::per_node,
                  std::source_location where = std::source_location::current()) {
  MeshSizes const checked = mesh_sizes(communicator.size(), sizes.data, sizes.tensor, sizes.pipeline, where);
  if (checked.tensor == 1 && checked.pipeline == 1) return data_parallel(communicator, replicas, where);
  Mesh<B> lines = communicator.mesh(
      {{"pipeline", checked.pipeline}, {"data", checked.data}, {"tensor", checked.tensor}}, where);
  auto const line = [&](int ranks, char const* axis) {
    return ranks > 1 ? comm::port(lines[axis], where) : Shared<comm::Port>();
  };
  auto const device = [&](int ranks, char const* axis) {
    Shared<comm::Port> result;
    if constexpr (comm::DeviceDirect<B>)
      if (ranks > 1) result = comm::accelerator_port(lines[axis]);
    return result;
  };
  return {.port = comm::port(lines["data"], where),
          .node = nullptr,
          .device = device(checked.data, "data"),
          .tensor = line(checked.tensor, "tensor"),
          .tensor_device = device(checked.tensor, "tensor"),
          .pipeline = line(checked.pipeline, "pipeline"),
          .all = comm::port(communicator, where),
          .sharded = replicas == Replicas::sharded && checked.data > 1};
}

}  // namespace tutti::parallel
