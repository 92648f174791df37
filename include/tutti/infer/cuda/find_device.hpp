// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The device for layers of models that a program is built with: a CUDA device where TUTTI_WITH_CUDA is 1.

#include <tutti/config.hpp>
#include <tutti/infer/layer_device.hpp>
#if TUTTI_WITH_CUDA
#include <tutti/infer/cuda/layers.hpp>
#endif

#include <memory>
#include <string>

namespace tutti::infer {

/// Null where there is none; `missing` says then what is missing, as part of a sentence. Errors: of the device.
inline std::unique_ptr<LayerDevice> find_layer_device(std::string& missing) {
#if TUTTI_WITH_CUDA
  if (tutti::cuda::device_count() > 0) return std::make_unique<cuda::CudaLayers>();
  missing = "this machine has no CUDA device that the process may use. Look at nvidia-smi and CUDA_VISIBLE_DEVICES";
#else
  missing =
      "this program was built without CUDA. Use the one with _cuda behind its name, which the build makes where nvcc "
      "is installed";
#endif
  return nullptr;
}

}  // namespace tutti::infer
