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
#include <tutti/optim/minimise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// What a training step needs to average over ranks, without the communicator's type.
struct DataParallel {
  Shared<comm::Port> port;
  /// Of the ranks of this node, which have one copy of the state together; null: each its own.
  Shared<comm::Port> node;
  /// The same ranks for memory of their devices, where the backend reaches it; null: it passes through the host.
  Shared<comm::Port> device{};
  /// Of the ranks that have one model together, a part of it each (parallel/mesh.hpp); `port` then joins those of the
  /// same part. Null: every rank has a whole model.
  Shared<comm::Port> tensor{};
  /// The same ranks for memory of their devices, as `device`.
  Shared<comm::Port> tensor_device{};
  /// Of the ranks that have the stages of one pipeline, in their order (parallel/pipeline.hpp). Null: no pipeline.
  Shared<comm::Port> pipeline{};
  /// Of all ranks, where there is an axis beside that of data; null: those of `port`.
  Shared<comm::Port> all{};
  /// Of moments each rank has the part that it updates: Replicas::sharded.
  bool sharded = false;

  Shared<comm::Port> const& everyone() const noexcept { return all ? all : port; }
};

/// What a rank holds of parameters and moments.
enum class Replicas : unsigned char {
  per_node,  ///< a node's ranks have one copy together, and share out its updates; where they share memory
  per_rank,  ///< each its own, and every update: where a node's memory is far from some of its ranks
  /// Each its own parameters, and of AdamW's moments the part that it updates; updated parameters are gathered (ZeRO 1)
  sharded,
};

/// The communicator must not be used for other collectives while a step runs.
/// Ranks     all. Blocking where ranks are on several nodes: the ranks of each become a communicator of their own.
template <Backend B>
DataParallel data_parallel(Communicator<B>& communicator, Replicas replicas = Replicas::per_node,
                           std::source_location where = std::source_location::current()) {
  DataParallel result{comm::port(communicator, where), nullptr, nullptr};
  if constexpr (comm::DeviceDirect<B>)
    if (communicator.size() > 1) result.device = comm::accelerator_port(communicator);
  result.sharded = replicas == Replicas::sharded && communicator.size() > 1;
  if constexpr (comm::SharesBlocks<B>) {
    if (replicas != Replicas::per_node || communicator.size() == 1 || !communicator.backend().shares_memory())
      return result;
    if (communicator.local_size() == communicator.size()) {
      result.node = result.port;
    } else {
      Communicator<B> node = communicator.split(communicator.node(), 0, where);
      if (node.size() > 1) result.node = comm::port(node);
    }
  }
  return result;
}

/// In place over all ranks. Blocking.
inline void all_reduce(comm::Port& port, std::span<double> values, comm::PortOp op,
                       std::source_location where = std::source_location::current()) {
  if (port.size() > 1)
    port.wait(
        port.start_all_reduce(values.data(), static_cast<std::int64_t>(values.size()), DType::float64, op, where));
}
/// Of all ranks. Blocking.
inline double largest(comm::Port& port, double value, std::source_location where = std::source_location::current()) {
  all_reduce(port, {&value, 1}, comm::PortOp::max, where);
  return value;
}
inline void barrier(comm::Port& port, std::source_location where = std::source_location::current()) {
  if (port.size() > 1) port.barrier(where);
}

/// Whether a field is each rank's own: sums between micro-steps, sections of moments, parts of parameters and of their
/// moments, and what a model says is.
inline bool is_own(graph::Field const& field) noexcept {
  return field.per_rank || field.part || field.sections || optim::is_accumulator(field.name);
}

/// Gives every rank the contents of rank `root`, but of what is each rank's own. Ranks: all, with states of the same
/// fields. A field that ranks share is written by the one of them that may.
inline void broadcast(comm::Port& port, graph::State& state, int root = 0,
                      std::source_location where = std::source_location::current()) {
  if (port.size() == 1) return;
  bool shared = false;
  for (graph::Field& field : state.fields()) {
    if (is_own(field)) continue;
    if (!field.shared()) {
      port.wait(port.start_broadcast(field.data(), field.bytes(), DType::byte, root, where));
      continue;
    }
    shared = true;
    std::vector<std::byte> part(static_cast<std::size_t>(std::min<std::int64_t>(field.bytes(), 1 << 20)));
    for (std::int64_t at = 0; at < field.bytes(); at += static_cast<std::int64_t>(part.size())) {
      std::byte* const data = static_cast<std::byte*>(field.data()) + at;
      auto const bytes = std::min(static_cast<std::size_t>(field.bytes() - at), part.size());
      if (port.rank() == root) std::memcpy(part.data(), data, bytes);
      port.wait(port.start_broadcast(part.data(), static_cast<std::int64_t>(bytes), DType::byte, root, where));
      if (state.writer() && port.rank() != root) std::memcpy(data, part.data(), bytes);
    }
  }
  if (shared) barrier(port, where);
}

/// Hash over names and contents of the fields that `wanted(field)` names.
template <class F>
std::uint64_t hash(graph::State const& state, F&& wanted) {
  std::uint64_t result = 0;
  for (graph::Field const& field : state.fields()) {
    if (!wanted(field)) continue;
    result = hash_bytes(std::as_bytes(std::span(field.name)), result);
    result = hash_bytes({static_cast<std::byte const*>(field.data()), static_cast<std::size_t>(field.bytes())}, result);
  }
  return result;
}

/// Of all fields but those that are each rank's own.
inline std::uint64_t hash(graph::State const& state) {
  return hash(state, [](graph::Field const& field) { return !is_own(field); });
}

/// Errors: communication, on every rank, naming the ranks whose state differs from rank 0's. Ranks: all.
inline void require_equal_hashes(comm::Port& port, std::uint64_t mine, std::string const& when,
                                 std::source_location where = std::source_location::current()) {
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
inline void require_equal(comm::Port& port, graph::State const& state, std::string const& when,
                          std::source_location where = std::source_location::current()) {
  if (port.size() > 1) require_equal_hashes(port, hash(state), when, where);
}

}  // namespace tutti::parallel
