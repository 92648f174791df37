// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The last layers of a model on a CUDA device, for infer::Decoder: the graphs that processors run, compiled for the
/// device and captured, with weights as the file stores them. The hidden state alone crosses between the two.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/graph/cuda/executor.hpp>
#include <tutti/infer/layer_device.hpp>
#include <tutti/infer/stored_state.hpp>
#include <tutti/kernel/cuda/block_product.hpp>
#include <tutti/kernel/cuda/cached_attention.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::infer::cuda {

namespace detail {

using graph::CustomArguments;
using kernel::cuda::Blas;

inline void stored_product(Blas& blas, CustomArguments const& args) {
  for (kernel::BlockProduct const& product : nn::detail::StoredProduct::products(args))
    kernel::cuda::block_product(blas.context(), product);
}
inline void stored_swiglu(Blas& blas, CustomArguments const& args) {
  kernel::cuda::block_swiglu(blas.context(), nn::detail::StoredSwiGlu::arguments(args));
}
inline void append_and_attend(Blas& blas, CustomArguments const& args) {
  kernel::cuda::cached_attention(blas.context(), nn::detail::AppendAndAttend::arguments(args));
}
/// What the graphs of decoding have beside the library's own operations.
inline constexpr graph::cuda::CustomBody bodies[] = {
    {&graph::detail::custom_operation<nn::detail::StoredProduct>, stored_product},
    {&graph::detail::custom_operation<nn::detail::StoredSwiGlu>, stored_swiglu},
    {&graph::detail::custom_operation<nn::detail::AppendAndAttend>, append_and_attend},
};

inline std::int64_t layer_bytes(nn::StoredModel const& model, nn::CacheSizes const& sizes, std::int64_t layer) {
  std::string const prefix = concat("blk.", layer, ".");
  std::int64_t bytes = nn::cache_layer_bytes(model, sizes);
  for (nn::StoredTensor const& tensor : model.tensors)
    if (tensor.name.starts_with(prefix)) bytes += tensor.bytes();
  return bytes;
}
inline std::int64_t head_bytes(nn::StoredModel const& model) {
  nn::StoredTensor const* head = model.find("output.weight");
  if (head == nullptr) head = model.find("token_embd.weight");
  return head == nullptr ? 0 : head->bytes();
}
/// Values of a batch between steps, and what the driver keeps of captured programs.
inline std::int64_t device_working_bytes(nn::StoredModel const& model, std::int64_t batch) {
  return nn::working_bytes(model, batch) + (std::int64_t{256} << 20);
}

/// Layers of `share` that go into `free` bytes, counted as DeviceShare does.
inline std::int64_t fitting_layers(nn::StoredModel const& model, nn::CacheSizes const& sizes, std::int64_t batch,
                                   std::int64_t free) {
  std::int64_t left = free - device_working_bytes(model, batch), count = 0;
  for (std::int64_t layer = model.layers() - 1; layer >= 0; --layer, ++count)
    if ((left -= layer_bytes(model, sizes, layer)) < 0) return count;
  return left >= head_bytes(model) ? count + 1 : count;
}

}  // namespace detail

/// What CudaLayers loads. Not movable.
class LoadedLayers final : public DeviceLayers {
 public:
  LoadedLayers(kernel::cuda::Blas& blas, nn::StoredModel const& model, nn::CacheSizes const& sizes, std::int64_t count)
      : blas_(blas),
        model_(model),
        sizes_(sizes),
        range_{model.layers() - std::min(count, model.layers()), model.layers(), false, true},
        has_head_(count > model.layers()),
        device_(blas.context().stream(), state_) {
    add_stored(state_, model);
  }

  std::int64_t first() const noexcept override { return range_.first; }
  bool has_head() const noexcept override { return has_head_; }
  void append(std::int64_t rows, std::int32_t const* slot, std::int32_t const* position, float* hidden) override {
    graph::cuda::Executor& executor = program(bodies_, rows);
    executor.set("hidden", TensorView<float const>(hidden, {rows, model_.channels()}));
    executor.set("slot", TensorView<std::int32_t const>(slot, {rows}));
    executor.set("position", TensorView<std::int32_t const>(position, {rows}));
    executor.run();
    auto const result = executor.output<float>("hidden");
    std::memcpy(hidden, result.data(), static_cast<std::size_t>(result.shape().size()) * sizeof(float));
  }
  std::span<float const> logits(std::int64_t rows, float const* hidden) override {
    graph::cuda::Executor& executor = program(heads_, rows);
    executor.set("hidden", TensorView<float const>(hidden, {rows, model_.channels()}));
    executor.run();
    auto const result = executor.output<float>("logits");
    return {result.data(), static_cast<std::size_t>(result.shape().size())};
  }
  std::byte* cache(std::string_view name, std::int64_t slot) override {
    Part const part = part_of(name, slot);
    tutti::cuda::copy_to_host(stream(), part.host, part.device, part.bytes);
    stream().wait();
    return part.host;
  }
  void cache_written(std::int64_t slot) override {
    for (std::int64_t layer = range_.first; layer < range_.last; ++layer)
      for (char const* const kind : {".keys", ".values"}) {
        Part const part = part_of(concat("cache.", layer, kind), slot);
        tutti::cuda::copy_to_device(stream(), part.device, part.host, part.bytes);
      }
    stream().wait();
  }

