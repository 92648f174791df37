// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The sizes of a GPT-2 and what follows from them by arithmetic.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::nn {

/// A literal type: a model traced in a constant expression takes one as well.
struct Gpt2Config {
  std::int64_t layers = 12, heads = 12, channels = 768;
  std::int64_t vocabulary = 50257;         ///< classes of the softmax
  std::int64_t padded_vocabulary = 50304;  ///< rows of the embedding: a multiple of 128 keeps the head's tiles whole
  std::int64_t max_tokens = 1024;          ///< rows of the position table
  float epsilon = 1e-5f;                   ///< of the layer norms
  /// Shares that training drops: of embeddings and of what blocks add to them; of attention's probabilities.
  double dropout = 0, attention_dropout = 0;
  /// Token with which documents begin that training keeps apart in a sequence (nn/documents.hpp); -1: it does not.
  std::int64_t document_mark = -1;

  constexpr std::int64_t head_size() const noexcept { return channels / heads; }
  friend constexpr bool operator==(Gpt2Config const&, Gpt2Config const&) = default;
};

/// Rows of the embedding for a vocabulary: the next multiple of 128, as llm.c pads.
constexpr std::int64_t padded_vocabulary(std::int64_t vocabulary) noexcept { return (vocabulary + 127) / 128 * 128; }

/// Throws Error(configuration) unless a model can have these sizes.
constexpr void validate(Gpt2Config const& c, std::source_location where = std::source_location::current()) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::configuration, "Gpt2Config", what, where);
  };
  if (c.layers < 1) refuse("layers " + std::to_string(c.layers) + " must be at least 1");
  if (c.heads < 1) refuse("heads " + std::to_string(c.heads) + " must be at least 1");
  if (c.channels < 1 || c.channels % c.heads != 0)
    refuse("channels " + std::to_string(c.channels) + " must be a positive multiple of heads " +
           std::to_string(c.heads));
  if (c.vocabulary < 2) refuse("vocabulary " + std::to_string(c.vocabulary) + " must be at least 2");
  if (c.padded_vocabulary < c.vocabulary)
    refuse("padded vocabulary " + std::to_string(c.padded_vocabulary) + " is below the vocabulary " +
           std::to_string(c.vocabulary));
  if (c.max_tokens < 1) refuse("max tokens " + std::to_string(c.max_tokens) + " must be at least 1");
  if (!(c.epsilon > 0 && c.epsilon < 1)) refuse("epsilon must be above 0 and below 1");
  for (double p : {c.dropout, c.attention_dropout})
    if (!(p >= 0 && p < 1)) refuse("dropout " + std::to_string(p) + " must be at least 0 and below 1");
}

/// Trainable numbers, padding rows of the embedding included: V C + T C + L (12 C^2 + 13 C) + 2 C.
constexpr std::int64_t parameter_count(Gpt2Config const& c) {
  auto const m = [](std::int64_t a, std::int64_t b) { return checked_multiply(a, b); };
  return m(c.padded_vocabulary, c.channels) + m(c.max_tokens, c.channels) +
         m(c.layers, m(12, m(c.channels, c.channels)) + m(13, c.channels)) + 2 * c.channels;
}

/// Floating-point operations of forward and backward for one token: 6 N + 6 L C T with N all parameters, padding and
/// positions included. It is the count of llm.c (attention counted causally), so that utilisation can be compared.
constexpr double flops_per_token(Gpt2Config const& c, std::int64_t sequence) {
  return 6.0 * double(parameter_count(c)) + 6.0 * double(c.layers) * double(c.channels) * double(sequence);
}

/// The published family: d6, d12, d24, d36, d48 (also spelled gpt2:d12). Errors: configuration, naming the choices.
inline Gpt2Config gpt2_from_descriptor(std::string_view descriptor) {
  struct Size {
    std::string_view name;
    std::int64_t layers, heads, channels;
  };
  constexpr std::array<Size, 8> sizes{{{"d6", 6, 6, 384},
                                       {"d12", 12, 12, 768},
                                       {"d24", 24, 16, 1024},
                                       {"d36", 36, 20, 1280},
                                       {"d48", 48, 25, 1600},
                                       {"d60", 60, 30, 1920},
                                       {"d72", 72, 30, 2880},
                                       {"d84", 84, 36, 3456}}};
  std::string_view short_name = descriptor;
  if (short_name.starts_with("gpt2:")) short_name.remove_prefix(5);
  for (Size const& size : sizes)
    if (size.name == short_name)
      return {.layers = size.layers, .heads = size.heads, .channels = size.channels};
  throw Error(
      ErrorKind::configuration, "gpt2_from_descriptor",
      "model '" + std::string(descriptor) + "' is unknown. Use d6, d12, d24, d36, d48, d60, d72 or d84, or give sizes");
}

}  // namespace tutti::nn
