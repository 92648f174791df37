// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Optimizers, schedules, clipping.

#include <tutti/optim/optimizer.hpp>
#include <tutti/optim/adamw.hpp>
#include <tutti/optim/gradient_compressor.hpp>
#include <tutti/optim/parameter_groups.hpp>
#include <tutti/optim/trained_parameters.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/optim/muon.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/optim/sgd.hpp>
