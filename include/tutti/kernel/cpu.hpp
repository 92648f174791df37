// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Kernels: the contract of every operation and its body for processors.

#include <tutti/kernel/activation.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/box.hpp>
#include <tutti/kernel/rotary.hpp>
#include <tutti/kernel/cached_attention.hpp>
#include <tutti/kernel/cpu/adamw.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/cpu/cached_attention.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/cpu/copy.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/cpu/cross_entropy.hpp>
#include <tutti/kernel/elementwise_functions.hpp>
#include <tutti/kernel/cpu/tile.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/cpu/embedding.hpp>
#include <tutti/kernel/layer_norm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>
#include <tutti/kernel/cpu/peak.hpp>
#include <tutti/kernel/quantize.hpp>
#include <tutti/kernel/cpu/quantize.hpp>
#include <tutti/kernel/cpu/reduce.hpp>
#include <tutti/kernel/rms_norm.hpp>
#include <tutti/kernel/cpu/rms_norm.hpp>
#include <tutti/kernel/swiglu.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>
#include <tutti/kernel/rotary_table.hpp>
