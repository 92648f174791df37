// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layers of a model elsewhere than on the processors: what a decoder asks of a device. tutti/infer/cuda/layers.hpp has
/// one.

#include <tutti/nn/decoding.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::infer {

/// The last layers of a model with their caches, on a device. One call at a time; calls block until results are there.
class DeviceLayers {
 public:
  virtual ~DeviceLayers() = default;

  /// The first layer that is here; all behind it are, and the final norm.
  virtual std::int64_t first() const noexcept = 0;
  virtual bool has_head() const noexcept = 0;
  /// hidden (rows, channels), before the first layer here, becomes that behind the last, after the final norm; keys and
  /// values of rows go to the caches, as kernel::CachedAttention says. `rows` is among those of programs that are made
  /// when they are first asked for.
  virtual void append(std::int64_t rows, std::int32_t const* slot, std::int32_t const* position, float* hidden) = 0;
  /// Logits (rows, rows of the head) of hidden (rows, channels), valid until the next call; only with the head.
  virtual std::span<float const> logits(std::int64_t rows, float const* hidden) = 0;
  /// A copy in memory of the host of what a cache, "cache.LAYER.keys" or ".values", holds for a slot.
  virtual std::byte* cache(std::string_view name, std::int64_t slot) = 0;
  /// Takes over what was written to such copies of a slot.
  virtual void cache_written(std::int64_t slot) = 0;
};

/// How many layers a device gets: as llama.cpp counts them, the last `count`, and with more than the model has its head
/// too. The embedding stays on the processors.
struct DeviceShare {
  static constexpr std::int64_t as_many_as_fit = -1;
  std::int64_t count = 0;  ///< or as_many_as_fit: as its free memory holds, with caches and working memory
};

class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  /// "CUDA device 0", for people.
  virtual std::string describe() const = 0;
  /// Null where the share comes to nothing. `batch`: rows of a call at most. Borrows the model.
  /// Errors    out_of_memory; invalid_argument: sizes that the device's kernels do not take
  virtual std::unique_ptr<DeviceLayers> load(nn::StoredModel const& model, nn::CacheSizes const& sizes,
                                             std::int64_t batch, DeviceShare share) = 0;
};

}  // namespace tutti::infer
