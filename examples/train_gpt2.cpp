// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a GPT-2 on token shards.
//   mpiexec -n 2 train_gpt2 --data build/data/jargon --out runs/jargon
//   train_gpt2 --backend threads --ranks 2 --data ...
// Mpi and Threads differ in the type that `launch` gets, and in nothing else.

#include <tutti/backend/threads.hpp>
#if TUTTI_EXAMPLES_MPI
#include <tutti/backend/mpi.hpp>
#endif
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
  } catch (tutti::Error const& error) {
    std::fprintf(stderr, "train_gpt2: %s\n", error.message().c_str());
    return 2;
  }

  auto const train = [&](auto& communicator) { tutti::train::Run(communicator, options)(); };
  if (options.backend == "threads") return tutti::launch<tutti::Threads>(argc, argv, train);
#if TUTTI_EXAMPLES_MPI
  return tutti::launch<tutti::Mpi>(argc, argv, train);
#else
  std::fputs("train_gpt2: built without MPI. Use --backend threads, or install MPICH (libmpich-dev) and build again\n",
             stderr);
  return 2;
#endif
}
