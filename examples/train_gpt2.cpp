// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a GPT-2 on token shards.
//   mpiexec -n 2 train_gpt2 --data build/data/jargon --out runs/jargon
//   train_gpt2 --backend threads --ranks 2 --data ...
// Backends differ in the type of communicator that the function gets, and in nothing else.

#include <tutti/backend/any.hpp>
#include <tutti/train/loop.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  tutti::train::Options options;
  try {
    auto const parsed = tutti::train::parse(argc, argv);
    if (parsed.leave) {
      std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
      return parsed.code;
    }
    options = parsed.options;
    options.backend = tutti::choose_backend(options.backend);
  } catch (tutti::Error const& error) {
    std::fprintf(stderr, "train_gpt2: %s\n", error.message().c_str());
    return 2;
  }
  return tutti::with_backend(options.backend, argc, argv,
                             [&](auto& communicator) { tutti::train::Run(communicator, options)(); });
}
