// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which of the library's models a run trains: from flags, a checkpoint that is resumed, or a file of weights.

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/module_choice.hpp>
#include <tutti/train/parameter_files.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/stablehlo_model.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace tutti::train {

/// The models that the library's trainers know.
using ModelConfig = std::variant<nn::Gpt2Config, nn::LlamaConfig, StablehloConfig>;

struct ModelChoice {
  ModelConfig config;
  std::function<void(graph::State&)> initial{};  ///< sets the weights, where a file has them
};

namespace detail {

constexpr nn::Gpt2Loss loss_of(nn::Gpt2Config const&) { return {}; }
constexpr nn::LlamaLoss loss_of(nn::LlamaConfig const&) { return {}; }
constexpr StablehloLoss loss_of(StablehloConfig const&) { return {}; }

/// Of a resumed run: what was typed must be what the checkpoint has.
inline void require_model_of_checkpoint(Setup const& s) {
  Options const& o = s.options;
  ModelFacts const& m = s.model;
  std::string const sizes = "the checkpoint's model has " + std::to_string(m.layers) + " layers, " +
                            std::to_string(m.channels) + " channels, " + std::to_string(m.heads) +
                            " heads: other sizes cannot be resumed. Leave out ";
  if (o.typed.contains("architecture") && o.architecture.text() != m.architecture)
    refuse("--architecture " + std::string(o.architecture.text()) + ": the checkpoint's model is a " + m.architecture +
           ". Leave out --architecture");
  bool const typed = o.typed.contains("layers") || o.typed.contains("channels") || o.typed.contains("heads");
  if (typed && (o.layers != m.layers || o.channels != m.channels || o.heads != m.heads))
    refuse(sizes + "--layers, --channels and --heads");
  auto const require = [&](std::string const& flag, char const* key, std::int64_t value) {
    if (o.typed.contains(flag) && m.json.value(key, std::int64_t{0}) != value)
      refuse("--" + flag + " " + std::to_string(value) +
             ": the checkpoint's model has others, and other sizes cannot be resumed. Leave it out");
  };
  require("kv-heads", "kv_heads", o.kv_heads);
  require("hidden", "hidden", o.hidden);
  if (o.typed.contains("untied") && m.json.value("tied", true))
    refuse("--untied: the head of the checkpoint's model is its embedding. Leave it out");
  if (!o.typed.contains("model")) return;
  if (o.model.ends_with(".bin") || starts_from_files(o.model))
    refuse("--model " + o.model + " gives initial weights, and --resume has its own. Leave out one of the two");
  nn::Gpt2Config const named = nn::gpt2_from_descriptor(o.model);
  if (named.layers != m.layers || named.channels != m.channels || named.heads != m.heads)
    refuse("--model " + o.model + ": " + sizes + "--model");
}

/// The model of a folder or a GGUF file, with which a run starts. Errors: configuration, io, format.
inline std::shared_ptr<ModelSource const> source_of(Setup const& s) {
  Options const& o = s.options;
  auto const source = std::make_shared<ModelSource const>(
      said_of("--model " + o.model, [&] { return open_model(o.model); }));
  std::string const has = source->gpt2() ? "gpt2" : "llama";
  if (o.given.contains("architecture") && o.architecture.text() != has)
    refuse("--architecture " + std::string(o.architecture.text()) + o.source_of("architecture") + ": --model " +
           o.model + " is a " + has + ". Leave out --architecture");
  for (char const* const name : {"kv-heads", "hidden", "untied"})
    if (o.typed.contains(name)) refuse("--" + std::string(name) + ": --model " + o.model + " says it. Leave it out");
  static_cast<void>(said_of("--model " + o.model, [&] { return parameter_tensors(*source); }));  // or it refuses now
  if (s.tokenizer && source->tokenizer) {
    data::Tokenizer const &run = s.tokenizer->tokenizer, &own = *source->tokenizer;
    for (std::int32_t id = 0; id < std::min(run.vocabulary(), own.vocabulary()); ++id)
      if (run.token_bytes(id) != own.token_bytes(id))
        refuse("--model " + o.model + " knows other tokens than " + s.tokenizer->origin + ", as " + std::to_string(id) +
               ". Make the data with the model's own tokenizer (prepare_text --tokenizer FILE)");
  }
  return source;
}

/// LLaMA with the depth and width of a GPT-2.
inline nn::LlamaConfig llama_of(Options const& o, nn::Gpt2Config const& sizes) {
  if (sizes.channels % sizes.heads != 0 || sizes.head_size() % 2 != 0)
    refuse("--channels " + std::to_string(sizes.channels) + " with --heads " + std::to_string(sizes.heads) +
           ": heads of a llama must have an even number of channels, whose pairs are rotated");
  std::int64_t const kv_heads = o.kv_heads > 0 ? o.kv_heads : sizes.heads;
  if (sizes.heads % kv_heads != 0)
    refuse("--kv-heads " + std::to_string(kv_heads) + " does not divide --heads " + std::to_string(sizes.heads));
  nn::LlamaConfig c{.layers = sizes.layers,
                    .heads = sizes.heads,
                    .kv_heads = kv_heads,
                    .channels = sizes.channels,
                    .head_size = sizes.head_size(),
                    .hidden = o.hidden > 0 ? o.hidden : (8 * sizes.channels + 95) / 96 * 32,
                    .vocabulary = sizes.vocabulary,
                    .padded_vocabulary = sizes.padded_vocabulary,
                    .max_tokens = sizes.max_tokens};
  c.pairing = kernel::RotaryPairing::interleaved;  // as GGUF files have it
  c.tied = !o.untied;
  return c;
}

}  // namespace detail

