// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Umbrella of the backend whose ranks are threads: `tutti::Threads`, `tutti::threads::run`, `launch<Threads>`.

#include <tutti/backend/threads/backend.hpp>
#include <tutti/backend/threads/group.hpp>
#include <tutti/backend/threads/run.hpp>
