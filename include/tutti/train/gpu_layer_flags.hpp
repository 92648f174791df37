// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The flag of programs that run layers of a model on a GPU, and what it asks for.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/train/flags.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tutti::train {

struct GpuLayerFlags {
  std::string layers = "0";  ///< a number, or "auto"

  bool on() const noexcept { return layers != "0"; }
  bool automatic() const noexcept { return layers == "auto"; }
};

inline void add_gpu_layer_flags(CLI::App& app, GpuLayerFlags& flags, std::string const& prefix = "") {
  add_number_or_auto<std::uint16_t>(
      app, "--gpu-layers", flags.layers,
      prefix +
          "run the model's last N layers on a GPU, and with more than it has its head too; auto: as many as the GPU's "
          "free memory holds; 0: all on the processors");
}

/// The device that the flag asks for. Outlives decoders that it was given to.
class FlaggedGpu {
 public:
  /// `find(missing)`: infer::find_layer_device.
  /// Errors    configuration: a number of layers, and no device
  FlaggedGpu(GpuLayerFlags const& flags, char const* program,
             std::function<std::unique_ptr<infer::LayerDevice>(std::string&)> const& find) {
    if (!flags.on()) return;
    automatic_ = flags.automatic();
    device_ = find(missing_);
    if (!device_ && !automatic_)
      throw Error(ErrorKind::configuration, program,
                  concat("--gpu-layers ", flags.layers, ": ", missing_,
                         ", or leave the flag out to run on the processors"));
    share_.count = automatic_ ? infer::DeviceShare::as_many_as_fit : std::stoll(flags.layers);
  }

  void give(infer::DecoderOptions& options) const noexcept {
    options.device = device_.get();
    options.device_share = share_;
  }
  /// What became of it, as a line: "22 of 22 layers and the head on CUDA device 0", or nothing where nothing was asked.
  std::string told(infer::Decoder const& decoder) const {
    if (!device_) return automatic_ ? concat("all layers on the processors: ", missing_) : std::string();
    return concat(decoder.describe_device(), automatic_ ? ", as many as its free memory holds" : "");
  }

 private:
  bool automatic_ = false;
  std::string missing_;
  infer::DeviceShare share_{};
  std::unique_ptr<infer::LayerDevice> device_;
};

}  // namespace tutti::train
