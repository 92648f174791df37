// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Generated models of two layers as GGUF files, of every architecture and any type of weights, and their logits
/// computed naively in double from what the file holds.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/data/byte_alphabet.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/io/gguf_writer.hpp>
#include <tutti/tensor/mt19937.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {

struct TinyModel {
  std::string architecture = "llama";  ///< gpt2, llama, qwen2, phi3
  BlockType type = BlockType::f32;
  bool tied = true, packed_qkv = false, rope_factors = false;
  std::int64_t window = 0;
  std::int64_t layers = 2, heads = 4, kv_heads = 2, head_size = 64, channels = 256, hidden = 512, vocabulary = 96,
               positions = 64;
  float deviation = 0.15f;
  /// Tokens are the 256 bytes and three marks, of which the last ends a text: any text has ids. Sets the vocabulary.
  bool bytes = false;
  std::string chat_template = "";
  std::string extra = "";  ///< a vector of this name beside the model's tensors
  float scale_linear = 0;  ///< of rotations, under the name that old files have; 0: none

  bool gpt2() const { return architecture == "gpt2"; }
  std::int64_t q() const { return heads * head_size; }
  std::int64_t kv() const { return (gpt2() ? heads : kv_heads) * head_size; }
};

/// A small one with a token for every byte, and a chat template.
inline TinyModel tiny_byte_model(std::int64_t positions = 512) {
  TinyModel sizes;
  sizes.bytes = true;
  sizes.positions = positions;
  sizes.heads = 2, sizes.kv_heads = 1, sizes.channels = 64, sizes.head_size = 32, sizes.hidden = 128;
  sizes.chat_template = "{{ <|im_start|> and <|im_end|> }}";
  return sizes;
}

/// Writes it. Tokens are those of a vocabulary of bytes and words, so that texts have ids.
inline void write_tiny_gguf(std::string const& path, TinyModel m, std::uint32_t seed = 1) {
  if (m.bytes) m.vocabulary = 259;
  io::GgufMetadata meta;
  auto const key = [&](char const* name) { return m.architecture + "." + name; };
  auto const number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  meta.set("general.architecture", m.architecture);
  meta.set(key("block_count"), number(m.layers)).set(key("embedding_length"), number(m.channels));
  meta.set(key("context_length"), number(m.positions)).set(key("attention.head_count"), number(m.heads));
  meta.set(key("feed_forward_length"), number(m.gpt2() ? 4 * m.channels : m.hidden));
  if (m.gpt2()) {
    meta.set(key("attention.layer_norm_epsilon"), 1e-5f);
  } else {
    meta.set(key("attention.head_count_kv"), number(m.kv_heads)).set(key("rope.freq_base"), 10000.0f);
    meta.set(key("attention.layer_norm_rms_epsilon"), 1e-5f).set(key("rope.dimension_count"), number(m.head_size));
    meta.set(key("attention.key_length"), number(m.head_size));
    if (m.window > 0) meta.set(key("attention.sliding_window"), number(m.window));
    if (m.scale_linear > 0) meta.set(key("rope.scale_linear"), m.scale_linear);
  }
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (std::int64_t i = 0; i < m.vocabulary; ++i) {
    // Printable characters stand for themselves in the byte alphabet.
    if (m.bytes) {
      std::string text = i == 256 ? "<|im_start|>" : i == 257 ? "<|im_end|>" : "<|endoftext|>";
      if (i < 256) text = data::spell_bytes(std::string(1, static_cast<char>(i)));
      tokens.push_back(text);
      types.push_back(i < 256 ? 1 : 3);
      continue;
    }
    bool const end = i + 1 == m.vocabulary;
    tokens.push_back(end ? "<|endoftext|>" : std::string(1, static_cast<char>('!' + i % 94)));
    if (!end && i >= 94) tokens.back() += tokens.back();
    types.push_back(end ? 3 : 1);
  }
  meta.set("tokenizer.ggml.model", std::string("gpt2")).set("tokenizer.ggml.pre", std::string("gpt-2"));
  meta.set("tokenizer.ggml.tokens", io::GgufArray(tokens)).set("tokenizer.ggml.token_type", io::GgufArray(types));
  meta.set("tokenizer.ggml.merges", io::GgufArray(std::vector<std::string>{}));
  meta.set("tokenizer.ggml.eos_token_id", number(m.vocabulary - 1));
  if (!m.chat_template.empty()) meta.set("tokenizer.chat_template", m.chat_template);

  Mt19937 generator(seed);
  std::vector<io::GgufTensorPlan> plan;
  std::vector<std::string> data;
  auto const add = [&](std::string const& name, BlockType type, Shape const& shape, float mean, float deviation) {
    std::vector<float> values(static_cast<std::size_t>(shape.size()));
    generator.fill_normal(values, mean, deviation);
    plan.push_back({name, type, shape});
    data.emplace_back(static_cast<std::size_t>(plan.back().bytes()), '\0');
    quantise(type, values.data(), shape.size(), data.back().data());
  };
  auto const matrix = [&](std::string const& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", m.type, {out, in}, 0, m.deviation);
  };
  auto const vector = [&](std::string const& name, std::int64_t size, float mean) {
    add(name, BlockType::f32, {size}, mean, 0.3f);
  };
  matrix("token_embd", m.vocabulary, m.channels);
  if (m.gpt2()) matrix("position_embd", m.positions, m.channels);
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    std::string const block = "blk." + std::to_string(layer) + ".";
    bool const biases = m.gpt2();
    auto const linear = [&](std::string const& name, std::int64_t out, std::int64_t in, bool bias) {
      matrix(block + name, out, in);
      if (bias) vector(block + name + ".bias", out, 0);
    };
    auto const norm = [&](std::string const& name) {
      vector(block + name + ".weight", m.channels, 1);
      if (m.gpt2()) vector(block + name + ".bias", m.channels, 0);
    };
    norm("attn_norm");
    if (m.gpt2() || m.packed_qkv) {
      linear("attn_qkv", m.q() + 2 * m.kv(), m.channels, biases);
    } else {
      bool const qwen = m.architecture == "qwen2";
      linear("attn_q", m.q(), m.channels, qwen);
      linear("attn_k", m.kv(), m.channels, qwen);
      linear("attn_v", m.kv(), m.channels, qwen);
    }
    linear("attn_output", m.channels, m.q(), biases);
    norm("ffn_norm");
    if (m.gpt2()) {
      linear("ffn_up", 4 * m.channels, m.channels, true);
      linear("ffn_down", m.channels, 4 * m.channels, true);
    } else {
      if (m.architecture == "phi3") {
        linear("ffn_up", 2 * m.hidden, m.channels, false);
      } else {
        linear("ffn_gate", m.hidden, m.channels, false);
        linear("ffn_up", m.hidden, m.channels, false);
      }
      linear("ffn_down", m.channels, m.hidden, false);
    }
  }
  vector("output_norm.weight", m.channels, 1);
  if (m.gpt2()) vector("output_norm.bias", m.channels, 0);
  if (!m.tied) matrix("output", m.vocabulary, m.channels);
  if (m.rope_factors) {
    plan.push_back({"rope_freqs.weight", BlockType::f32, {m.head_size / 2}});
    std::vector<float> factors(static_cast<std::size_t>(m.head_size / 2));
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0f + static_cast<float>(i) / 8;
    data.emplace_back(reinterpret_cast<char const*>(factors.data()), factors.size() * sizeof(float));
  }
  if (!m.extra.empty()) vector(m.extra, m.hidden, 0);
  io::GgufWriter writer(path, meta, plan);
  for (std::string const& bytes : data) writer.write(bytes.data(), bytes.size());
  writer.commit();
}

