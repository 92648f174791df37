// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints a graph that graph::write wrote: its operations, the memory and steps of its plan, or its StableHLO.

#include <tutti/graph.hpp>
#include <tutti/graph/file.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/graph/stablehlo/export.hpp>
#include <tutti/io/file.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/flags.hpp>

#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

using namespace tutti;

int main(int argc, char** argv) {
  std::string file;
  bool stablehlo = false, steps = false;
  CLI::App app{"Prints a graph: its name, sizes and operations.", "graph"};
  app.add_option("FILE", file, "what graph::write wrote")->required();
  auto* const text = app.add_flag("--stablehlo", stablehlo, "the module that IREE and XLA compile");
  app.add_flag("--steps", steps, "the steps that run on this processor, and their memory")->excludes(text);
  if (auto const code = train::parse_flags(app, argc, argv)) return *code;
  try {
    std::string const bytes = io::read_file(file);
    graph::Graph const graph = graph::read(std::as_bytes(std::span(bytes)));
    if (stablehlo) {
      std::fputs(graph::to_stablehlo(graph).text.c_str(), stdout);
    } else {
      std::int64_t parameters = 0, states = 0;
      for (graph::Parameter const& parameter : graph.parameters) parameters += graph.shape(parameter.node).size();
      for (graph::Id const state : graph.states) states += graph.shape(state).size();
      std::printf("graph %016" PRIx64 ": %d nodes, %s parameters, %s numbers of state, %zu inputs, %zu outputs\n\n",
                  graph::program_hash(graph), graph.size(), train::with_commas(parameters).c_str(),
                  train::with_commas(states).c_str(), graph.inputs.size(), graph.outputs.size());
      std::fputs((steps ? to_string(graph::compile(graph)) : to_string(graph)).c_str(), stdout);
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error(ErrorKind::io, "graph", "the text could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "graph: %s: %s\n", file.c_str(), error.what());
    return 1;
  }
}
