// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd tells its workers to train: a model, as the sizes of a GPT-2 or a LLaMA or the text of a StableHLO
/// module; how its inner steps learn, and from which data, by their hash. As text, for the wire and the shepherd's
/// folder.

#include <tutti/data/loader.hpp>
#include <tutti/io/json.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_gradient.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/options.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::federate {

/// The parameters as one flat vector: `sizes` become the fragments that are averaged at times of their own, one behind
/// another; of one there are none. Errors: those of parallel::fragments_of.
inline parallel::Fragment flat_order(graph::State const& state, int fragments, std::vector<std::int64_t>& sizes) {
  parallel::Fragment all;
  sizes.clear();
  for (parallel::Fragment const& fragment : parallel::fragments_of(state, fragments)) {
    all.insert(all.end(), fragment.begin(), fragment.end());
    if (fragments > 1) sizes.push_back(parallel::size(fragment));
  }
  return all;
}

/// A hash of all tokens, in order. Reads every token once.
inline std::uint64_t hash_corpus(data::TokenCorpus const& corpus) {
  std::uint64_t hash = 0;
  std::vector<std::int32_t> block(std::size_t{1} << 16);
  for (io::TokenShard const& shard : corpus.shards()) {
    io::TokenView const tokens = shard.tokens();
    for (std::size_t at = 0; at < tokens.size(); at += block.size()) {
      std::size_t const count = std::min(block.size(), tokens.size() - at);
      tokens.copy(at, count, block.data());
      hash = hash_bytes(std::as_bytes(std::span(block).first(count)), hash);
    }
    hash = hash_bytes({}, hash);  // where one file ends matters: windows do not cross it
  }
  return hash;
}

struct Program {
  train::ModelConfig model;
  train::Options options;             ///< of these, what `travels` says
  std::int64_t steps = 1;             ///< the run's length in inner steps of samples_per_step samples, for the schedule
  std::int64_t samples_per_step = 1;  ///< of all workers that were waited for
  std::string data_hash, tokenizer_hash;
  std::int64_t data_tokens = 0;
  double outer_learning_rate = 0.7, outer_momentum = 0.9;
  parallel::OuterBits bits = parallel::OuterBits::float32;
  int fragments = 1;   ///< averaged at times of their own
  bool whole = false;  ///< they only give the parameters their order: behind a relay all are averaged at once

  /// Settings that decide what is learned.
  static bool travels(train::Flag const& flag) noexcept {
    std::string_view const group = flag.group, name = flag.name;
    return (group == "Optimizer" && name != "steps") || name == "batch" || name == "sequence" || name == "seed";
  }
};

namespace detail {

inline nlohmann::json describe_model(train::ModelConfig const& model) {
  return std::visit(
      []<class Config>(Config const& config) {
        train::ModelFacts facts = train::facts_of(config);
        facts.json["architecture"] = facts.architecture;
        if constexpr (std::is_same_v<Config, train::StablehloConfig>) {
          facts.json["file"] = std::filesystem::path(config.file).filename().string();
          facts.json["text"] = *config.text;
        }
        return facts.json;
      },
      model);
}
/// What describe_model wrote. Errors: nlohmann::json::exception; format, configuration, unavailable.
inline train::ModelConfig model_of(nlohmann::json const& m) {
  std::string const architecture = m.at("architecture");
  auto const sound = [](auto config) {
    nn::validate(config);
    return train::ModelConfig(config);
  };
  if (architecture == "gpt2") return sound(train::gpt2_config(m));
  if (architecture == "llama") return sound(train::llama_config(m));
  if (architecture != "stablehlo")
    throw Error(ErrorKind::unavailable, "federate",
                "the shepherd's model is of another architecture than gpt2, llama and stablehlo. Use programs of one "
                "release");
  train::StablehloConfig config = train::parse_stablehlo(m.at("text"), "the shepherd's module");
  config.vocabulary = m.at("vocabulary");
  return config;
}

}  // namespace detail

