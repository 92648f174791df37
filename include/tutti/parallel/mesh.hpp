// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Ranks as a mesh for training: along one axis they share out the sequences of a batch, along the other a model.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/mesh.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <source_location>
#include <string>

namespace tutti::parallel {

struct MeshSizes {
  int data = 1, tensor = 1;
};

/// The mesh of so many ranks where `data` or `tensor` may be 0: as many as are left.
/// Errors: configuration, with the meshes that fit.
inline MeshSizes mesh_sizes(int ranks, int data, int tensor,
                            std::source_location where = std::source_location::current()) {
  MeshSizes sizes{data, tensor};
  if (tensor == 0) sizes.tensor = data > 0 && ranks % data == 0 ? ranks / data : 1;
  if (data == 0) sizes.data = sizes.tensor > 0 && ranks % sizes.tensor == 0 ? ranks / sizes.tensor : 1;
  if (sizes.data > 0 && sizes.tensor > 0 && ranks % sizes.data == 0 && ranks / sizes.data == sizes.tensor) return sizes;
  std::string fitting;
  for (int one = ranks; one >= 1; --one)
    if (ranks % one == 0) fitting += concat(fitting.empty() ? "" : ", ", one, " x ", ranks / one);
  throw Error(ErrorKind::configuration, "parallel::mesh",
              concat("--data-parallel ", data == 0 ? std::string("(any)") : std::to_string(data),
                     " x --tensor-parallel ", sizes.tensor, " is not the number of ranks, ", ranks,
                     ". These fit, data x tensor: ", fitting),
              where);
}

/// Neighbours in number have one model together. With a tensor axis every rank keeps its parts of the state for itself.
/// Ranks  all, with the same sizes. Blocking. Errors: configuration, for sizes whose product is not the ranks.
template <Backend B>
DataParallel mesh(Communicator<B>& communicator, MeshSizes const& sizes, Replicas replicas = Replicas::per_node,
                  std::source_location where = std::source_location::current()) {
  MeshSizes const checked = mesh_sizes(communicator.size(), sizes.data, sizes.tensor, where);
  if (checked.tensor == 1) return data_parallel(communicator, replicas, where);
  Mesh<B> lines = communicator.mesh({{"data", checked.data}, {"tensor", checked.tensor}}, where);
  return {.port = comm::port(lines["data"], where),
          .node = nullptr,
          .tensor = comm::port(lines["tensor"], where),
          .all = comm::port(communicator, where),
          .sharded = replicas == Replicas::sharded};
}

}  // namespace tutti::parallel
