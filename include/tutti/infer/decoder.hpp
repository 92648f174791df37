// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model with the caches of its sequences: tokens in, logits out.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/infer/decoder_options.hpp>
#include <tutti/infer/layer_device.hpp>
#include <tutti/infer/stored_state.hpp>
#include <tutti/infer/tiled_weights.hpp>
#include <tutti/nn/decoding.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Keys or values of a layer for one sequence: (heads, capacity, columns) of nn::cache_dtype.
struct CachePart {
  std::string name;
  DType dtype = DType::float32;
  std::int64_t heads = 0, capacity = 0, columns = 0;
  std::byte* data = nullptr;
};

/// Not movable: programs point to its memory. One call at a time.
/// Cost        memory: the caches, 2 * layers * slots * kv_heads * capacity rows of a head, and a batch's values.
///             A call reads every weight once for each `batch` tokens.
/// Ranks       with a tensor port, every rank makes the same calls in the same order, and gets the same logits
/// Determinism bitwise the same for any number of threads. How tokens are divided among calls decides in which order
///             sums are made, and so rounding.
class Decoder {
 public:
  /// Borrows context and model. Errors: invalid_argument (options), format (a tensor that the model lacks),
  /// out_of_memory.
  Decoder(exec::Context& context, nn::StoredModel const& model, DecoderOptions const& options = {})
      : context_(context), model_(model), options_(options) {
    if (options_.capacity == 0) options_.capacity = model.max_tokens();
    detail::check_options(options_, model);
    options_.batch = row_counts(options_.batch).back();
    if (options_.copies_tiles()) computed_ = tiled_model(context_, model, options_.shared_tiles);
    else computed_ = model;
    add_stored(state_, computed_);
    if (options_.device != nullptr)
      device_ = options_.device->load(model, cache_sizes(), options_.batch, options_.device_share);
    here_ = {0, device_ ? device_->first() : model.layers(), true, device_ == nullptr};
    counts_ = row_counts(options_.batch);
    bodies_.resize(counts_.size());
    heads_.resize(counts_.size());
    body(counts_.size() - 1);  // the largest first: its working memory is all the others'
  }
  Decoder(Decoder const&) = delete;
  Decoder& operator=(Decoder const&) = delete;

  nn::StoredModel const& model() const noexcept { return model_; }
  /// The same as layers on processors read it.
  nn::StoredModel const& computed() const noexcept { return computed_; }
  DecoderOptions const& options() const noexcept { return options_; }
  std::int64_t slots() const noexcept { return options_.slots; }
  std::int64_t capacity() const noexcept { return options_.capacity; }
  std::int64_t vocabulary() const { return model_.vocabulary(); }
  /// Layers on the device, and whether the head is there too.
  std::int64_t device_layers() const { return model_.layers() - here_.last; }
  bool device_has_head() const noexcept { return device_ && device_->has_head(); }
  /// "22 of 22 layers and the head on CUDA device 0"; nothing without a device.
  std::string describe_device() const {
    if (options_.device == nullptr) return {};
    return concat(device_layers(), " of ", model_.layers(), " layers", device_has_head() ? " and the head" : "", " on ",
                  options_.device->describe());
  }

  /// Appends tokens of any sequences; those of one stand in order, and positions before its first one are in its cache.
  /// Logits (wanted tokens, vocabulary) of those that are wanted, in order, valid until the next call.
  /// Errors: out_of_range (a token, slot or position); caches may hold part of the tokens then.
  std::span<float const> append(std::span<NewToken const> tokens) {
    detail::check_tokens(tokens, vocabulary(), slots(), capacity());
    logits_.clear();
    auto const batch = static_cast<std::size_t>(options_.batch);
    for (std::size_t first = 0; first < tokens.size(); first += batch)
      run(tokens.subspan(first, std::min(batch, tokens.size() - first)));
    return logits_;
  }
  /// The hidden state after the final norm, (tokens, channels), of the tokens of the last call's last batch.
  std::span<float const> hidden() const noexcept { return hidden_; }
  /// The memory of a slot's cache, for who keeps it elsewhere; of layers on a device a copy of what they hold now,
  /// which they get back by `cache_written`. Errors: out_of_range.
  std::vector<CachePart> cache(std::int32_t slot) {
    if (slot < 0 || slot >= slots())
      throw Error(ErrorKind::out_of_range, "Decoder::cache", concat("sequence ", slot, " is none of ", slots()));
    std::vector<CachePart> parts;
    for (std::int64_t layer = 0; layer < model_.layers(); ++layer)
      for (char const* const kind : {".keys", ".values"}) {
        std::string const name = concat("cache.", layer, kind);
        std::byte* data = nullptr;
        if (layer >= here_.last) {
          data = device_->cache(name, slot);
        } else {
          graph::Field& field = state_.at(name);
          data = static_cast<std::byte*>(field.data()) + field.bytes() / slots() * slot;
        }
        parts.push_back({name, nn::cache_dtype(options_.cache), model_.kv_heads() / model_.ranks, capacity(),
                         nn::cache_columns(options_.cache, model_.head_size()), data});
      }
    return parts;
  }
  /// Parts of a slot's cache were written to.
  void cache_written(std::int32_t slot) {
    if (device_) device_->cache_written(slot);
  }