 private:
  struct Compiled {
    Compiled(kernel::cuda::Blas& blas, graph::Graph const& graph, graph::cuda::DeviceState& state,
             Shared<graph::cuda::Workspace>& workspace)
        : program(graph::compile(graph, {.target = graph::Target::cuda, .narrow = false})) {
      state.host().add(graph);
      bool const fits = workspace && static_cast<std::int64_t>(workspace->arena.bytes()) >= program.plan.arena_bytes &&
                        workspace->communicator_bytes() >= program.plan.communicator_bytes;
      if (!fits) {
        graph::Program const* const one[] = {&program};
        workspace = graph::cuda::Workspace::of(blas.context().stream(), one);
      }
      graph::cuda::ExecutorOptions options;
      options.workspace = workspace;
      options.bodies = detail::bodies;
      executor = std::make_unique<graph::cuda::Executor>(blas, program, state, std::move(options));
    }
    graph::Program program;
    std::unique_ptr<graph::cuda::Executor> executor;
  };
  using Programs = std::map<std::int64_t, std::unique_ptr<Compiled>>;
  struct Part {
    std::byte *host, *device;
    std::size_t bytes;
  };

  tutti::cuda::Stream const& stream() const noexcept { return blas_.context().stream(); }
  graph::cuda::Executor& program(Programs& programs, std::int64_t rows) {
    std::unique_ptr<Compiled>& found = programs[rows];
    if (!found)
      found = std::make_unique<Compiled>(blas_,
                                         &programs == &heads_ ? nn::head_graph(model_, rows)
                                                              : nn::decoding_graph(model_, rows, sizes_, range_),
                                         device_, workspace_);
    return *found->executor;
  }
  /// Fields of caches come with the first program.
  Part part_of(std::string_view name, std::int64_t slot) {
    if (state_.find(name) == nullptr) static_cast<void>(program(bodies_, 1));
    graph::Field& field = state_.at(name);
    std::int64_t const each = field.bytes() / sizes_.slots;
    return {static_cast<std::byte*>(field.data()) + each * slot, device_.data(name) + each * slot,
            static_cast<std::size_t>(each)};
  }

  kernel::cuda::Blas& blas_;
  nn::StoredModel const& model_;
  nn::CacheSizes sizes_;
  nn::LayerRange range_;
  bool has_head_;
  graph::State state_;
  graph::cuda::DeviceState device_;
  Shared<graph::cuda::Workspace> workspace_;
  Programs bodies_, heads_;
};

/// A CUDA device for layers of models. Outlives what it loads.
/// Determinism the same calls give the same bits, on one device and library version; they are not those of processors
class CudaLayers final : public LayerDevice {
 public:
  /// Errors: unavailable, where there is no such device.
  explicit CudaLayers(int device = 0) : context_(checked(device)), blas_(context_) {}

  std::string describe() const override { return concat("CUDA device ", context_.device()); }
  /// Shares that are given are not changed: what does not fit is out_of_memory.
  std::unique_ptr<DeviceLayers> load(nn::StoredModel const& model, nn::CacheSizes const& sizes, std::int64_t batch,
                                     DeviceShare share) override {
    std::int64_t count = share.count;
    if (count == DeviceShare::as_many_as_fit)
      count = detail::fitting_layers(model, sizes, batch, tutti::cuda::free_memory(context_.device()));
    if (count <= 0) return nullptr;
    return std::make_unique<LoadedLayers>(blas_, model, sizes, count);
  }

 private:
  static int checked(int device) {
    int const count = tutti::cuda::device_count();
    if (count == 0) static_cast<void>(tutti::cuda::device_of(0));
    if (device < 0 || device >= count)
      throw Error(ErrorKind::unavailable, "CudaLayers",
                  concat("there is no CUDA device ", device, ": this process may use ", count));
    return device;
  }

  kernel::cuda::Context context_;
  kernel::cuda::Blas blas_;
};

}  // namespace tutti::infer::cuda
