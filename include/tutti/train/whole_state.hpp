// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between the state of a rank that has its part of every tensor, and that of a whole model.

#include <tutti/core/function_ref.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/rank_parts.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::train {

/// Elements of the parameters of a whole model.
inline std::int64_t parameters_of_whole(graph::State const& state, parallel::RankParts const& parts) {
  std::int64_t count = 0;
  for (graph::Field const& field : state.fields())
    if (field.parameter) count += parts.whole_shape(field).size();
  return count;
}

/// f(state) writes whole tensors, of which this rank takes its parts where several have it together. Errors:
/// invalid_argument, where they are not connected.
inline void fill_parts(graph::State& state, parallel::RankParts const& parts, parallel::DataParallel const& ranks,
                       FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (parts.empty()) return f(state);
  for (parallel::Splits const& level : parts.levels()) static_cast<void>(parts.port_of(ranks, level, where));
  graph::State whole = parts.whole_fields(state);
  f(whole);
  parts.take(whole, state, ranks, where);
}
/// f(state) sees whole tensors on the ranks of the first model that want them, on others an empty state.
/// Ranks: all. Blocking. Errors: as above.
inline void show_whole(graph::State& state, parallel::RankParts const& parts, parallel::DataParallel const& ranks,
                       bool wanted, FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (parts.empty()) return f(state);
  bool const first = !ranks.port || ranks.port->rank() == 0;
  bool const only_data = parts.levels()[0].axis() == graph::MeshAxis::data;
  graph::State whole;
  if (first || parts.along(graph::MeshAxis::data).ranks() > 1)
    whole = parts.joined(ranks, state, wanted && (first || only_data), where);
  f(whole);
}
/// Ranks of a tensor axis must have alike what is not divided among them. Errors: communication. Ranks: all of it.
inline void require_equal_parts(graph::State const& state, parallel::RankParts const& parts, comm::Port& tensor,
                                std::string const& when, std::source_location where) {
  parallel::require_equal_hashes(tensor,
                                 parallel::hash(state,
                                                [&](graph::Field const& field) {
                                                  return (field.part || !parallel::is_own(field)) && !field.per_rank &&
                                                         !optim::is_accumulator(field.name) && !field.sections &&
                                                         !parts.divides(field, graph::MeshAxis::tensor);
                                                }),
                                 when, where);
}

/// What ranks have alike is the same on all of them. Errors: communication. Ranks: all.
inline void require_equal_ranks(graph::State const& state, parallel::RankParts const& parts,
                                parallel::DataParallel const& ranks, std::string const& when,
                                std::source_location where) {
  if (ranks.port) parallel::require_equal(*ranks.port, state, when, where);
  if (ranks.tensor) require_equal_parts(state, parts, *ranks.tensor, when, where);
}

}  // namespace tutti::train
