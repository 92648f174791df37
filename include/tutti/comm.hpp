// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The light part: tensors and collectives, no kernels. Add the header of a backend.

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
#include <tutti/tensor/device.hpp>
#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/tensor/view.hpp>
