// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/graph/packed.hpp>

#include <tutti/graph/amp.hpp>
#include <tutti/graph/executor.hpp>

#include "small_gpt.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

using namespace tutti;
using namespace tutti::graph;
using namespace tutti::test;

namespace {

SmallSizes const sizes{.layers = 2, .batch = 2, .tokens = 9};

/// Loss and all gradients of a run, as bytes.
std::vector<std::byte> results_of(Executor& run) {
  std::vector<std::byte> all;
  for (Entry const& output : run.program().list.outputs) {
    auto const bytes = std::as_bytes(run.output<float>(output.name).elements());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}
void set_tokens(Executor& run) {
  std::vector<std::int32_t> tokens(18), targets(18);
  for (std::int32_t i = 0; i < 18; ++i) {
    tokens[static_cast<std::size_t>(i)] = (i * 5 + 3) % 19;
    targets[static_cast<std::size_t>(i)] = (i * 7 + 1) % 19;
  }
  Shape const shape{2, 9};
  run.set("tokens", TensorView<std::int32_t const>(tokens.data(), shape));
  run.set("targets", TensorView<std::int32_t const>(targets.data(), shape));
}

}  // namespace

TEST_CASE("kept operands give the bits of unkept ones, are read until they expire, and are packed anew after it") {
  for (DType compute : {DType::float32, DType::bfloat16})
    for (exec::Isa isa : exec::all_isas) {
      if (!exec::available(isa)) continue;
      CAPTURE(name(compute), exec::name(isa));
      exec::Context context({.threads = 2, .ranks_on_node = 1, .isa = isa});
      Program const program = compile(amp(small_graph(sizes, SmallPass::gradients), compute));
      State state(amp(small_graph(sizes, SmallPass::gradients), compute));
      state.initialise(5);
      PackedOperands packed;
      ExecutorOptions options;
      options.packed = &packed;
      Executor plain(context, program, state), keeping(context, program, state, options);
      // As many products as have a weight on the right: four of a layer forward, four for the gradient of its input.
      CHECK(kept_bytes(program.list) == 2 * 2 * 12 * 12 * 12 * static_cast<std::int64_t>(size_of(compute)));
      for (Executor* run : {&plain, &keeping}) {
        set_tokens(*run);
        run->run();
      }
      auto const before = results_of(plain);
      CHECK(packed.bytes() >= kept_bytes(program.list));
      CHECK((results_of(keeping) == before));

      Field& weight = state.at("blocks.qkv.weight");
      auto* const values = static_cast<float*>(weight.data());
      for (std::int64_t i = 0; i < weight.shape.size(); ++i) values[i] *= 1.5f;
      plain.run();
      auto const after = results_of(plain);
      REQUIRE((after != before));
      keeping.run();
      CHECK((results_of(keeping) == before));  // nobody said that it was written
      packed.expire();
      keeping.run();
      CHECK((results_of(keeping) == after));
    }
}

TEST_CASE("operands that a run writes, or that are no field, are not kept") {
  Program const whole = compile(small_graph(sizes, SmallPass::whole));
  int kept = 0, products = 0;
  for (Step const& step : whole.list.steps) {
    products += step.kind == StepKind::gemm;
    kept += reads_kept_operand(whole.list, step);
  }
  CHECK(kept == 2 * 8);         // of a layer: outputs, and gradients of inputs
  CHECK(products == 2 * 12);    // and those of weights, whose right operands are activations
}
