// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a program with TUTTI_SEPARATE_COMPILATION compiles once: one of its sources includes this header, before any
/// other of tutti.

#ifndef TUTTI_BODIES
#define TUTTI_BODIES 1
#elif !TUTTI_BODIES
#error "tutti: <tutti/source.hpp> must be included before every other header of tutti"
#endif

#include <tutti/graph/bind.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/kernel/cpu/entries.hpp>