inline std::string to_text(Program const& program) {
  nlohmann::json settings = nlohmann::json::object();
  train::for_each_flag(program.options, [&](train::Flag const& flag, auto const& value, auto const&) {
    if (Program::travels(flag)) settings[flag.name] = value;
  });
  nlohmann::json json = {{"kind", "model"},
                         {"version", 3},
                         {"model", detail::describe_model(program.model)},
                         {"settings", settings},
                         {"steps", program.steps},
                         {"samples_per_step", program.samples_per_step},
                         {"data", {{"hash", program.data_hash}, {"tokens", program.data_tokens}}},
                         {"tokenizer_hash", program.tokenizer_hash},
                         {"outer",
                          {{"fragments", program.fragments},
                           {"learning_rate", program.outer_learning_rate},
                           {"momentum", program.outer_momentum},
                           {"bits", setting::spelling<parallel::OuterBits>[static_cast<std::size_t>(program.bits)]}}}};
  if (program.whole) json["outer"]["whole"] = true;
  try {
    return json.dump(2) + "\n";
  } catch (nlohmann::json::exception const& error) {
    throw Error(ErrorKind::configuration, "federate",
                "--model " + program.options.model + " is no UTF-8 text, in which workers are told of it. Convert it")
        .with_native(error.what());
  }
}

/// Every value is checked as if it had come from a command line. Errors: format, configuration.
inline Program parse_program(std::string_view text) {
  Program program;
  try {
    nlohmann::json const json = io::parse_json(text, "the shepherd's program", "federate");
    if (json.at("kind") != "model" || json.at("version") != 3)
      throw Error(ErrorKind::unavailable, "federate",
                  "the shepherd's program is of kind " + json.at("kind").dump() + ", version " +
                      json.at("version").dump() +
                      "; this worker knows kind model, version 3. Use programs of one release");
    nlohmann::json const &settings = json.at("settings"), &outer = json.at("outer");
    program.model = detail::model_of(json.at("model"));
    train::for_each_flag(program.options, [&]<class T>(train::Flag const& flag, T& value, auto const&) {
      if (Program::travels(flag)) value = settings.at(flag.name).get<T>();
    });
    program.steps = json.at("steps");
    program.samples_per_step = json.at("samples_per_step");
    program.data_hash = json.at("data").at("hash");
    program.data_tokens = json.at("data").at("tokens");
    program.tokenizer_hash = json.at("tokenizer_hash");
    program.outer_learning_rate = outer.at("learning_rate");
    program.outer_momentum = outer.at("momentum");
    program.fragments = outer.at("fragments");
    program.whole = outer.value("whole", false);
    auto const& names = setting::spelling<parallel::OuterBits>;
    auto const bits = std::find(names.begin(), names.end(), outer.at("bits").get<std::string>());
    if (bits == names.end())
      throw Error(ErrorKind::format, "federate", "the shepherd's program has outer gradients of unknown bits");
    program.bits = static_cast<parallel::OuterBits>(bits - names.begin());
  } catch (nlohmann::json::exception const& error) {
    throw Error(ErrorKind::format, "federate", "the shepherd's program lacks a fact or has one of another type")
        .with_native(error.what());
  }
  train::for_each_flag(program.options, [&](train::Flag const& flag, auto const& value, auto const& may) {
    if (Program::travels(flag)) train::detail::check_value(program.options, flag, value, may);
  });
  train::Options const& o = program.options;
  bool const fits = std::visit(
      [&]<class Config>(Config const& config) {
        if constexpr (std::is_same_v<Config, train::StablehloConfig>)
          if (o.batch != config.batch || o.sequence != config.sequence) return false;
        return o.sequence <= train::facts_of(config).max_tokens &&
               (std::is_same_v<Config, nn::Gpt2Config> || (o.dropout == 0 && o.attention_dropout == 0));
      },
      program.model);
  if (program.steps < 1 || program.samples_per_step < 1 || program.fragments < 1 || !fits)
    throw Error(ErrorKind::format, "federate", "the shepherd's program has sizes that do not fit each other");
  return program;
}

}  // namespace tutti::federate
