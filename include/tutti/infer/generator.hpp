// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A text in a model, wherever the model is: on processors, on a GPU, or with the host of a WebAssembly guest.

#include <concepts>
#include <cstdint>
#include <span>

namespace tutti::infer {

/// What `generate` draws from. Models: Gpt2Decoder, Sequence, infer::cuda::Gpt2Decoder, and HostModel of a guest
/// (examples/wasi/host_model.hpp).
///   append(tokens)  puts tokens (one at least) behind those there; the logits (vocabulary) of what follows the last,
///                   valid until the next call. Blocking. Throws out_of_range past the capacity
///   reset()         forgets the tokens
///   length()        tokens that are there
///   capacity()      as many at most
template <class G>
concept Generator = requires(G& generator, G const& same, std::span<std::int32_t const> tokens) {
  { generator.append(tokens) } -> std::convertible_to<std::span<float const>>;
  { generator.reset() } noexcept;
  { same.length() } -> std::convertible_to<std::int64_t>;
  { same.capacity() } -> std::convertible_to<std::int64_t>;
};

}  // namespace tutti::infer
