// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Umbrella of the light part: tensors and collectives, without kernels and without a backend. Add
/// `tutti/backend/threads.hpp` or `tutti/backend/mpi.hpp`.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/communicator.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/comm/derived.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/operators.hpp>
#include <tutti/comm/port.hpp>
#include <tutti/comm/request.hpp>
#include <tutti/core/bfloat16.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/convert.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/exec/scratch.hpp>
#include <tutti/exec/team.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/reflect/members.hpp>
#include <tutti/tensor/convert.hpp>
#include <tutti/tensor/copy.hpp>
#include <tutti/tensor/device.hpp>
#include <tutti/tensor/mt19937.hpp>
#include <tutti/tensor/print.hpp>
#include <tutti/tensor/random.hpp>
#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/tensor/view.hpp>
