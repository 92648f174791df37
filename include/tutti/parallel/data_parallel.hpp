// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Data parallelism: every rank holds all parameters and sees its share of the batch; gradients are averaged.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/graph/state.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::parallel {

/// What a training step needs to average over ranks, without the communicator's type.
struct DataParallel {
  std::unique_ptr<comm::Port> port;
};

/// The communicator must outlive the result and must not be used for other collectives while a step runs.
template <Backend B>
DataParallel data_parallel(Communicator<B>& communicator) {
  return {comm::port(communicator)};
}

/// Gives every rank the contents of rank `root`. Ranks: all, with states of the same fields.
template <Backend B>
void broadcast(Communicator<B>& communicator, graph::State& state, int root = 0) {
  for (graph::Field& field : state.fields())
    communicator.broadcast(std::span(static_cast<std::byte*>(field.data()), static_cast<std::size_t>(field.bytes())), root);
}

/// Hash over names and contents of all fields.
inline std::uint64_t hash(graph::State const& state) {
  std::uint64_t result = 0;
  for (graph::Field const& field : state.fields()) {
    result = hash_bytes(std::as_bytes(std::span(field.name)), result);
    result = hash_bytes({static_cast<std::byte const*>(field.data()), static_cast<std::size_t>(field.bytes())}, result);
  }
  return result;
}

/// Errors: communication, on every rank, naming the ranks whose state differs from rank 0's. Ranks: all.
template <Backend B>
void require_equal(Communicator<B>& communicator, graph::State const& state, std::string const& when) {
  std::uint64_t const mine = hash(state);
  auto const all = communicator.all_gather(std::span(&mine, 1));
  std::string differing;
  for (int rank = 1; rank < communicator.size(); ++rank)
    if (all(rank, 0) != all(0, 0)) differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  if (!differing.empty())
    throw Error(ErrorKind::communication, "parallel::require_equal",
                "parameters differ from rank 0's on rank " + differing + " " + when + ". Memory or network is faulty, or the ranks run different programs")
        .with_rank(communicator.rank());
}

}  // namespace tutti::parallel
