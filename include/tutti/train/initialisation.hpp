// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How the parameters of a model start: by a hook of the model's own, or each by its Init.

#include <tutti/graph/state.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

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
/// A configuration, and nothing that it is derived from.
template <class Config>
struct Exactly {
  template <class T>
    requires std::is_same_v<T const, Config const>
  operator T&() const;
};
/// Of this very configuration: a base's would give other values than a hook for all parameters of its own.
template <class Config>
concept HasHookOfOne = requires(Exactly<Config> config, graph::Field& parameter, std::uint64_t seed) {
  initialise_parameter(config, parameter, seed);
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
/// Names under which a member would be taken for the hook. Beside one of its own, a class that inherits from both has
/// two of a name, also where it is overloaded or a template.
struct HookNames {
  void initialise_parameters();
  void initialise();
  void initialize_parameters();
  void initialize();
};
template <class T>
struct BesideHookNames : T, HookNames {};
template <class T>
concept HasMemberHook = std::is_class_v<T> && !std::is_final_v<T> &&
    !(requires { &BesideHookNames<T>::initialise_parameters; } && requires { &BesideHookNames<T>::initialise; } &&
      requires { &BesideHookNames<T>::initialize_parameters; } && requires { &BesideHookNames<T>::initialize; });
template <class Parameters>
concept IsTakenByHook = requires(Parameters& parameters, graph::State& state, std::uint64_t seed) {
  initialise_parameters(parameters, state, seed);
} || requires(Parameters& parameters, Anything any, graph::State& state, std::uint64_t seed) {
  initialise_parameters(parameters, any, state, seed);
} || requires(Parameters& parameters, graph::State& state) { initialise_parameters(parameters, state); };
/// What make_parameters(config) gives; `void` where there is no such function.
template <class Config>
struct ParametersOf {
  using type = void;
};
template <class Config>
  requires requires(Config& config) { make_parameters(config); }
struct ParametersOf<Config> {
  using type = std::remove_cvref_t<decltype(make_parameters(std::declval<Config&>()))>;
};
template <class Config>
concept HasHookOfParameters = IsTakenByHook<typename ParametersOf<Config>::type>;
template <class Config>
concept HasHookInParameters = HasMemberHook<typename ParametersOf<Config>::type>;

}  // namespace detail

/// Every field by its Init; then by the hook, a free `initialise_parameters(config, state, seed)` beside the
/// configuration's type, where there is one. `Loss`: what may hold a function of that name by mistake.
template <class Loss = void, class Config>
void initialise_state(Config& config, graph::State& state, std::uint64_t seed) {
  constexpr bool hook = detail::HasHook<Config>;
  static_assert(
      hook || !detail::HasHookOfOtherArguments<Config>,
      "initialise_parameters must be callable as initialise_parameters(config, state, seed), with the model's "
      "Config, a tutti::graph::State& and a std::uint64_t: this one takes other arguments");
  static_assert(hook || !detail::HasHookOfOne<Config>,
                "initialise_parameter(config, field, seed) gives one parameter what initialise_parameters(config, "
                "state, seed) gives it among all: write that one too");
  static_assert(hook || !detail::HasHookOfOtherName<Config>,
                "the function that initialises a model is called initialise_parameters(config, state, seed): rename "
                "this one, or give its arguments in this order");
  static_assert(hook || !(detail::HasMemberHook<Config> || detail::HasMemberHook<Loss> ||
                          detail::HasHookInParameters<Config>),
                "a model's parameters are initialised by a free function initialise_parameters(config, state, seed) in "
                "the namespace of its Config: no member function is called");
  static_assert(hook || !detail::HasHookOfParameters<Config>,
                "initialise_parameters(config, state, seed) takes the model's Config, not its parameters: these have "
                "no memory before they are traced. State::at gives a parameter by its name");
  state.initialise(seed);
  if constexpr (hook) initialise_parameters(config, state, seed);
}

/// Whether parameters can be initialised one by one: without a hook, or with one more of them,
/// `initialise_parameter(config, field, seed)`, which gives one parameter what the hook gives it.
template <class Config>
inline constexpr bool initialises_one_by_one = !detail::HasHook<Config> || detail::HasHookOfOne<Config>;

/// What initialise_state gives the field in place `place` of a model's, which is the only one of this state.
template <class Config>
void initialise_field(Config& config, graph::State& one, std::uint64_t place, std::uint64_t seed) {
  one.initialise(seed, place);
  if constexpr (detail::HasHook<Config>)
    one.initialise_parameters([&](graph::Field& field) { initialise_parameter(config, field, seed); });
}

}  // namespace tutti::train
