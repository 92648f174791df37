// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameter structs and models.

#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/layers.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/nn/gpt2_state.hpp>
