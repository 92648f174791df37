// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Graphs on a device, for the tests that other devices have too.
// Covers: <tutti/graph/cuda/calls.hpp> <tutti/graph/cuda/generic_steps.hpp>
// Covers: <tutti/graph/cuda/call.hpp> <tutti/graph/cuda/product_calls.hpp>

#include "graph/cuda/run_graph.hpp"

namespace tutti::test {

kernel::cuda::Blas& cuda_blas() {
  // Little workspace: where the device is emulated, memory is checked whenever it is allocated.
  static kernel::cuda::Blas blas(cuda_context(), {.workspace = std::size_t{1} << 16});
  return blas;
}

Results run_executor(Graph const& graph, RunOptions const& options) {
  CompileOptions compile_options = options.compile;
  compile_options.target = Target::cuda;
  Program const program = compile(graph, compile_options);
  State state(graph);
  graph::cuda::DeviceState device_state(cuda_context().stream(), state);
  graph::cuda::ExecutorOptions settings;
  settings.port = options.port;
  settings.poison = options.poison;
  graph::cuda::Executor executor(cuda_blas(), program, device_state, settings);
  set_state(graph, state, options);
  set_leaves(graph, executor, options);
  for (int i = 0; i < options.runs; ++i) executor.run();
  device_state.to_host();
  return results_of(program, executor, state);
}

/// Launched kernel by kernel and captured, with and without fusing and sharing.
void check_graph(Graph const& graph, double tolerance, std::int64_t limit, int runs) {
  INFO(to_string(graph));
  RunOptions options;
  options.limit = limit;
  options.runs = runs;
  Results const results = run_executor(graph, options);
  check_against_interpreter(graph, results, options, tolerance);
  CHECK((run_executor(graph, options) == results));
  if (graph.updates.empty()) {  // a captured run gives what a launched one gave
    options.runs = runs + 2;
    CHECK((run_executor(graph, options) == results));
    options.runs = runs;
  }
  options.compile.fuse = false;
  check_against_interpreter(graph, run_executor(graph, options), options, tolerance);
  options.compile = {false, false, 1 << 20};
  options.poison = false;
  check_against_interpreter(graph, run_executor(graph, options), options, tolerance);
}

}  // namespace tutti::test
