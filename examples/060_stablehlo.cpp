// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step as a StableHLO module: text that IREE and XLA compile for machines which tutti does not know.
//   060_stablehlo step      writes step.mlir, step.json and step.values, which docs/guides/stablehlo.md runs, and
//                           step.graph, which ./tutti graph prints

#include <tutti/graph.hpp>
#include <tutti/graph/file.hpp>
#include <tutti/graph/stablehlo/export.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;
using graph::Var;

constexpr nn::Gpt2Config config{
    .layers = 2, .heads = 4, .channels = 64, .vocabulary = 256, .padded_vocabulary = 256, .max_tokens = 64};

graph::Graph training_step() {
  return graph::trace(nn::make_parameters(config), [](graph::Builder& builder, nn::Gpt2 const& model) {
    Var const tokens = builder.input("tokens", DType::int32, {8, 64});
    Var const targets = builder.input("targets", DType::int32, {8, 64});
    optim::minimise(nn::Gpt2Loss{}(model, tokens, targets), optim::Pass::whole, {.weight_decay = 0.1}, {.clip = 1.0});
  });
}

int main(int count, char** arguments) {
  graph::Graph const step = training_step();
  graph::StablehloModule const module = graph::to_stablehlo(step, {.module = "gpt2"});
  for (auto const* ports : {&module.arguments, &module.results}) {
    std::printf("%s\n", ports == &module.arguments ? "arguments" : "results");
    for (graph::StablehloPort const& port : *ports)
      if (port.role != graph::StablehloRole::state && !port.name.starts_with("blocks.") && port.argument < 1)
        std::printf("  %-9s %s %s\n", name(port.role).data(), port.name.c_str(), to_string(port.shape).c_str());
  }
  if (count < 2) return 0;

  std::string const path = arguments[1];
  std::ofstream(path + ".mlir") << module.text;
  std::ofstream(path + ".json") << graph::to_json(module);
  std::vector<std::byte> const bytes = graph::write(step);
  std::ofstream(path + ".graph", std::ios::binary)
      .write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  graph::State state(step);
  state.initialise(42);
  std::ofstream values(path + ".values", std::ios::binary);  // of parameters and states, as arguments are ordered
  for (graph::StablehloPort const& port : module.arguments)
    if (port.role == graph::StablehloRole::parameter || port.role == graph::StablehloRole::state) {
      graph::Field const& field = state.at(port.name);
      values.write(reinterpret_cast<char const*>(field.data()), field.bytes());
    }
  return values ? 0 : 1;
}
