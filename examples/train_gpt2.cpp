// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a GPT-2, or with --architecture llama a LLaMA, on token shards.
//   mpiexec -n 2 train_gpt2 --data build/data/jargon --out runs/jargon
//   train_gpt2 --backend threads --ranks 2 --data ...
// Backends differ in the type of communicator that the function gets, devices in its argument, and in nothing else.
// Compiled by nvcc, as train_gpt2_cuda, it has --device cuda; as train_gpt2_iree it has --device iree:...

#include <tutti/backend/any.hpp>
#if TUTTI_WITH_CUDA
#include <tutti/train/cuda/machine.hpp>
#endif
#if TUTTI_WITH_IREE
#include <tutti/train/iree/machine.hpp>
#endif
#include <tutti/plan/dry_run.hpp>
#include <tutti/train/command_line.hpp>
#include <tutti/train/models.hpp>
#include <tutti/watch/any.hpp>

#include <cstdio>
#include <string>

namespace {

using tutti::train::BackendName, tutti::train::DeviceName;

/// Errors: unavailable, in a sentence.
void require_device(tutti::train::Options const& options) {
  [[maybe_unused]] auto const refuse = [](std::string const& what) {
    throw tutti::Error(tutti::ErrorKind::unavailable, "train_gpt2", what);
  };
  if (options.device == DeviceName::cuda) {
#if TUTTI_WITH_CUDA
    static_cast<void>(tutti::cuda::device_of(0));
#else
    refuse("--device cuda: this program was built without CUDA. Use train_gpt2_cuda, which the build has where nvcc is "
           "installed");
#endif
  }
#if !TUTTI_WITH_IREE
  if (options.device == DeviceName::iree)
    refuse("--device " + options.device.text() +
           ": this program was built without it. Use train_gpt2_iree, which ./tutti train builds for such devices");
#endif
}

int train(auto& communicator, tutti::train::Options const& options) {
  if (options.dry_run) return tutti::plan::dry_run(tutti::plan::place_of(communicator), options);
#if TUTTI_WITH_CUDA
  if (options.device == DeviceName::cuda)
    return tutti::train::train_model<tutti::Cuda>(communicator, options, tutti::watch::viewers());
#endif
#if TUTTI_WITH_IREE
  if (options.device == DeviceName::iree)
    return tutti::train::train_model<tutti::Iree>(communicator, options, tutti::watch::viewers());
#endif
  return tutti::train::train_model(communicator, options, tutti::watch::viewers());
}

}  // namespace

int main(int argc, char** argv) {
  bool const speaks = tutti::comm::announced_rank() <= 0;  // every rank reads the same flags
  // Never destroyed: a signal may come until the process is gone.
  [[maybe_unused]] static auto const* const signals = new tutti::train::StopSignals(speaks);
  tutti::train::Options options;
  if (auto const code = tutti::train::parse_or_leave(argc, argv, options, speaks)) return *code;
  try {
    require_device(options);
    bool const anyone = options.backend == BackendName::automatic;
    options.backend = tutti::setting::Choice<BackendName>(tutti::choose_backend(options.backend.text()));
    if (anyone && options.backend == BackendName::nccl && options.device == DeviceName::cpu)
      options.backend = BackendName::mpi;  // not between GPUs
    if (int const processes = tutti::comm::announced_ranks().ranks;
        options.backend == BackendName::threads && processes > 1)
      throw tutti::Error(tutti::ErrorKind::configuration, "train_gpt2",
                         "--backend threads: the launcher started " + std::to_string(processes) +
                             " processes, each of which would train alone. Use --backend mpi, or start one process "
                             "with --ranks " + std::to_string(processes));
  } catch (tutti::Error const& error) {
    if (speaks) std::fprintf(stderr, "train_gpt2: %s\n", error.message().c_str());
    return 2;
  }
  // The number of ranks may stand in a file, which launch does not read.
  std::string ranks = "--ranks=" + std::to_string(options.ranks);
  char* words[] = {argv[0], ranks.data(), nullptr};
  return tutti::with_backend(options.backend.text(), options.ranks > 0 ? 2 : 1, words,
                             [&](auto& communicator) { return train(communicator, options); });
}
