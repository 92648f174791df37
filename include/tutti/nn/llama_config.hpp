// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The sizes and choices of a model of the LLaMA family; Qwen2 and Phi-3 are settings of these.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>
#include <tutti/kernel/rotary.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::nn {

/// A literal type: a model traced in a constant expression takes one as well.
struct LlamaConfig {
  std::int64_t layers = 12, heads = 12, kv_heads = 4, channels = 768;
  std::int64_t head_size = 64;
  std::int64_t hidden = 2048;              ///< of the feed-forward layers
  std::int64_t vocabulary = 50257;         ///< classes of the softmax
  std::int64_t padded_vocabulary = 50304;  ///< rows of embedding and head
  std::int64_t max_tokens = 1024;          ///< positions that the model was made for
  float epsilon = 1e-5f;                   ///< of the RMS norms
  double rotary_base = 10000;
  kernel::RotaryPairing pairing = kernel::RotaryPairing::half;
  std::int64_t window = 0;  ///< a token sees this many, itself included; 0: all before it
  bool tied = true;         ///< the head is the embedding
  bool qkv_bias = false;    ///< Qwen2 has one
  std::int64_t document_mark = -1;  ///< with which documents begin that training keeps apart; -1: it does not

  friend constexpr bool operator==(LlamaConfig const&, LlamaConfig const&) = default;
};

/// Throws Error(configuration) unless a model can have these sizes.
constexpr void validate(LlamaConfig const& c, std::source_location where = std::source_location::current()) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::configuration, "LlamaConfig", what, where);
  };
  if (c.layers < 1) refuse("layers " + std::to_string(c.layers) + " must be at least 1");
  if (c.heads < 1) refuse("heads " + std::to_string(c.heads) + " must be at least 1");
  if (c.kv_heads < 1 || c.heads % c.kv_heads != 0)
    refuse("heads " + std::to_string(c.heads) + " must be a multiple of the heads of keys and values, " +
           std::to_string(c.kv_heads));
  if (c.head_size < 2 || c.head_size % 2 != 0)
    refuse("head size " + std::to_string(c.head_size) + " must be even and at least 2: rotations turn pairs");
  if (c.channels < 1) refuse("channels " + std::to_string(c.channels) + " must be at least 1");
  if (c.hidden < 1) refuse("hidden " + std::to_string(c.hidden) + " must be at least 1");
  if (c.vocabulary < 2) refuse("vocabulary " + std::to_string(c.vocabulary) + " must be at least 2");
  if (c.padded_vocabulary < c.vocabulary)
    refuse("padded vocabulary " + std::to_string(c.padded_vocabulary) + " is below the vocabulary " +
           std::to_string(c.vocabulary));
  if (c.max_tokens < 1) refuse("max tokens " + std::to_string(c.max_tokens) + " must be at least 1");
  if (!(c.epsilon > 0 && c.epsilon < 1)) refuse("epsilon must be above 0 and below 1");
  if (!(c.rotary_base > 0 && c.rotary_base < 1e30)) refuse("the base of rotations must be above 0 and below 1e30");
  if (c.window < 0) refuse("window " + std::to_string(c.window) + " must be at least 1, or 0 for none");
}

/// Trainable numbers, padding rows included.
constexpr std::int64_t parameter_count(LlamaConfig const& c) {
  auto const m = [](std::int64_t a, std::int64_t b) { return checked_multiply(a, b); };
  std::int64_t const q = m(c.heads, c.head_size), kv = m(c.kv_heads, c.head_size);
  std::int64_t const block = m(c.channels, q + 2 * kv) + (c.qkv_bias ? q + 2 * kv : 0) + m(q, c.channels) +
                             m(3, m(c.channels, c.hidden)) + 2 * c.channels;
  return m(c.tied ? 1 : 2, m(c.padded_vocabulary, c.channels)) + m(c.layers, block) + c.channels;
}

/// Floating-point operations of forward and backward for one token, counted as nn::flops_per_token of GPT-2 is.
constexpr double flops_per_token(LlamaConfig const& c, std::int64_t sequence) {
  return 6.0 * double(parameter_count(c)) + 6.0 * double(c.layers) * double(c.heads * c.head_size) * double(sequence);
}

}  // namespace tutti::nn
