// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a run knows of its model, whatever its architecture; and how checkpoints describe models.

#include <tutti/core/error.hpp>
#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/llama_config.hpp>
#include <tutti/train/checkpoint.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace tutti::train {

/// Zero: not known, as of a model from outside the library that does not say.
struct ModelFacts {
  std::string architecture = "own";
  std::string origin = "this program";  ///< for people: "d12", "checkpoint step 100", a path
  std::string sizes;                    ///< for people
  std::int64_t layers = 0, heads = 0, channels = 0;
  std::int64_t vocabulary = 0;  ///< classes of the softmax: what tokens may be
  std::int64_t max_tokens = 0;  ///< positions
  double parameters = 0;        ///< may exceed what 64 bits hold
  Json json;                    ///< of checkpoint.json and metrics.jsonl
  std::string chat_template{};  ///< how the model knows conversations, where its folder or file said so
};

inline Json to_json(nn::Gpt2Config const& c) {
  return {{"layers", c.layers},
          {"heads", c.heads},
          {"channels", c.channels},
          {"vocabulary", c.vocabulary},
          {"padded_vocabulary", c.padded_vocabulary},
          {"max_tokens", c.max_tokens},
          {"epsilon", c.epsilon}};
}
inline Json to_json(nn::LlamaConfig const& c) {
  Json json = {{"architecture", "llama"},
          {"layers", c.layers},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"channels", c.channels},
          {"head_size", c.head_size},
          {"hidden", c.hidden},
          {"vocabulary", c.vocabulary},
          {"padded_vocabulary", c.padded_vocabulary},
          {"max_tokens", c.max_tokens},
          {"epsilon", c.epsilon},
          {"rotary_base", c.rotary_base},
          {"interleaved", c.pairing == kernel::RotaryPairing::interleaved},
          {"tied", c.tied},
          {"qkv_bias", c.qkv_bias}};
  if (c.window > 0) json["window"] = c.window;
  return json;
}

/// gpt2, llama, or what another program wrote. Errors: format.
inline std::string architecture_of(Checkpoint const& checkpoint) {
  auto const model = checkpoint.facts().find("model");
  if (model == checkpoint.facts().end() || !model->is_object())
    throw Error(ErrorKind::format, "architecture_of",
                (checkpoint.folder() / "checkpoint.json").string() + " describes no model. Use another checkpoint");
  return model->value("architecture", std::string("gpt2"));
}

namespace detail {
/// f(description of a checkpoint's model), which must be one of `architecture`. Errors: format, naming the file.
template <class Config, class F>
Config config_of(Checkpoint const& checkpoint, std::string const& architecture, F&& f) {
  std::string const file = (checkpoint.folder() / "checkpoint.json").string(), has = architecture_of(checkpoint);
  if (has != architecture)
    throw Error(ErrorKind::format, "config_of",
                file + " is of a model of architecture " + has + ", and one of " + architecture + " is needed here");
  try {
    Config const config = f(checkpoint.facts().at("model"));
    nn::validate(config);
    return config;
  } catch (nlohmann::json::exception const& error) {
    throw Error(ErrorKind::format, "config_of",
                file + " does not describe a " + architecture + ". Use another checkpoint")
        .with_native(error.what());
  }
}
}  // namespace detail

