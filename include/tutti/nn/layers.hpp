// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layers: structs of parameters that are also functions. A struct's members are the names of its tensors.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/repeat.hpp>

#include <cstdint>

namespace tutti::nn {

using graph::Param;
using graph::Stack;
using graph::Var;

/// Shapes  weight, bias (C); x (..., C)
struct LayerNorm {
  BOOST_HANA_DEFINE_STRUCT(LayerNorm, (Param, weight), (Param, bias));
  double epsilon = 1e-5;

  constexpr Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    return layer_norm(x, weight, bias, epsilon, where);
  }
};

/// Shapes  weight (C); x (..., C)
struct RmsNorm {
  BOOST_HANA_DEFINE_STRUCT(RmsNorm, (Param, weight));
  double epsilon = 1e-5;

  constexpr Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    return rms_norm(x, weight, epsilon, where);
  }
};

/// Shapes  weight (out, in), bias (out) or absent; x (..., in)
struct Linear {
  BOOST_HANA_DEFINE_STRUCT(Linear, (Param, weight), (Param, bias));

  constexpr Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    return bias.absent ? linear(x, weight, where) : linear(x, weight, bias, where);
  }
};

/// A row for every integer. Shapes  weight (rows, C); tokens (...) of any shape gives (..., C)
struct Embedding {
  BOOST_HANA_DEFINE_STRUCT(Embedding, (Param, weight));

  constexpr Var operator()(Var tokens, graph::Where where = graph::Where::current()) const {
    return embed(weight, tokens, where);
  }
};

constexpr Embedding embedding_of(std::int64_t rows, std::int64_t channels, double deviation = 0.02) {
  Embedding layer;
  layer.weight = {{rows, channels}, graph::normal(deviation)};
  return layer;
}
constexpr LayerNorm layer_norm_of(std::int64_t channels, double epsilon = 1e-5) {
  LayerNorm layer;
  layer.weight = {{channels}, graph::ones()};
  layer.bias = {{channels}, graph::zeros()};
  layer.epsilon = epsilon;
  return layer;
}
constexpr RmsNorm rms_norm_of(std::int64_t channels, double epsilon = 1e-5) {
  RmsNorm layer;
  layer.weight = {{channels}, graph::ones()};
  layer.epsilon = epsilon;
  return layer;
}
constexpr Linear linear_of(std::int64_t in, std::int64_t out, double deviation, bool bias = true) {
  Linear layer;
  layer.weight = {{out, in}, graph::normal(deviation)};
  layer.bias = {{out}, graph::zeros()};
  layer.bias.absent = !bias;
  return layer;
}

}  // namespace tutti::nn
