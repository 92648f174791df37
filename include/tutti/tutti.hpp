// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Everything from `core` to `graph`, with the Threads backend and without any vendor's header.

#include <tutti/comm/port.hpp>
#include <tutti/core/bfloat16.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/exec/team.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cpu/box.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/kernel/layer_norm.hpp>
#include <tutti/tensor/device.hpp>
#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/tensor/view.hpp>
