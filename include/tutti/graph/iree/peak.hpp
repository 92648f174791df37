// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How fast IREE multiplies matrices on its device.

#include <tutti/exec/wait.hpp>
#include <tutti/graph/amp.hpp>
#include <tutti/graph/builder.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/iree/executor.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::graph::iree {

/// Operations a second, multiplications and additions, in the best of three runs of a chain of products of square
/// matrices, by a runner that has been opened. Blocking. Errors: those of `compile` and of Executor.
inline double measure_peak_flops(Runner& runner, DType compute, std::int64_t size = 1024) {
  constexpr std::int64_t products = 8;
  Builder builder;
  Var const x = builder.input("x", DType::float32, {size, size});
  Var y = x;
  for (std::int64_t i = 0; i < products; ++i) y = linear(y, x);
  builder.output("sum", reduce_sum(y, {0, 1}));
  State state;
  DeviceState device(runner, state);
  Program const program = compile(runner, amp(builder.graph(), compute));
  Executor run(program, device);
  run.set("x", Tensor<float>(Shape{size, size}).view());
  run.run();  // what is done once is not counted
  std::int64_t best = 0;
  for (int i = 0; i < 3; ++i) {
    std::int64_t const begin = exec::now_ns();
    run.run();
    std::int64_t const took = std::max<std::int64_t>(exec::now_ns() - begin, 1);
    best = i == 0 ? took : std::min(best, took);
  }
  double const n = static_cast<double>(size);
  return 2.0 * static_cast<double>(products) * n * n * n / (static_cast<double>(best) * 1e-9);
}

}  // namespace tutti::graph::iree