/// What to_json wrote. Errors: nlohmann::json::exception, for a size that is not there.
inline nn::Gpt2Config gpt2_config(nlohmann::json const& m) {
  return {.layers = m.at("layers"),
          .heads = m.at("heads"),
          .channels = m.at("channels"),
          .vocabulary = m.at("vocabulary"),
          .padded_vocabulary = m.at("padded_vocabulary"),
          .max_tokens = m.at("max_tokens"),
          .epsilon = m.at("epsilon")};
}
inline nn::LlamaConfig llama_config(nlohmann::json const& m) {
  nn::LlamaConfig c{.layers = m.at("layers"),
                    .heads = m.at("heads"),
                    .kv_heads = m.at("kv_heads"),
                    .channels = m.at("channels"),
                    .head_size = m.at("head_size"),
                    .hidden = m.at("hidden"),
                    .vocabulary = m.at("vocabulary"),
                    .padded_vocabulary = m.at("padded_vocabulary"),
                    .max_tokens = m.at("max_tokens"),
                    .epsilon = m.at("epsilon"),
                    .rotary_base = m.at("rotary_base")};
  c.pairing = m.at("interleaved").get<bool>() ? kernel::RotaryPairing::interleaved : kernel::RotaryPairing::half;
  c.tied = m.at("tied");
  c.qkv_bias = m.at("qkv_bias");
  c.window = m.value("window", std::int64_t{0});
  return c;
}
/// The sizes that a checkpoint says. Errors: format, naming the file.
inline nn::Gpt2Config gpt2_config(Checkpoint const& checkpoint) {
  return detail::config_of<nn::Gpt2Config>(checkpoint, "gpt2", [](nlohmann::json const& m) { return gpt2_config(m); });
}
inline nn::LlamaConfig llama_config(Checkpoint const& checkpoint) {
  return detail::config_of<nn::LlamaConfig>(checkpoint, "llama",
                                            [](nlohmann::json const& m) { return llama_config(m); });
}

namespace detail {
inline double real(std::int64_t n) noexcept { return static_cast<double>(n); }
}  // namespace detail

inline ModelFacts facts_of(nn::Gpt2Config const& c) {
  using detail::real;
  double const channels = real(c.channels);
  return {.architecture = "gpt2",
          .sizes = fmt::format("{} layers, {} channels, {} heads, vocabulary {} (padded {}), {} positions", c.layers,
                               c.channels, c.heads, c.vocabulary, c.padded_vocabulary, c.max_tokens),
          .layers = c.layers,
          .heads = c.heads,
          .channels = c.channels,
          .vocabulary = c.vocabulary,
          .max_tokens = c.max_tokens,
          .parameters = channels * (real(c.padded_vocabulary) + real(c.max_tokens)) +
                        real(c.layers) * channels * (12 * channels + 13),
          .json = to_json(c)};
}
inline ModelFacts facts_of(nn::LlamaConfig const& c) {
  using detail::real;
  double const channels = real(c.channels), q = real(c.heads) * real(c.head_size),
               kv = real(c.kv_heads) * real(c.head_size);
  return {.architecture = "llama",
          .sizes = fmt::format("LLaMA of {} layers, {} channels, {} heads ({} of keys and values), feed-forward {}, "
                               "vocabulary {} (padded {}), {} positions{}",
                               c.layers, c.channels, c.heads, c.kv_heads, c.hidden, c.vocabulary, c.padded_vocabulary,
                               c.max_tokens, c.tied ? "" : ", a head of its own"),
          .layers = c.layers,
          .heads = c.heads,
          .channels = c.channels,
          .vocabulary = c.vocabulary,
          .max_tokens = c.max_tokens,
          .parameters = (c.tied ? 1 : 2) * real(c.padded_vocabulary) * channels +
                        real(c.layers) * channels * (2 * q + 2 * kv + 3 * real(c.hidden) + 2),
          .json = to_json(c)};
}
/// Of a model from outside the library: its members vocabulary and max_tokens, where it has them.
template <class Config>
ModelFacts facts_of(Config const& config) {
  ModelFacts facts;
  if constexpr (requires { std::int64_t{config.vocabulary}; }) facts.vocabulary = config.vocabulary;
  if constexpr (requires { std::int64_t{config.max_tokens}; }) facts.max_tokens = config.max_tokens;
  facts.sizes = facts.vocabulary > 0 ? fmt::format("vocabulary {}", facts.vocabulary) : "sizes of its own";
  if (facts.max_tokens > 0) facts.sizes += fmt::format(", {} positions", facts.max_tokens);
  facts.json = {{"architecture", "own"}, {"vocabulary", facts.vocabulary}, {"max_tokens", facts.max_tokens}};
  return facts;
}

/// Of forward and backward, for a token in a sequence of this length; `parameters` counts them all.
template <class Config>
double flops_per_token(Config const& config, std::int64_t sequence, std::int64_t parameters) {
  if constexpr (requires { nn::flops_per_token(config, sequence); }) return nn::flops_per_token(config, sequence);
  else return 6 * detail::real(parameters);
}

}  // namespace tutti::train