 private:
  /// A program and what runs it.
  struct Compiled {
    Compiled(exec::Context& context, graph::Graph const& graph, graph::State& state,
             Shared<graph::Workspace>& workspace, comm::Port* tensor)
        : program(graph::compile(graph)) {
      state.add(graph);
      if (!workspace) {
        graph::Program const* const one[] = {&program};
        workspace = graph::Workspace::of(one);
      }
      bool const fits = workspace->arena.bytes() >= program.plan.arena_bytes &&
                        workspace->communicator.bytes() >= program.plan.communicator_bytes;
      graph::ExecutorOptions options;
      options.tensor = tensor;
      if (fits) options.workspace = workspace;
      executor.emplace(context, program, state, std::move(options));
    }
    graph::Program program;
    std::optional<graph::Executor> executor;
  };

  /// Numbers of rows for which there are programs, ascending; the last is `most` or the next such number.
  static std::vector<std::int64_t> row_counts(std::int64_t most) {
    std::vector<std::int64_t> counts;
    for (std::int64_t next = 1;; next += next < 8 ? 1 : next < 64 ? 8 : next < 256 ? 32 : 64) {
      counts.push_back(next);
      if (next >= most) return counts;
    }
  }
  std::size_t place(std::size_t rows) const {
    return static_cast<std::size_t>(std::lower_bound(counts_.begin(), counts_.end(), static_cast<std::int64_t>(rows)) -
                                    counts_.begin());
  }

  nn::CacheSizes cache_sizes() const { return {options_.slots, options_.capacity, options_.cache}; }

  graph::Executor& body(std::size_t place) {
    if (!bodies_[place])
      bodies_[place] = std::make_unique<Compiled>(
          context_, nn::decoding_graph(computed_, counts_[place], cache_sizes(), here_), state_, workspace_,
          options_.tensor);
    return *bodies_[place]->executor;
  }
  graph::Executor& head(std::size_t place) {
    if (!heads_[place])
      heads_[place] =
          std::make_unique<Compiled>(context_, nn::head_graph(computed_, counts_[place]), state_, head_workspace_,
                                       options_.tensor);
    return *heads_[place]->executor;
  }

  void run(std::span<NewToken const> tokens) {
    std::size_t const at = place(tokens.size());
    auto const rows = static_cast<std::size_t>(counts_[at]), channels = static_cast<std::size_t>(model_.channels());
    integers_.assign(3 * rows, 0);
    std::fill_n(integers_.begin() + static_cast<std::ptrdiff_t>(rows), rows, -1);  // rows that fill up: no sequence
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      integers_[i] = tokens[i].token;
      integers_[rows + i] = tokens[i].slot;
      integers_[2 * rows + i] = tokens[i].position;
    }
    graph::Executor& executor = body(at);
    Shape const shape{counts_[at]};
    char const* const names[] = {"tokens", "slot", "position"};
    for (std::size_t i = 0; i < 3; ++i)
      executor.set(names[i], TensorView<std::int32_t const>(integers_.data() + i * rows, shape));
    executor.run();
    float const* const hidden = executor.output<float>("hidden").data();
    if (device_) {
      hidden_.assign(hidden, hidden + rows * channels);
      device_->append(counts_[at], integers_.data() + rows, integers_.data() + 2 * rows, hidden_.data());
      hidden_.resize(tokens.size() * channels);
    } else {
      hidden_.assign(hidden, hidden + tokens.size() * channels);
    }
    // The head, for what is wanted, in parts: logits are large.
    constexpr std::size_t part = 32;
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i].wanted) wanted.push_back(i);
    for (std::size_t first = 0; first < wanted.size(); first += part)
      run_head(std::span(wanted).subspan(first, std::min(part, wanted.size() - first)), channels);
  }
  void run_head(std::span<std::size_t const> wanted, std::size_t channels) {
    std::size_t const at = place(wanted.size());
    auto const rows = static_cast<std::size_t>(counts_[at]), classes = static_cast<std::size_t>(vocabulary());
    rows_.assign(rows * channels, 0.0f);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      std::copy_n(hidden_.data() + wanted[i] * channels, channels, rows_.data() + i * channels);
    float const* logits = nullptr;
    auto const each = static_cast<std::size_t>(model_.classes_each(model_.ranks));
    if (device_has_head()) {
      logits = device_->logits(counts_[at], rows_.data()).data();
    } else {
      graph::Executor& executor = head(at);
      executor.set("hidden", TensorView<float const>(rows_.data(), {counts_[at], model_.channels()}));
      executor.run();
      logits = executor.output<float>("logits").data();
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      std::size_t const begin = logits_.size();
      logits_.resize(begin + classes);
      for (std::int64_t rank = 0; rank < model_.ranks; ++rank) {
        auto const first = static_cast<std::size_t>(model_.first_class(rank, model_.ranks));
        float const* const part = logits + (static_cast<std::size_t>(rank) * rows + i) * each;
        if (first < classes) std::copy_n(part, std::min(each, classes - first), logits_.data() + begin + first);
      }
    }
  }

  exec::Context& context_;
  nn::StoredModel const& model_;
  DecoderOptions options_;
  nn::StoredModel computed_;  // what the programs here read
  graph::State state_;
  std::unique_ptr<DeviceLayers> device_;  // the layers behind those that are here
  nn::LayerRange here_;
  std::vector<std::int64_t> counts_;
  Shared<graph::Workspace> workspace_, head_workspace_;
  std::vector<std::unique_ptr<Compiled>> bodies_, heads_;
  std::vector<std::int32_t> integers_;
  std::vector<float> hidden_, rows_, logits_;
};

}  // namespace tutti::infer
