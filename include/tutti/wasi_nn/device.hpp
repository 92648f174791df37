// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where models run: what the machine has, what was asked for, and what was chosen.

#include <tutti/core/concat.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace tutti::wasi_nn {

/// Names of the GPUs that NVIDIA's driver lists. A folder stands in for the driver's in tests.
inline std::vector<std::string> found_gpus(std::string const& folder = "/proc/driver/nvidia/gpus") {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::ifstream file(at->path() / "information");
    std::string name = "a GPU";
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("Model:"))
        if (auto const first = line.find_first_not_of(" \t", 6); first != std::string::npos) name = line.substr(first);
    names.push_back(std::move(name));
  }
  return names;
}

/// "2 processors and no GPU"
inline std::string found_text(int processors, std::vector<std::string> const& gpus) {
  std::string text = concat(processors, processors == 1 ? " processor" : " processors");
  if (gpus.empty()) return text + " and no GPU";
  for (std::size_t i = 0; i < gpus.size(); ++i) text += (i + 1 == gpus.size() ? " and " : ", ") + gpus[i];
  return text;
}

/// The device that load()'s number means: 0 processor, 1 GPU, 2 TPU, 3 any. Errors: Failure.
inline Device target_device(std::uint32_t target) {
  if (target == 2) throw Failure(Code::unsupported_operation, "TPUs are not supported. Load for target CPU or AUTO");
  if (target > 3) throw Failure(Code::invalid_argument, concat("target ", target, " is unknown. There are 0 to 3"));
  return target == 0 ? Device::cpu : target == 1 ? Device::gpu : Device::automatic;
}

/// Why this library uses no GPU, as part of a sentence; empty where it does.
inline std::string missing_gpu() {
#if TUTTI_WITH_CUDA
  return tutti::cuda::device_count() > 0 ? "" : "CUDA has none for this process";
#else
  return "this library was built without CUDA, and its twin with _cuda behind its name with it";
#endif
}

struct ChosenDevice {
  bool gpu = false;
  std::string found;  ///< in words
  std::string why;    ///< processors were chosen, where somebody may ask

  /// What was found and chosen. `layers`: what the GPU has got, in words.
  std::string on(std::string const& layers) const {
    if (layers.empty())
      return concat(found, "; chosen: processors", gpu ? ", since the GPU has got no layer of the model" : why);
    return concat(found, "; chosen: GPU, ", layers);
  }
};

/// Where a model runs. `layers`: those that the GPU is to have, -1 for as many as fit; `missing`: see missing_gpu.
/// Errors: Failure, where a GPU is asked for: unsupported_operation without one, invalid_argument for no layer.
inline ChosenDevice choose_device(Device wanted, std::int64_t layers, int processors,
                                  std::vector<std::string> const& gpus, std::string const& missing) {
  std::string const found = "found " + found_text(processors, gpus);
  if (wanted == Device::gpu && !missing.empty())
    throw Failure(Code::unsupported_operation,
                  concat("a GPU is asked for; ", found, ", and ", missing, ". Load for target CPU or AUTO"));
  if (wanted == Device::gpu && layers == 0)
    throw Failure(Code::invalid_argument,
                  "a GPU is asked for, and n_gpu_layers is 0. Leave it out for as many layers as fit, or load for CPU");
  bool const gpu = wanted != Device::cpu && layers != 0 && missing.empty();
  std::string why;
  if (!gpu && wanted == Device::automatic && layers == 0) why = ", since n_gpu_layers is 0";
  else if (!gpu && wanted == Device::automatic && !gpus.empty()) why = ", since " + missing;
  return {gpu, found, why};
}
/// Asks CUDA, which starts its driver in the host, only where a GPU may be chosen.
inline ChosenDevice choose_device(Device wanted, std::int64_t layers) {
  return choose_device(wanted, layers, exec::available_processors(), found_gpus(),
                       wanted == Device::cpu || layers == 0 ? std::string() : missing_gpu());
}

}  // namespace tutti::wasi_nn
