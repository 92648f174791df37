// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a graph to its program; see program.hpp.

#include <tutti/graph/program.hpp>

#if TUTTI_BODIES

#include <tutti/graph/buckets.hpp>
#include <tutti/graph/divide.hpp>
#include <tutti/graph/early_gathers.hpp>
#include <tutti/graph/fit_cuda.hpp>
#include <tutti/graph/fuse.hpp>
#include <tutti/graph/late_scatters.hpp>
#include <tutti/graph/lower.hpp>
#include <tutti/graph/narrow.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/share.hpp>

namespace tutti::graph {

TUTTI_INLINE Program compile(Graph const& graph, CompileOptions const& options) {
  Program program;
  program.target = options.target;
  program.list = lowering::Lowering{}.run(graph);
  lowering::eliminate_dead_steps(program.list);
  if (options.fuse) {
    lowering::EpilogueFusion(program.list).run();
    lowering::ChainFusion(program.list).run();
  }
  if (options.target == Target::cuda) {
    if (options.fuse) lowering::BiasGradients(program.list).run();
    if (options.narrow) lowering::Narrowing(program.list).run();
    lowering::fit_workspaces(program.list);
  }
  lowering::make_buckets(program.list, options.bucket_bytes, options.division.ranks);
  lowering::sink_state_updates(program.list);
  if (options.share) {
    lowering::CopyElision(program.list).run();
    lowering::share_in_place(program.list);
  }
  lowering::UpdateDivision(program.list, options.division).run();
  if (options.target != Target::iree) {
    lowering::wait_late_for_scatters(program.list);
    lowering::start_gathers_early(program.list);
  }
  program.plan = plan_memory(program.list);
  validate(program.list, program.plan);
  return program;
}

}  // namespace tutti::graph

#endif
