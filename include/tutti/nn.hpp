// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameter structs and models.

#include <tutti/nn/cached_attention.hpp>
#include <tutti/nn/documents.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/layers.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama_config.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/nn/stored_layers.hpp>
#include <tutti/nn/stored_model.hpp>
#include <tutti/nn/decoding.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/shard_rules.hpp>
#include <tutti/nn/stored_part.hpp>
