// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Optimizers, schedules, clipping.

#include <tutti/optim/adamw.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/optim/sgd.hpp>
