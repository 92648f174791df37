// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Data parallelism: every rank holds all parameters and sees its share of the batch; gradients are averaged. Written
/// over Port, so that nothing here is compiled once for each backend.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/port.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/optim/adamw.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// What a training step needs to average over ranks, without the communicator's type.
struct DataParallel {
  Shared<comm::Port> port;
};

/// The communicator must not be used for other collectives while a step runs.
template <Backend B>
DataParallel data_parallel(Communicator<B>& communicator) {
  return {comm::port(communicator)};
}

/// In place over all ranks. Blocking.
inline void all_reduce(comm::Port& port, std::span<double> values, comm::PortOp op,
                       std::source_location where = std::source_location::current()) {
  if (port.size() > 1)
    port.wait(
        port.start_all_reduce(values.data(), static_cast<std::int64_t>(values.size()), DType::float64, op, where));
}
inline void barrier(comm::Port& port, std::source_location where = std::source_location::current()) {
  double nothing = 0;
  all_reduce(port, {&nothing, 1}, comm::PortOp::sum, where);
}

/// Gives every rank the contents of rank `root`, accumulators left out. Ranks: all, with states of the same fields.
inline void broadcast(comm::Port& port, graph::State& state, int root = 0,
                      std::source_location where = std::source_location::current()) {
  if (port.size() == 1) return;
  for (graph::Field& field : state.fields())
    if (!optim::is_accumulator(field.name))
      port.wait(port.start_broadcast(field.data(), field.bytes(), DType::byte, root, where));
}

/// Hash over names and contents of all fields but accumulators, which are each rank's own.
inline std::uint64_t hash(graph::State const& state) {
  std::uint64_t result = 0;
  for (graph::Field const& field : state.fields()) {
    if (optim::is_accumulator(field.name)) continue;
    result = hash_bytes(std::as_bytes(std::span(field.name)), result);
    result = hash_bytes({static_cast<std::byte const*>(field.data()), static_cast<std::size_t>(field.bytes())}, result);
  }
  return result;
}

/// Errors: communication, on every rank, naming the ranks whose state differs from rank 0's. Ranks: all.
inline void require_equal(comm::Port& port, graph::State const& state, std::string const& when,
                          std::source_location where = std::source_location::current()) {
  if (port.size() == 1) return;
  std::uint64_t const mine = hash(state);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(port.size()));
  port.wait(port.start_all_gather(&mine, all.data(), 1, DType::uint64, where));
  std::string differing;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  if (!differing.empty())
    throw Error(ErrorKind::communication, "parallel::require_equal",
                "parameters differ from rank 0's on rank " + differing + " " + when +
                    ". Memory or network is faulty, or the ranks run different programs",
                where)
        .with_rank(port.rank());
}

}  // namespace tutti::parallel
