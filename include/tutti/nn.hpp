// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameter structs and models.

#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/gpt2_weights.hpp>
