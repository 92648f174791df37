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

/// Errors: invalid_argument, where a step of several ranks of the tensor axis is not connected to them.
inline void require_connected(parallel::DataParallel const& ranks, int tensor, std::source_location where) {
  if (!ranks.tensor)
    throw Error(ErrorKind::invalid_argument, "TrainStep",
                concat("the step is one of ", tensor,
                       " ranks of a tensor axis and is not connected to them. Call connect first"), where);
}

/// Elements of the parameters of a whole model.
inline std::int64_t parameters_of_whole(graph::State const& state, parallel::Splits const& splits) {
  std::int64_t count = 0;
  for (graph::Field const& field : state.fields())
    if (field.parameter) count += parallel::whole_of(field.shape, splits.of(field), splits.ranks()).size();
  return count;
}

/// f(state) writes whole tensors, of which this rank takes its parts where there is a tensor axis. Errors: as above.
inline void fill_parts(graph::State& state, parallel::Splits const& splits, parallel::DataParallel const& ranks,
                       FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (splits.ranks() == 1) return f(state);
  require_connected(ranks, splits.ranks(), where);
  graph::State whole = parallel::whole_fields(state, splits);
  f(whole);
  parallel::take_parts(whole, state, splits, ranks.tensor->rank());
}
/// f(state) sees whole tensors on the ranks of the first model that want them, on others an empty state.
/// Ranks: all. Blocking. Errors: as above.
inline void show_whole(graph::State& state, parallel::Splits const& splits, parallel::DataParallel const& ranks,
                       bool wanted, FunctionRef<void(graph::State&)> f, std::source_location where) {
  if (splits.ranks() == 1) return f(state);
  require_connected(ranks, splits.ranks(), where);
  graph::State whole;
  if (ranks.port->rank() == 0) whole = parallel::joined(*ranks.tensor, state, splits, wanted, where);
  f(whole);
}
/// Ranks of the tensor axis must have alike what is not divided. Errors: communication. Ranks: all of that axis.
inline void require_equal_parts(graph::State const& state, parallel::Splits const& splits, comm::Port& tensor,
                                std::string const& when, std::source_location where) {
  parallel::require_equal_hashes(tensor, parallel::hash(state, [&](graph::Field const& field) {
                                   return !parallel::is_own(field) && !splits.of(field).divided();
                                 }), when, where);
}

}  // namespace tutti::train
