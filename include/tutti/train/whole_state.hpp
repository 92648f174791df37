// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between the state of a rank that has its part of every tensor, and that of a whole model.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/split.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::train {

/// The ranks that have parts of one state. Errors: invalid_argument, where the step is not connected to them.
inline comm::Port& ranks_of_parts(parallel::DataParallel const& ranks, parallel::Splits const& splits,
                                  std::source_location where) {
  Shared<comm::Port> const& port = splits.axis() == graph::MeshAxis::data ? ranks.port : ranks.tensor;
  if (!port)
    throw Error(ErrorKind::invalid_argument, "TrainStep",
                concat("the step is one of ", splits.ranks(), " ranks of a ", graph::name(splits.axis()),
                       " axis and is not connected to them. Call connect first"), where);
  return *port;
}

/// Elements of the parameters of a whole model.
inline std::int64_t parameters_of_whole(graph::State const& state, parallel::Splits const& splits) {
  std::int64_t count = 0;
  for (graph::Field const& field : state.fields())
    if (field.parameter) count += parallel::whole_of(field.shape, splits.of(field), splits.ranks()).size();
  return count;
}

/// f(state) writes whole tensors, of which this rank takes its parts where several have it together. Errors: as above.
inline void fill_parts(graph::State& state, parallel::Splits const& splits, parallel::DataParallel const& ranks,
                       FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (splits.ranks() == 1) return f(state);
  comm::Port const& port = ranks_of_parts(ranks, splits, where);
  graph::State whole = parallel::whole_fields(state, splits);
  f(whole);
  parallel::take_parts(whole, state, splits, port.rank());
}
/// f(state) sees whole tensors on the ranks of the first model that want them, on others an empty state.
/// Ranks: all. Blocking. Errors: as above.
inline void show_whole(graph::State& state, parallel::Splits const& splits, parallel::DataParallel const& ranks,
                       bool wanted, FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (splits.ranks() == 1) return f(state);
  comm::Port& port = ranks_of_parts(ranks, splits, where);
  graph::State whole;
  if (splits.axis() == graph::MeshAxis::data || ranks.port->rank() == 0)
    whole = parallel::joined(port, state, splits, wanted, where);
  f(whole);
}
/// Ranks with parts must have alike what is not divided. Errors: communication. Ranks: all of `port`'s.
inline void require_equal_parts(graph::State const& state, parallel::Splits const& splits, comm::Port& port,
                                std::string const& when, std::source_location where) {
  parallel::require_equal_hashes(port, parallel::hash(state, [&](graph::Field const& field) {
                                   return !parallel::is_own(field) && !splits.of(field).divided();
                                 }), when, where);
}

/// What ranks have alike is the same on all of them. Errors: communication. Ranks: all.
inline void require_equal_ranks(graph::State const& state, parallel::Splits const& splits,
                                parallel::DataParallel const& ranks, std::string const& when,
                                std::source_location where) {
  if (ranks.port) parallel::require_equal(*ranks.port, state, when, where);
  if (ranks.tensor) require_equal_parts(state, splits, *ranks.tensor, when, where);
}

}  // namespace tutti::train
