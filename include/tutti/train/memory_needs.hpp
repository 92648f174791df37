// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory that a run needs whatever its plan, checked against what there is.

#include <tutti/exec/memory_limit.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/setup_values.hpp>

#include <cstdint>
#include <string>

namespace tutti::train {

namespace detail {

/// What the plan of a rank needs, at the moment of asking, beside what the ranks of its node may have together.
/// Errors: configuration.
inline void require_memory(Options const& o, int ranks_on_node, bool one_state, double state, double work,
                           std::int64_t available) {
  double const all = state * (one_state ? 1 : ranks_on_node) + work * ranks_on_node;
  if (available <= 0 || all <= static_cast<double>(available)) return;
  std::string const parts = human_bytes(state) + " parameters and moments" + (one_state ? " together, " : ", ") +
                            human_bytes(work) + " activations and gradients" + (one_state ? " each" : "");
  refuse("the model and --batch " + std::to_string(o.batch) + " x --sequence " + std::to_string(o.sequence) +
         " need at least " + (one_state ? "" : human_bytes(state + work) + " a rank (" + parts + "), ") +
         human_bytes(all) + " on this machine" + (one_state ? " (the ranks " + parts + ")" : "") + ", which has " +
         human_bytes(static_cast<double>(available)) + ". Choose a smaller model or batch, or fewer ranks");
}

}  // namespace detail

/// Bytes that the optimizer needs at least for a parameter, with the parameter itself.
inline double state_bytes_of_parameter(Options const& o) noexcept {
  if (o.optimizer == OptimizerName::adamw) return 12;
  return o.optimizer == OptimizerName::sgd && o.momentum == 0 ? 4 : 8;
}
/// Refuses what memory cannot hold before any of it is asked for: the parameters, their moments and gradients, and the
/// hidden state of one micro-step are needed whatever the plan. Errors: configuration.
inline void require_memory(Setup const& s, int ranks_on_node, bool one_state,
                           std::int64_t available = exec::available_memory()) {
  double const hidden = detail::real(s.rows) * detail::real(s.options.sequence) * detail::real(s.model.channels);
  double const own = s.options.zero_stage() > 1 ? s.mesh.data : 1;                       // parts, of gradients as well
  double const parameters = s.model.parameters / s.mesh.tensor / s.mesh.pipeline / own;  // of a rank at least
  bool const offloads = !s.options.offload_optimizer.empty();
  double const moments =
      offloads ? 0 : (state_bytes_of_parameter(s.options) - 4) / (s.options.zero_stage() == 1 ? s.mesh.data : 1);
  detail::require_memory(s.options, ranks_on_node, one_state, (4 + moments) * parameters,
                         4 * (parameters + hidden) + s.bytes_of_tokens(), available);
}

}  // namespace tutti::train
