// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The training loop and everything around it.

#include <tutti/train/metrics.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/signals.hpp>
