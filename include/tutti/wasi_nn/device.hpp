// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where models run: what the machine has, what was asked for, and what was chosen.

#include <tutti/core/concat.hpp>
#include <tutti/exec/processors.hpp>
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

/// What was found and chosen, in words. Models run on processors in this library.
/// Errors: Failure, unsupported_operation, where a GPU is asked for.
inline std::string choose_device(Device wanted, int processors, std::vector<std::string> const& gpus) {
  std::string const found = "found " + found_text(processors, gpus);
  if (wanted == Device::gpu)
    throw Failure(Code::unsupported_operation, concat("a GPU is asked for; ", found, ", and ",
                                                      gpus.empty() ? "none can be had" : "this library cannot use it",
                                                      ". Load for target CPU or AUTO"));
  return concat(found, "; chosen: processors",
                wanted == Device::automatic && !gpus.empty() ? ", since this library uses no GPU" : "");
}
inline std::string choose_device(Device wanted) {
  return choose_device(wanted, exec::available_processors(), found_gpus());
}

}  // namespace tutti::wasi_nn
