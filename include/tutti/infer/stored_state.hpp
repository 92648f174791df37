// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model's tensors as fields of a state, for the programs of decoding.

#include <tutti/graph/state.hpp>
#include <tutti/nn/stored_model.hpp>

#include <cstdint>
#include <cstring>

namespace tutti::infer {

/// Fields of nn::decoding_graph and nn::head_graph but the caches. Matrices are read where they lie, in memory of the
/// model's, which outlives the state; vectors are float32.
inline void add_stored(graph::State& state, nn::StoredModel const& model) {
  for (nn::StoredTensor const& tensor : model.tensors)
    if (tensor.rows == 1 && tensor.type == BlockType::f32)
      state.refer(tensor.name, DType::float32, {tensor.columns}, tensor.data);
    else
      state.refer(tensor.name, DType::uint8, {tensor.rows, row_bytes(tensor.type, tensor.columns)}, tensor.data);
  auto const& frequencies = model.rotation.frequencies;
  if (frequencies.empty()) return;
  graph::Field& field =
      *state.add("rotary.frequencies", DType::float64, {1, static_cast<std::int64_t>(frequencies.size())});
  std::memcpy(field.data(), frequencies.data(), frequencies.size() * sizeof(double));
}

}  // namespace tutti::infer
