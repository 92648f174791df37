// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// All laws of a communicator, to hold a backend to them, the library's own or somebody else's. It is for tests, which
/// choose it themselves, and belongs to no umbrella.

#include <tutti/testing/laws/contributions.hpp>
#include <tutti/testing/laws/elements.hpp>
#include <tutti/testing/laws/everyday.hpp>
#include <tutti/testing/laws/forms.hpp>
#include <tutti/testing/laws/groups.hpp>
#include <tutti/testing/laws/messages.hpp>
#include <tutti/testing/laws/movement.hpp>
#include <tutti/testing/laws/plans.hpp>
#include <tutti/testing/laws/ports.hpp>
#include <tutti/testing/laws/reductions.hpp>
#include <tutti/testing/laws/refusals.hpp>
#include <tutti/testing/laws/report.hpp>
#include <tutti/testing/laws/scans.hpp>
#include <tutti/testing/laws/vectors.hpp>

#include <cstdint>

namespace tutti::laws {

/// Every law, with a type of each kind, for backends of one's own. On 1 to 4 ranks: there the oracles are exact.
/// Ranks      all, on a communicator that does nothing else
/// Errors     what the communicator throws; a broken law is noted in the report
template <class Comm>
void conform(Comm& comm, Report& report) {
  movement<bool>(comm, report);
  movement<double>(comm, report);
  reductions<bool>(comm, report);
  reductions<std::int32_t>(comm, report);
  reductions<float>(comm, report);
  reduction<bfloat16>(comm, report, avg);
  callables(comm, report);
  narrow_sums(comm, report);
  determinism(comm, report);
  forms(comm, report);
  in_flight(comm, report);
  barriers(comm, report);
  messages<float>(comm, report);
  matching(comm, report);
  groups(comm, report);
  ports(comm, report);
  refusals(comm, report);
  scans<std::int32_t>(comm, report);
  scan_forms(comm, report);
  ragged_movement<float>(comm, report);
  ragged_exchange<float>(comm, report);
  ragged_reductions(comm, report);
  ragged_in_flight(comm, report);
  ragged_refusals(comm, report);
  plans(comm, report);
  plan_misuse(comm, report);
  message_groups(comm, report);
  probes(comm, report);
  meshes(comm, report);
  structs(comm, report);
  struct_reductions(comm, report);
  complex_numbers<float>(comm, report);
  locations<float>(comm, report);
  narrow_reductions(comm, report);
  contributions<float>(comm, report);
  contributions_on_any_ranks(comm, report);
  contribution_forms(comm, report);
}

}  // namespace tutti::laws
