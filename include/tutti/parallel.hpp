// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training on many ranks.

#include <tutti/parallel/compression_choice.hpp>
#include <tutti/parallel/outer_gradient.hpp>
#include <tutti/parallel/gradient_codes.hpp>
#include <tutti/parallel/compression.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_average.hpp>
#include <tutti/parallel/outer_optimizer.hpp>
#include <tutti/parallel/diloco.hpp>
#include <tutti/parallel/shard_vocabulary.hpp>
#include <tutti/parallel/split.hpp>
#include <tutti/parallel/shard_values.hpp>
#include <tutti/parallel/gather_parameters.hpp>
#include <tutti/parallel/node_copier.hpp>
#include <tutti/parallel/gradient_split.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/parallel/pipeline_task.hpp>
#include <tutti/parallel/schedules/gpipe.hpp>
#include <tutti/parallel/schedules/interleaved.hpp>
#include <tutti/parallel/schedules/one_forward_one_backward.hpp>
#include <tutti/parallel/schedules/zero_bubble.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>
#include <tutti/parallel/pipeline_cut.hpp>
#include <tutti/parallel/pipeline_programs.hpp>
#include <tutti/parallel/pipeline.hpp>
#include <tutti/parallel/rank_parts.hpp>
#include <tutti/parallel/sections.hpp>
#include <tutti/parallel/shard_tokens.hpp>
#include <tutti/parallel/shard_operations.hpp>
#include <tutti/parallel/shard.hpp>
#include <tutti/parallel/stage_balance.hpp>
#include <tutti/parallel/stage_evaluation.hpp>
