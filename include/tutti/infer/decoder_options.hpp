// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a decoder is made with, and what it is given.

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/infer/layer_device.hpp>
#include <tutti/nn/stored_model.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti::infer {

struct DecoderOptions {
  std::int64_t slots = 1;        ///< sequences with a cache of their own
  std::int64_t capacity = 0;     ///< tokens of each; 0: as many as the model was made for
  std::int64_t batch = 512;      ///< tokens that go through the model at once, at most
  BlockType cache = BlockType::f32;  ///< or f16, bf16; q8_0, where heads have whole blocks of 32
  comm::Port* tensor = nullptr;  ///< of the ranks that share the model (nn::stored_part). Outlives the decoder
  /// Weights are copied into the order in which this processor multiplies them fastest, where it has one and no device
  /// has layers: tiled_bytes of memory more.
  bool tiles = true;
  /// Of decoders of the same memory, made one at a time, that share this copy; null: one of its own.
  std::weak_ptr<graph::Memory>* shared_tiles = nullptr;
  LayerDevice* device = nullptr;  ///< has some of the layers, with their caches. Outlives the decoder
  DeviceShare device_share{};     ///< which of them

  bool copies_tiles() const noexcept { return tiles && device == nullptr; }
  /// Of a decoder, on processors, of a model for texts of `longest` tokens that foretells for one of these options.
  DecoderOptions of_draft(std::int64_t longest) const {
    return {.slots = slots, .capacity = std::min(capacity, longest), .tiles = tiles};
  }
};

/// A token that is appended to sequence `slot` at `position`, counted from 0.
struct NewToken {
  std::int32_t token = 0, slot = 0, position = 0;
  bool wanted = false;  ///< its logits are asked for
};

namespace detail {

/// Errors: invalid_argument, for what this model cannot have.
inline void check_options(DecoderOptions const& options, nn::StoredModel const& model) {
  auto const refuse = [](std::string const& why) { throw Error(ErrorKind::invalid_argument, "Decoder", why); };
  if (options.capacity < 1 || options.slots < 1 || options.batch < 1)
    refuse("slots, capacity and batch must be positive");
  if (std::int64_t const ranks = options.tensor == nullptr ? 1 : options.tensor->size(); ranks != model.ranks)
    refuse(concat("the model is shared by ", model.ranks, " ranks, and the port has ", ranks));
  if (model.learned_positions() && options.capacity > model.max_tokens())
    refuse(concat("capacity ", options.capacity, " is more than the ", model.max_tokens(),
                  " positions that the model has learned"));
  if (options.device != nullptr && options.tensor != nullptr)
    refuse("ranks that share a model have all of its layers on processors. Give a device or a port");
}

/// Errors: out_of_range.
inline void check_tokens(std::span<NewToken const> tokens, std::int64_t vocabulary, std::int64_t slots,
                         std::int64_t capacity) {
  for (NewToken const& t : tokens) {
    auto const refuse = [&](std::string const& why) { throw Error(ErrorKind::out_of_range, "Decoder::append", why); };
    if (t.token < 0 || t.token >= vocabulary)
      refuse(concat("token ", t.token, " is outside the vocabulary of ", vocabulary));
    if (t.slot < 0 || t.slot >= slots) refuse(concat("sequence ", t.slot, " is none of ", slots));
    if (t.position < 0 || t.position >= capacity)
      refuse(concat("position ", t.position, " is outside the cache of ", capacity, " tokens"));
  }
}

}  // namespace detail
}  // namespace tutti::infer
