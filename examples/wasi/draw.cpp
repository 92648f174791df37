// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A guest that draws tokens itself: the host computes logits, and the sampler and the loop of tutti/infer run in
// WebAssembly, as they do natively.
//
//   draw MODEL COUNT SEED TOKEN...    ids of a prompt; prints COUNT more, a line
#include "infer/exceptions.hpp"

#include "host_model.hpp"

#include <tutti/infer/generate.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

int main(int argc, char** argv) {
  static char const* const program = "draw";
  if (argc < 5) {
    std::fputs("usage: draw MODEL COUNT SEED TOKEN...\n", stderr);
    return 2;
  }
  wasi_nn_graph graph = 0;
  wasi_nn_context context = 0;
  if (uint32_t const code = wasi_nn_load_by_name(argv[1], static_cast<uint32_t>(strlen(argv[1])), &graph))
    return guest_failed(program, "the model", code, nullptr);
  if (uint32_t const code = wasi_nn_init_execution_context(graph, &context))
    return guest_failed(program, "a context", code, nullptr);
  try {
    HostModel model(context);
    tutti::infer::SamplerOptions options = tutti::infer::usual_sampling();
    options.seed = std::strtoull(argv[3], nullptr, 10);
    tutti::infer::Sampler sampler(options);
    std::vector<std::int32_t> prompt;
    for (int i = 4; i < argc; ++i) prompt.push_back(static_cast<std::int32_t>(std::strtol(argv[i], nullptr, 10)));
    tutti::infer::generate(model, sampler, prompt, std::strtoll(argv[2], nullptr, 10), -1, [](std::int32_t token) {
      std::printf("%d ", static_cast<int>(token));
      std::fflush(stdout);
    });
    std::puts("");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}
