// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How the parameters of a model start: by a hook of the model's own, or each by its Init; and whether they have.

#include <tutti/core/error.hpp>
#include <tutti/graph/state.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>

namespace tutti::train {

namespace detail {

/// In the place of any argument but the configuration.
struct Anything {
  template <class T>
  operator T&() const;
  template <class T>
  operator T&&() const;
};
template <class Config>
concept HasHook = requires(Config& config, graph::State& state, std::uint64_t seed) {
  initialise_parameters(config, state, seed);
};
/// A function of the hook's name that takes a configuration and something else.
template <class Config>
concept HasHookOfOtherArguments = requires(Config& config, Anything any) { initialise_parameters(config); } ||
    requires(Config& config, Anything any) { initialise_parameters(config, any); } ||
    requires(Config& config, Anything any) { initialise_parameters(any, config); } ||
    requires(Config& config, Anything any) { initialise_parameters(config, any, any); } ||
    requires(Config& config, Anything any) { initialise_parameters(any, config, any); } ||
    requires(Config& config, Anything any) { initialise_parameters(any, any, config); } ||
    requires(Config& config, Anything any) { initialise_parameters(config, any, any, any); };
template <class Config>
concept HasHookOfOtherName = requires(Config& config, graph::State& state, std::uint64_t seed) {
  initialise(config, state, seed);
} || requires(Config& config, graph::State& state, std::uint64_t seed) { initialise(state, config, seed); } ||
    requires(Config& config, graph::State& state) { initialise(config, state); } ||
    requires(Config& config, graph::State& state, std::uint64_t seed) { initialize(config, state, seed); } ||
    requires(Config& config, graph::State& state, std::uint64_t seed) { initialize_parameters(config, state, seed); };

}  // namespace detail

/// Every field by its Init; then by the hook, a free `initialise_parameters(config, state, seed)` beside the
/// configuration's type, where there is one.
template <class Config>
void initialise_state(Config& config, graph::State& state, std::uint64_t seed) {
  constexpr bool hook = detail::HasHook<Config>;
  static_assert(
      hook || !detail::HasHookOfOtherArguments<Config>,
      "initialise_parameters must be callable as initialise_parameters(config, state, seed), with the model's "
      "Config, a tutti::graph::State& and a std::uint64_t: this one takes other arguments");
  static_assert(hook || !detail::HasHookOfOtherName<Config>,
                "the function that initialises a model is called initialise_parameters(config, state, seed): rename "
                "this one, or give its arguments in this order");
  state.initialise(seed);
  if constexpr (hook) initialise_parameters(config, state, seed);
}

/// Errors: invalid_argument, for a parameter that starts with random values and holds zeros alone.
inline void require_initialised(graph::State const& state,
                                std::source_location where = std::source_location::current()) {
  for (graph::Field const& field : state.fields()) {
    if (!field.parameter || field.init.kind != graph::Init::Kind::normal || field.bytes() == 0 ||
        field.init.deviation == 0)
      continue;
    std::span const bytes(static_cast<unsigned char const*>(field.data()), static_cast<std::size_t>(field.bytes()));
    if (std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; }))
      throw Error(ErrorKind::invalid_argument, "TrainStep",
                  "parameter '" + field.name +
                      "' starts with random values and was never given any. Call initialise(seed) "
                      "before the first step, or write the parameters into state()",
                  where);
  }
}

}  // namespace tutti::train
