// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model from a StableHLO module, as JAX exports a loss: for the trainer, and for TrainStep.
///
/// The module's `main` takes parameters (float32), then tokens and targets (int32, (batch, sequence) both), and gives
/// first the mean loss, float32 (). Parameters have the names of its arguments where the text says them
/// (jax.jit(f).lower(...).as_text(debug_info=True)): params['blocks'][0]['qkv'] is "blocks.0.qkv", without the name
/// that all have in front; others are "parameter_0" and so on. They start with the tensors of the safetensors file of
/// the same name beside it, where there is one, else by their shapes.

#include <tutti/core/hash.hpp>
#include <tutti/graph/param.hpp>
#include <tutti/graph/stablehlo/import.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/train/model_facts.hpp>

#include <fmt/format.h>

#include <cctype>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// Read once, and shared by copies.
struct StablehloConfig {
  std::shared_ptr<graph::StablehloProgram const> program;
  std::shared_ptr<std::string const> text;  ///< that the program was read from
  std::string file, hash, values;           ///< `values`: the file of initial ones; empty: by shapes
  std::int64_t batch = 0, sequence = 0;     ///< of tokens and targets
  std::int64_t vocabulary = 0;              ///< 0: not known
  std::vector<graph::NamedParam> parameters;
};

/// Parameters and what is done with them.
struct StablehloParameters {
  std::shared_ptr<graph::StablehloProgram const> program;
  std::vector<graph::NamedParam> parameters;

  std::vector<graph::NamedParam>& named_parameters() noexcept { return parameters; }
  std::vector<graph::NamedParam> const& named_parameters() const noexcept { return parameters; }
};
inline StablehloParameters make_parameters(StablehloConfig const& config) {
  return {config.program, config.parameters};
}

struct StablehloLoss {
  using Config = StablehloConfig;
  /// The module divides by their number: batches that are not full have no mean of their own.
  static constexpr bool counts_every_target = true;

  graph::Var operator()(StablehloParameters const& model, graph::Var tokens, graph::Var targets) const {
    List<graph::Var> arguments;
    for (graph::NamedParam const& one : model.parameters) arguments.push_back(one.param);
    arguments.push_back(tokens);
    arguments.push_back(targets);
    return (*model.program)(*tokens.builder, arguments)[0];
  }
};

namespace detail {

/// "params['blocks'][0].qkv" as "params.blocks.0.qkv".
inline std::string dotted_name(std::string_view said) {
  std::string name;
  for (char const c : said) {
    bool const letter = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    if (letter) name += c;
    else if (!name.empty() && name.back() != '.' && c != '\'' && c != '"' && c != ']') name += '.';
  }
  while (name.ends_with('.')) name.pop_back();
  return name;
}
/// Names of so many arguments; a name that they all have in front is left out.
inline std::vector<std::string> parameter_names(List<graph::StablehloPort> const& arguments, std::size_t count) {
  std::vector<std::string> names;
  std::set<std::string> fronts, all;
  for (std::size_t i = 0; i < count; ++i) {
    names.push_back(dotted_name(arguments[i].name));
    std::size_t const dot = names[i].find('.');
    fronts.insert(dot == std::string::npos ? std::string() : names[i].substr(0, dot));
  }
  if (fronts.size() == 1 && !fronts.begin()->empty())
    for (std::string& name : names) name.erase(0, fronts.begin()->size() + 1);
  for (std::size_t i = 0; i < count; ++i)
    if (names[i].empty() || !all.insert(names[i]).second) all.insert(names[i] = "parameter_" + std::to_string(i));
  return names;
}
/// Of a name's last part: whether a vector of it multiplies.
inline bool is_scale(std::string_view name) {
  std::size_t const dot = name.rfind('.');
  std::string_view const last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  return last.starts_with("gamma") || last.ends_with("gamma") || last.find("scale") != std::string_view::npos;
}
[[noreturn]] inline void refuse_module(std::string const& file, std::string const& why) {
  throw Error(ErrorKind::configuration, "read_stablehlo",
              file + ": " + why + ". The trainer takes a function of parameters (float32), then tokens and targets "
              "(int32, (batch, sequence)), 16,384 arguments at most, that gives the mean loss (float32, ())");
}

}  // namespace detail

