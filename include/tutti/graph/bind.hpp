// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step bound to its memory: the call of its kernel with all arguments, made once.

#include <tutti/config.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/call.hpp>
#include <tutti/graph/operands.hpp>
#include <tutti/graph/packed.hpp>

namespace tutti::graph::calls {

/// The call of a step whose memory is known; null for the collectives, which the executor makes itself. `packed`: where
/// this product's right operand is kept; null: nowhere.
TUTTI_INLINE Owner<Call> bind(Operands const& call, PackedOperands* packed = nullptr);

}  // namespace tutti::graph::calls

#if TUTTI_BODIES
#include <tutti/graph/calls.hpp>
#endif
