// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between a State and the sixteen tensors of a GPT-2.

#include <tutti/graph/state.hpp>
#include <tutti/nn/gpt2_initialise.hpp>

namespace tutti::nn {

/// Pointers to the parameters in the state. Errors: invalid_argument, when one is not there.
inline std::array<float*, gpt2_tensors.size()> gpt2_data(graph::State& state) {
  std::array<float*, gpt2_tensors.size()> data{};
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = state[gpt2_tensors[i].name].data();
  return data;
}
inline Gpt2Weights gpt2_weights(Gpt2Config const& config, graph::State& state) {
  Gpt2Weights weights{config};
  std::array<float*, gpt2_tensors.size()> const data = gpt2_data(state);
  std::copy(data.begin(), data.end(), weights.data.begin());
  return weights;
}

/// llm.c's initial weights, written by the ranks that write the state; the lower 32 bits of the seed count.
inline void initialise_parameters(Gpt2Config const& config, graph::State& state, std::uint64_t seed) {
  if (state.writer()) initialise_gpt2(config, gpt2_data(state), static_cast<std::uint32_t>(seed));
}

/// The same of one parameter of several, whose draws are passed over.
inline void initialise_parameter(Gpt2Config const& config, graph::Field& parameter, std::uint64_t seed) {
  std::array<float*, gpt2_tensors.size()> data{};
  for (std::size_t i = 0; i < data.size(); ++i)
    if (gpt2_tensors[i].name == parameter.name) data[i] = parameter.view<float>().data();
  initialise_gpt2(config, data, static_cast<std::uint32_t>(seed));
}

}  // namespace tutti::nn
