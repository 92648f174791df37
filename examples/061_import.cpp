// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loss that was written in JAX, differentiated and minimised here. The text is what
//   jax.jit(lambda w, x, y: jnp.mean((jnp.tanh(x @ w) - y) ** 2)).lower(...).as_text()
// prints; a whole model from a file is trained by ./tutti train --model FILE.mlir.

#include <tutti/graph.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/stablehlo/import.hpp>
#include <tutti/optim.hpp>

#include <cstdio>
#include <string_view>

using namespace tutti;
using graph::Var;

constexpr std::string_view exported = R"(
module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<3x2xf32>, %arg2: tensor<3xf32>) -> (tensor<f32>
      {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] :
        (tensor<3x2xf32>, tensor<2xf32>) -> tensor<3xf32>
    %1 = stablehlo.tanh %0 : tensor<3xf32>
    %2 = stablehlo.subtract %1, %arg2 : tensor<3xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>)
        -> tensor<f32>
    %cst_0 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %5 = stablehlo.divide %4, %cst_0 : tensor<f32>
    return %5 : tensor<f32>
  }
}
)";

int main() {
  graph::StablehloProgram const program(exported, {.file = "loss.mlir"});
  graph::Builder builder;
  Var const w = builder.parameter("w", {2}, graph::zeros());
  Var const x = builder.input("x", DType::float32, {3, 2}), y = builder.input("y", DType::float32, {3});
  Var const loss = program(builder, {w, x, y})[0];
  optim::minimise(loss, optim::Pass::whole, optim::Sgd{}, {});

  graph::Interpreter run(builder.graph());
  run.set("x", {1, 0, 0, 1, 1, 1});
  run.set("y", {0.5, -0.5, 0});
  run.set("learning_rate", {1});
  for (int step = 0; step < 3; ++step) {
    run.run();
    std::printf("step %d: loss %.6f, w %.4f %.4f\n", step, run.output("loss")[0], run.get("w")[0], run.get("w")[1]);
  }
}
