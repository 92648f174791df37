// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training runs on a CUDA device: each rank takes the device of its number on its node.

#include <tutti/exec/cuda/device.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/blas_choices.hpp>
#include <tutti/kernel/cuda/peak.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/machine.hpp>

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace tutti::train {

template <>
class Machine<Cuda> {
 public:
  /// Errors: unavailable, where the node has no device.
  Machine(Options const& options, NodePlace const& place)
      : ranks_(place.ranks),
        host_({.threads = options.threads, .ranks_on_node = place.ranks}),
        choice_(device_of(place.rank, place.ranks, tutti::cuda::device_count())),
        context_(choice_.device),
        blas_(context_, {.autotune = options.autotune}),
        keeps_choices_(options.autotune) {
    tutti::cuda::check(cudaGetDeviceProperties(&properties_, choice_.device), "cudaGetDeviceProperties");
  }

  exec::Context& host() noexcept { return host_; }
  kernel::cuda::Blas& context() noexcept { return blas_; }
  double measure_peak_flops(DType compute) {
    return kernel::cuda::measure_peak_flops(blas_, kernel::product_in(compute)) / choice_.sharers;
  }
  std::string describe() const { return fmt::format("cuda, {}, {}", to_string(choice_), properties_.name); }
  std::string describe_products(DType compute) const {
    return compute == DType::float32 ? "fp32"
                                     : "bfloat16, summed in fp32, and what they read is stored in it; residual stream, "
                                       "master weights, norms, "
                                       "softmax, loss and updates in fp32";
  }
  /// See product_choices.hpp; nothing where they are the library's own.
  std::string product_choices() const { return keeps_choices_ ? kernel::cuda::choices_to_text(blas_) : std::string(); }
  bool take_product_choices(std::string const& text) {
    bool const taken = kernel::cuda::choices_from_text(blas_, text);
    keeps_choices_ = keeps_choices_ || taken;
    return taken;
  }
  /// Of the devices, for all ranks of the node.
  std::int64_t available_memory() const {
    return tutti::cuda::free_memory(choice_.device) / choice_.sharers * ranks_;
  }
  graph::Roofline measure_roofline(DType compute) {
    return {.float32 = kernel::cuda::measure_peak_flops(blas_, kernel::Product::float32),
            .bfloat16 = compute == DType::bfloat16
                            ? kernel::cuda::measure_peak_flops(blas_, kernel::Product::bfloat16)
                            : 0,
            .bytes = kernel::cuda::measure_copy_bandwidth(context_)};
  }

 private:
  int ranks_;
  exec::Context host_;
  DeviceChoice choice_;
  kernel::cuda::Context context_;
  kernel::cuda::Blas blas_;
  bool keeps_choices_;
  cudaDeviceProp properties_{};
};

}  // namespace tutti::train
