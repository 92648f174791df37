// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What each rank alone knows, as files beside a checkpoint, and a state that takes it back.

#include <tutti/comm/port.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/optim/gradient_compressor.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/state_files.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// Writes what each rank alone knows beside a checkpoint. Ranks: all. Errors: io, on all of them.
inline void save_replicas(comm::Port& port, std::string const& out, std::vector<io::NamedTensor> own,
                          CheckpointContents& contents) {
  sort_by_name(own);
  char hash[16] = {};
  std::string failed;
  try {
    save_replica(out, contents.step, port.rank(), own).copy(hash, sizeof(hash));
  } catch (std::exception const& error) {
    failed = error.what();
  }
  std::vector<char> all(sizeof(hash) * static_cast<std::size_t>(port.size()));
  port.wait(port.start_all_gather(hash, all.data(), sizeof(hash), DType::byte, std::source_location::current()));
  if (!failed.empty()) throw Error(ErrorKind::io, "checkpoint", failed);
  for (int rank = 0; rank < port.size(); ++rank) {
    std::string const one(all.data() + sizeof(hash) * static_cast<std::size_t>(rank), sizeof(hash));
    if (one[0] == '\0')
      throw Error(ErrorKind::io, "checkpoint", "rank " + std::to_string(rank) + " could not write its replica")
          .with_rank(port.rank());
    contents.replicas.push_back(one);
  }
}
/// Adds the tensors of a file whose names begin so.
inline void copy_into(graph::State& state, io::Safetensors const& file, std::string const& prefix) {
  for (auto const& [name, tensor] : file.tensors()) {
    if (!name.starts_with(prefix)) continue;
    std::memcpy(state.add(name, tensor.dtype, tensor.shape)->data(), tensor.data, tensor.bytes());
  }
}
/// Fields of the state that are not parameters and that a replica holds, as they were saved.
inline void take_back(graph::State& state, graph::State const& saved) {
  for (graph::Field& field : state.fields())
    if (graph::Field const* const own = saved.find(field.name);
        own != nullptr && !field.parameter && own->shape == field.shape && own->dtype == field.dtype)
      std::memcpy(field.data(), own->data(), static_cast<std::size_t>(field.bytes()));
}

/// What ranks have not sent yet of their gradients becomes, on another number of ranks, the mean of it on each, so that
/// nothing is lost or counted twice.
inline void share_unsent(graph::State& own, Checkpoint const& resumed) {
  auto const share = 1.0f / static_cast<float>(resumed.replicas());
  for (int rank = 0; rank < resumed.replicas(); ++rank) {
    io::Safetensors const saved = resumed.replica(rank);
    for (graph::Field& field : own.fields()) {
      if (!optim::is_unsent(field.name) || field.dtype != DType::float32) continue;
      auto const mean = field.view<float>().elements();
      if (rank == 0) std::fill(mean.begin(), mean.end(), 0.0f);
      auto const* const values = static_cast<float const*>(saved.at(field.name).data);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += share * values[i];
    }
  }
}

}  // namespace tutti::train
