// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What one step enqueues on a device, and the forms of it: with cuBLASLt, of a context alone, by the type of a value.
/// The twin of tutti/graph/call.hpp.

#include <tutti/core/dtype.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/graph/operands.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/context.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::cuda {

using kernel::cuda::Blas;
using kernel::cuda::Context;

/// What one step enqueues at every run.
using Call = CallOn<Blas>;

namespace detail {

template <class F>
Owner<Call> call(F f) {
  return call_on<Blas>(std::move(f));
}
/// f(context) for kernels that need no cuBLASLt.
template <class F>
Owner<Call> launch(F f) {
  return call([f = std::move(f)](Blas& blas) { f(blas.context()); });
}

/// f(float) or f(bfloat16), by the type of a value that kernels have in both.
template <class F>
Owner<Call> with_float(DType dtype, F&& f) {
  return dtype == DType::bfloat16 ? f(bfloat16{}) : f(float{});
}

/// Copies what a step accumulates onto to its result, unless the planner made them one.
inline void start_from(Context& context, std::int64_t bytes, std::byte const* from, std::byte* to) {
  if (from == to || from == nullptr || to == nullptr) return;
  tutti::cuda::copy_on_device(context.stream(), to, from, static_cast<std::size_t>(bytes));
}

}  // namespace detail

}  // namespace tutti::graph::cuda
