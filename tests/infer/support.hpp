// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A small model, and its logits computed naively in double.

#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/nn/gpt2_weights.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti::test {

using Row = std::vector<double>;

/// Tensors of a small model with weights large enough that every part of it matters.
struct Gpt2Model {
  nn::Gpt2Config config{
      .layers = 2, .heads = 3, .channels = 24, .vocabulary = 50, .padded_vocabulary = 128, .max_tokens = 16};
  std::array<std::vector<float>, 16> tensors;
  nn::Gpt2Weights weights;

  Gpt2Model() {
    std::array<float*, 16> data{};
    for (std::size_t i = 0; i < 16; ++i) {
      tensors[i].resize(static_cast<std::size_t>(nn::gpt2_shape(config, i).size()));
      data[i] = tensors[i].data();
      weights.data[i] = data[i];
    }
    weights.config = config;
    nn::initialise_gpt2(config, data, 7);
    Mt19937 generator(3);
    for (auto& tensor : tensors) {
      std::vector<float> noise(tensor.size());
      generator.fill_normal(noise, 0.0f, 0.2f);
      for (std::size_t i = 0; i < noise.size(); ++i) tensor[i] += noise[i];
    }
  }
};

inline Row linear(Row const& x, float const* w, float const* b, std::size_t out) {
  Row y(out);
  for (std::size_t o = 0; o < out; ++o) {
    y[o] = b == nullptr ? 0.0 : double(b[o]);
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += x[i] * double(w[o * x.size() + i]);
  }
  return y;
}
inline Row norm(Row const& x, float const* g, float const* b) {
  double mean = 0, variance = 0;
  for (double v : x) mean += v / double(x.size());
  for (double v : x) variance += (v - mean) * (v - mean) / double(x.size());
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * double(g[i]) + double(b[i]);
  return y;
}

/// Logits after the last token, everything computed anew in double.
inline Row oracle(Gpt2Model const& m, std::vector<std::int32_t> const& tokens) {
  std::size_t const c = std::size_t(m.config.channels), heads = std::size_t(m.config.heads), hs = c / heads;
  auto const t = [&](std::size_t i, std::size_t layer) {
    return m.tensors[i].data() + layer * m.tensors[i].size() / std::size_t(m.config.layers);
  };
  std::vector<Row> x;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Row row(c);
    for (std::size_t j = 0; j < c; ++j)
      row[j] = double(m.tensors[0][std::size_t(tokens[i]) * c + j]) + double(m.tensors[1][i * c + j]);
    x.push_back(row);
  }
  for (std::size_t layer = 0; layer < std::size_t(m.config.layers); ++layer) {
    std::vector<Row> qkv;
    for (Row const& row : x)
      qkv.push_back(linear(norm(row, t(2, layer), t(3, layer)), t(4, layer), t(5, layer), 3 * c));
    for (std::size_t i = 0; i < x.size(); ++i) {
      Row mixed(c);
      for (std::size_t h = 0; h < heads; ++h) {
        Row p(i + 1);
        double mass = 0;
        for (std::size_t k = 0; k <= i; ++k) {
          for (std::size_t d = 0; d < hs; ++d)
            p[k] += qkv[i][h * hs + d] * qkv[k][c + h * hs + d] / std::sqrt(double(hs));
          mass += p[k] = std::exp(p[k]);
        }
        for (std::size_t k = 0; k <= i; ++k)
          for (std::size_t d = 0; d < hs; ++d) mixed[h * hs + d] += p[k] / mass * qkv[k][2 * c + h * hs + d];
      }
      Row const projected = linear(mixed, t(6, layer), t(7, layer), c);
      for (std::size_t j = 0; j < c; ++j) x[i][j] += projected[j];
    }
    for (Row& row : x) {
      Row hidden = linear(norm(row, t(8, layer), t(9, layer)), t(10, layer), t(11, layer), 4 * c);
      for (double& v : hidden) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      Row const out = linear(hidden, t(12, layer), t(13, layer), c);
      for (std::size_t j = 0; j < c; ++j) row[j] += out[j];
    }
  }
  return linear(norm(x.back(), m.tensors[14].data(), m.tensors[15].data()), m.tensors[0].data(), nullptr,
                std::size_t(m.config.vocabulary));
}

}  // namespace tutti::test
