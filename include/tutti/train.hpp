// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The training loop and everything around it.

#include <tutti/train/checkpoint.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/choices.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/state_files.hpp>
#include <tutti/train/execution.hpp>
#include <tutti/train/initialisation.hpp>
#include <tutti/train/own_updates.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/train_step.hpp>
#include <tutti/train/algorithm.hpp>
#include <tutti/train/all_succeed.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/command_line.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/llama_files.hpp>
#include <tutti/train/profiling.hpp>
#include <tutti/train/machine.hpp>
#include <tutti/train/metrics.hpp>
#include <tutti/train/optimizer_choice.hpp>
#include <tutti/train/product_choices.hpp>
#include <tutti/train/sample_text.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/signals.hpp>
#include <tutti/train/start_table.hpp>
#include <tutti/train/validation.hpp>
#include <tutti/train/loop.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/models.hpp>
#include <tutti/train/sampling_flags.hpp>
