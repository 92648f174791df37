// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The planner: what a layout of a training step needs and takes, before it runs.

#include <tutti/plan/cluster.hpp>
#include <tutti/plan/layout.hpp>
#include <tutti/plan/collective_cost.hpp>
#include <tutti/plan/measure_link.hpp>
#include <tutti/plan/machine.hpp>
#include <tutti/plan/simulation.hpp>
#include <tutti/plan/pipeline.hpp>
#include <tutti/plan/programs.hpp>
#include <tutti/plan/step_times.hpp>
#include <tutti/plan/step_simulation.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/plan/measure.hpp>
#include <tutti/plan/table.hpp>
#include <tutti/plan/timeline.hpp>
#include <tutti/plan/dry_run.hpp>
#include <tutti/plan/search.hpp>