/// A module's text, which errors call `file`, checked to be a loss that can be trained. Errors: format and unavailable,
/// by line; configuration, for other arguments and results.
inline StablehloConfig parse_stablehlo(std::string text, std::string const& file) {
  using detail::refuse_module;
  StablehloConfig config;
  config.file = file;
  config.hash = to_hex(hash_bytes(std::as_bytes(std::span(text))));
  auto const program = std::make_shared<graph::StablehloProgram const>(text, graph::ImportOptions{.file = file});
  config.program = program;
  auto const& arguments = program->arguments();
  if (arguments.size() < 3 || arguments.size() > 16'384)
    refuse_module(file, "main has " + std::to_string(arguments.size()) + " arguments");
  std::size_t const count = arguments.size() - 2;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    DType const wanted = i < count ? DType::float32 : DType::int32;
    if (arguments[i].dtype != wanted)
      refuse_module(file, "argument " + std::to_string(i) + " of main is " + std::string(name(arguments[i].dtype)) +
                              ", not " + std::string(name(wanted)));
  }
  Shape const &tokens = arguments[count].shape, &targets = arguments[count + 1].shape;
  if (tokens.rank() != 2 || tokens != targets)
    refuse_module(file, "the last arguments of main are of shape " + to_string(tokens) + " and " + to_string(targets));
  if (program->results().empty() || program->results()[0].dtype != DType::float32 ||
      program->results()[0].shape.rank() != 0)
    refuse_module(file, "the first result of main is no float32 ()");
  config.batch = tokens[0];
  config.sequence = tokens[1];
  std::vector<std::string> const names = detail::parameter_names(arguments, count);
  for (std::size_t i = 0; i < count; ++i) {
    Shape const& shape = arguments[i].shape;
    graph::Init const init = shape.rank() > 1               ? graph::normal(0.02)
                             : detail::is_scale(names[i]) ? graph::ones()
                                                          : graph::zeros();
    config.parameters.push_back({names[i], {shape, init}});
  }
  config.text = std::make_shared<std::string const>(std::move(text));
  return config;
}
/// The module of a file, with the initial values beside it. Errors: io; those of parse_stablehlo.
inline StablehloConfig read_stablehlo(std::string const& file) {
  StablehloConfig config = parse_stablehlo(io::read_file(file), file);
  std::size_t const dot = file.rfind('.');
  std::string const values = file.substr(0, dot) + ".safetensors";
  if (dot != std::string::npos && io::file_exists(values)) config.values = values;
  return config;
}

/// Sets the parameters of a state from the file of initial values, by their names or by those of the module's
/// arguments. Errors: io, format, naming file and tensor.
inline void read_values(StablehloConfig const& config, graph::State& state) {
  io::Safetensors const file(config.values);
  for (std::size_t i = 0; i < config.parameters.size(); ++i) {
    std::string const& name = config.parameters[i].name;
    std::string const& said = config.program->arguments()[i].name;
    io::NamedTensor const& tensor = file.at(file.contains(name) || said.empty() ? name : said);
    graph::Field& field = state.at(name);
    if (tensor.dtype != DType::float32 || tensor.shape != field.shape)
      throw Error(ErrorKind::format, "read_values",
                  config.values + ": tensor '" + tensor.name + "' is " + std::string(tutti::name(tensor.dtype)) + " " +
                      to_string(tensor.shape) + ", and the module wants float32 " + to_string(field.shape) +
                      ". Write it anew, or remove the file");
    std::memcpy(field.data(), tensor.data, static_cast<std::size_t>(field.bytes()));
  }
}
/// Found by TrainStep::initialise, behind what Init says.
inline void initialise_parameters(StablehloConfig const& config, graph::State& state, std::uint64_t) {
  if (!config.values.empty()) read_values(config, state);
}

inline ModelFacts facts_of(StablehloConfig const& c) {
  double parameters = 0;
  for (graph::NamedParam const& one : c.parameters) parameters += static_cast<double>(one.param.shape.size());
  return {.architecture = "stablehlo",
          .sizes = fmt::format("{} tensors, for batches of {} x {}; initial values {}", c.parameters.size(), c.batch,
                               c.sequence,
                               c.values.empty() ? "by shape: normal 0.02, vectors named gamma or scale 1, others 0"
                                                : "of " + c.values),
          .vocabulary = c.vocabulary,
          .max_tokens = c.sequence,
          .parameters = parameters,
          .json = {{"architecture", "stablehlo"},
                   {"file", c.file},
                   {"hash", c.hash},
                   {"batch", c.batch},
                   {"sequence", c.sequence},
                   {"vocabulary", c.vocabulary}}};
}

}  // namespace tutti::train