/// Refuses --pack documents for a model of one's own that does not say that it keeps them apart: its configuration
/// has a member document_mark that is Setup::document_mark, as the library's models have. Errors: configuration.
template <class Config>
void require_documents_apart(Setup const& s, Config const& config) {
  if (!s.document_mark) return;
  std::string const mark = std::to_string(*s.document_mark);
  std::string found = "the model's configuration has no document_mark";
  if constexpr (requires { config.document_mark == std::int64_t{}; }) {
    if (config.document_mark == std::int64_t{*s.document_mark}) return;
    found = "the model's document_mark is not " + mark + ", the token with which documents begin";
  }
  detail::refuse("--pack documents" + s.options.source_of("pack") + ": " + found +
                 ", so nothing says that it keeps documents apart. Let its Loss attend within nn::Documents(tokens, "
                 "mark), or look back no further than where one begins, and give its Config a std::int64_t "
                 "document_mark that make_config sets to Setup::document_mark; or leave out --pack");
}

/// Sets the model of a setup. Errors: configuration, io, format.
inline ModelChoice choose_model(Setup& s) {
  using detail::refuse;
  Options const& o = s.options;
  bool const sized = o.layers != 0, llama = o.architecture == Architecture::llama;
  auto const chosen = [&](auto config, std::string origin) {
    s.model = facts_of(config);
    s.model.origin = std::move(origin);
    config.document_mark = s.document_mark.value_or(-1);
    if constexpr (requires { config.dropout; }) {
      config.dropout = o.dropout;
      config.attention_dropout = o.attention_dropout;
    } else if (o.dropout > 0 || o.attention_dropout > 0) {
      refuse("--dropout and --attention-dropout are of gpt2, and the model of " + s.model.origin +
             " is none. Leave them out");
    }
    return ModelChoice{config};
  };
  auto const require_vocabulary = [&](std::set<std::string> const& names) {
    if (names.contains("vocabulary") && o.vocabulary != s.model.vocabulary)
      refuse("--vocabulary " + std::to_string(o.vocabulary) + ": " + s.model.origin + " has a vocabulary of " +
             std::to_string(s.model.vocabulary) + ". Leave out --vocabulary");
  };
  if (s.resume ? architecture_of(*s.resume) == "stablehlo" : o.model.ends_with(".mlir")) {
    StablehloConfig config = detail::module_of(s);
    s.model = facts_of(config);
    s.model.origin = s.resume ? "checkpoint " + s.resume->folder().string() + " of " + config.file : config.file;
    require_vocabulary(o.typed);
    return {std::move(config)};
  }
  if (s.resume && o.model.ends_with(".mlir"))
    refuse("--model " + o.model + ": the checkpoint's model is a " + architecture_of(*s.resume) + ". Leave it out");
  if (s.resume) {
    std::string const origin = "checkpoint " + s.resume->folder().string();
    ModelChoice choice = architecture_of(*s.resume) == "llama" ? chosen(llama_config(*s.resume), origin)
                                                               : chosen(gpt2_config(*s.resume), origin);
    detail::require_model_of_checkpoint(s);
    require_vocabulary(o.typed);
    s.model.chat_template = s.resume->chat_template();
    return choice;
  }
  if (o.model.ends_with(".bin")) {
    if (llama) refuse("--model " + o.model + ": llm.c's files hold GPT-2. Leave out --architecture llama");
    auto const file = std::make_shared<io::LlmcModel const>(o.model);
    ModelChoice choice = chosen(gpt2_config(*file), o.model);
    require_vocabulary(o.given);
    choice.initial = [file](graph::State& state) { read_gpt2(*file, gpt2_config(*file), nn::gpt2_data(state)); };
    return choice;
  }
  if (detail::starts_from_files(o.model)) {
    auto const source = detail::source_of(s);
    ModelChoice choice = std::visit([&](auto const& config) { return chosen(config, o.model); },
                                    training_config(*source));
    require_vocabulary(o.given);
    s.model.chat_template = source->chat_template;
    choice.initial = [source](graph::State& state) { fill_parameters(*source, state); };
    return choice;
  }
  nn::Gpt2Config sizes{.layers = o.layers, .heads = o.heads, .channels = o.channels};
  std::string origin = "sizes given";
  if (!sized) {
    sizes = nn::gpt2_from_descriptor(o.model.empty() ? "d6" : o.model);
    origin = o.model.empty() ? "d6, the default" : o.model;
  }
  std::int64_t const known = s.tokenizer ? s.tokenizer->tokenizer.vocabulary() : 0;
  sizes.vocabulary = o.vocabulary != 0 ? o.vocabulary : known != 0 ? known : sizes.vocabulary;
  sizes.padded_vocabulary = nn::padded_vocabulary(sizes.vocabulary);
  sizes.max_tokens = std::max<std::int64_t>(o.sequence, sized ? 0 : 1024);
  if (llama) {
    nn::LlamaConfig const config = detail::llama_of(o, sizes);
    nn::validate(config);
    return chosen(config, origin);
  }
  nn::validate(sizes);
  return chosen(sizes, origin);
}

