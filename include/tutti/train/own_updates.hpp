// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which updates a loss may make itself, beside those of the optimizer.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/differs.hpp>

#include <source_location>
#include <string>

namespace tutti::train {

/// Of what the loss updates itself, ranks may only differ in what it says. Each rank keeps these fields for itself.
/// Errors: unavailable, communication, naming the line.
inline void require_sound_updates(graph::Graph const& model, std::source_location where) {
  for (graph::Id id = 0; id < model.size(); ++id)
    if (model[id].custom != nullptr && model[id].custom->updates != 0)
      throw Error(
          ErrorKind::unavailable, "TrainStep",
          concat("operation '", model[id].custom->name, "' (", model.file(id), ":", std::to_string(model[id].line),
                 ") changes a state in place, which several ranks, an "
                 "evaluation and the backward pass would do again. Return the new value and `update` the "
                 "state with it"),
          where);
  List<bool> const differs = graph::differing(model);
  for (graph::Update const& update : model.updates) {
    bool const own = graph::state_update(model, update.target) == graph::StateUpdate::per_rank;
    if (own || !differs[static_cast<std::size_t>(update.value)]) continue;
    throw Error(ErrorKind::communication, "TrainStep",
                concat("'", model.name(update.target), "' is updated with a value of the batch (",
                       model.file(update.value), ":", std::to_string(model[update.value].line),
                       "), of which every rank has its own part, and must be the same on all ranks. Make the state "
                       "with StateUpdate::averaged or StateUpdate::per_rank, or all_reduce the value"),
                where);
  }
}

}  // namespace tutti::train