/// A file's model in double, one token after another.
class TinyReference {
 public:
  TinyReference(io::Gguf const& file, TinyModel const& m) : m_(m), keys_(at(m.layers)), values_(at(m.layers)) {
    for (io::GgufTensor const& tensor : file.tensors()) {
      std::vector<float> values(at(tensor.shape.size()));
      dequantise(tensor.type, tensor.data, tensor.shape.size(), values.data());
      tensors_[tensor.name] = {values.begin(), values.end()};
    }
  }

  /// Logits behind `token`.
  std::vector<double> operator()(std::int32_t token) {
    std::int64_t const c = m_.channels, position = length_++;
    std::vector<double> x = row("token_embd.weight", token, c);
    if (m_.gpt2()) {
      auto const p = row("position_embd.weight", position, c);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += p[i];
    }
    for (std::int64_t layer = 0; layer < m_.layers; ++layer) {
      std::string const block = "blk." + std::to_string(layer) + ".";
      add_to(x, linear(block + "attn_output", attention(layer, block, norm(block + "attn_norm", x), position), c));
      auto const h = norm(block + "ffn_norm", x);
      std::vector<double> inner;
      if (m_.gpt2()) {
        inner = linear(block + "ffn_up", h, 4 * c);
        for (double& v : inner) v = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
      } else {
        bool const packed = m_.architecture == "phi3";
        auto const both = packed ? linear(block + "ffn_up", h, 2 * m_.hidden) : std::vector<double>();
        auto gate = packed ? std::vector<double>(both.begin(), both.begin() + m_.hidden)
                           : linear(block + "ffn_gate", h, m_.hidden);
        auto const up =
            packed ? std::vector<double>(both.begin() + m_.hidden, both.end()) : linear(block + "ffn_up", h, m_.hidden);
        for (std::size_t i = 0; i < gate.size(); ++i) inner.push_back(gate[i] / (1 + std::exp(-gate[i])) * up[i]);
      }
      add_to(x, linear(block + "ffn_down", inner, c));
    }
    return linear(m_.tied ? "token_embd" : "output", norm("output_norm", x), m_.vocabulary);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static void add_to(std::vector<double>& x, std::vector<double> const& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  std::vector<double> row(std::string const& name, std::int64_t index, std::int64_t width) const {
    auto const& all = tensors_.at(name);
    return {all.begin() + index * width, all.begin() + (index + 1) * width};
  }
  std::vector<double> norm(std::string const& name, std::vector<double> const& x) const {
    auto const& weight = tensors_.at(name + ".weight");
    double mean = 0, square = 0;
    auto const size = static_cast<double>(x.size());
    if (m_.gpt2())
      for (double const v : x) mean += v / size;
    for (double const v : x) square += (v - mean) * (v - mean) / size;
    std::vector<double> y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(square + 1e-5) * weight[i] +
                  (m_.gpt2() ? tensors_.at(name + ".bias")[i] : 0.0));
    return y;
  }
  std::vector<double> linear(std::string const& name, std::vector<double> const& x, std::int64_t out) const {
    auto const& weight = tensors_.at(name + ".weight");
    auto const bias = tensors_.find(name + ".bias");
    std::vector<double> y;
    for (std::size_t o = 0; o < at(out); ++o) {
      double sum = bias == tensors_.end() ? 0.0 : bias->second[o];
      for (std::size_t i = 0; i < x.size(); ++i) sum += weight[o * x.size() + i] * x[i];
      y.push_back(sum);
    }
    return y;
  }
  std::vector<double> attention(std::int64_t layer, std::string const& block, std::vector<double> const& x,
                                std::int64_t position) {
    std::int64_t const d = m_.head_size, q_size = m_.q(), kv_size = m_.kv();
    std::vector<double> q, k, v;
    if (m_.gpt2() || m_.packed_qkv) {
      auto const all = linear(block + "attn_qkv", x, q_size + 2 * kv_size);
      q.assign(all.begin(), all.begin() + q_size);
      k.assign(all.begin() + q_size, all.begin() + q_size + kv_size);
      v.assign(all.begin() + q_size + kv_size, all.end());
    } else {
      q = linear(block + "attn_q", x, q_size);
      k = linear(block + "attn_k", x, kv_size);
      v = linear(block + "attn_v", x, kv_size);
    }
    if (!m_.gpt2()) rotate(q, position), rotate(k, position);
    auto &keys = keys_[at(layer)], &values = values_[at(layer)];
    keys.push_back(k);
    values.push_back(v);
    std::size_t const first = m_.window > 0 ? at(std::max<std::int64_t>(0, position + 1 - m_.window)) : 0;
    std::vector<double> out(at(q_size));
    for (std::int64_t head = 0; head < m_.heads; ++head) {
      std::int64_t const shared = head / (q_size / kv_size);
      std::vector<double> p;
      double top = -1e300, total = 0;
      for (std::size_t t = first; t < keys.size(); ++t) {
        double dot = 0;
        for (std::int64_t i = 0; i < d; ++i) dot += q[at(head * d + i)] * keys[t][at(shared * d + i)];
        p.push_back(dot / std::sqrt(static_cast<double>(d)));
        top = std::max(top, p.back());
      }
      for (double& value : p) total += value = std::exp(value - top);
      for (std::size_t t = first; t < keys.size(); ++t)
        for (std::int64_t i = 0; i < d; ++i)
          out[at(head * d + i)] += p[t - first] / total * values[t][at(shared * d + i)];
    }
    return out;
  }
  void rotate(std::vector<double>& x, std::int64_t position) const {
    std::int64_t const d = m_.head_size;
    for (std::int64_t head = 0; head < static_cast<std::int64_t>(x.size()) / d; ++head)
      for (std::int64_t i = 0; i < d / 2; ++i) {
        double angle =
            static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        if (m_.rope_factors) angle /= 1.0 + static_cast<double>(i) / 8;
        bool const neighbours = m_.architecture == "llama";
        double& a = x[at(head * d + (neighbours ? 2 * i : i))];
        double& b = x[at(head * d + (neighbours ? 2 * i + 1 : i + d / 2))];
        double const kept = a;
        a = kept * std::cos(angle) - b * std::sin(angle);
        b = kept * std::sin(angle) + b * std::cos(angle);
      }
  }

  TinyModel m_;
  std::map<std::string, std::vector<double>> tensors_;
  std::vector<std::vector<std::vector<double>>> keys_, values_;
  std::int64_t length_ = 0;
};

}  // namespace tutti::test