/// Of a module, whose sizes are fixed: every rank has as many sequences as it was exported for. Errors: configuration.
inline void require_batch(Setup const& s, ModelChoice const& choice, int ranks) {
  auto const* const module = std::get_if<StablehloConfig>(&choice.config);
  if (module == nullptr) return;
  if (s.options.rank_shares != "even")
    detail::refuse("--rank-shares " + s.options.rank_shares + ": --model " + module->file + " was exported for " +
                   std::to_string(module->batch) + " sequences on every rank. Leave the flag out");
  if (s.rows != module->batch || s.micro_rows % ranks != 0)
    detail::refuse("--total-tokens " + std::to_string(s.options.total_tokens) + " is " +
                   std::to_string(s.micro_rows) + " sequences a micro-step for " + std::to_string(ranks) +
                   " ranks, and --model " + module->file + " was exported for " + std::to_string(module->batch) +
                   " each. Leave out --total-tokens, or give a multiple");
  if (s.train->leaves_out_targets())
    detail::refuse("--data " + s.options.data + " has a mask of targets, and the loss of --model " + module->file +
                   " counts all of them. Remove the mask beside the data, or train another model");
  if (s.validation && s.validation->windows() <= s.rows)
    detail::refuse("--validation-data " + s.options.validation_data + " has no batch of " + std::to_string(s.rows) +
                   " x " + std::to_string(module->sequence) + ", which --model " + module->file +
                   " was exported for. Give more text");
}

/// A setup with the model that options, or the checkpoint to resume, choose. Errors: as the other.
inline Setup make_setup(Options const& options, int ranks) {
  return make_setup(options, ranks, [](Setup& s) { static_cast<void>(choose_model(s)); });
}

}  // namespace tutti::train
