// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tensors of a model under the names that its files give them, and how their numbers stream there.

#include <tutti/core/block_quantise.hpp>
#include <tutti/train/model_source.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// What a conversion does, and tells while it does it.
struct ModelExport {
  BlockType type = BlockType::f16;
  /// Called behind every tensor: its name, what it became, bytes written so far and in all.
  std::function<void(std::string const&, BlockType, std::int64_t, std::int64_t)> progress{};
};

/// A tensor that will be written. Its shape is that of the file; a turned one has its columns as rows there.
struct ExportedTensor {
  std::string name;
  Shape shape;
  SourceMatrix from;
  bool turned = false;
};

namespace detail {

inline ExportedTensor exported_table(std::string name, SourceMatrix from) {
  Shape const shape{from.rows(), from.columns};
  return {std::move(name), shape, std::move(from)};
}
inline ExportedTensor exported_vector(std::string name, SourceMatrix from) {
  Shape const shape{from.rows()};
  return {std::move(name), shape, std::move(from)};
}
/// The matrices below one another.
inline SourceMatrix joined(std::vector<SourceMatrix> const& all) {
  SourceMatrix result{all.front().columns, {}};
  for (SourceMatrix const& one : all) result.parts.insert(result.parts.end(), one.parts.begin(), one.parts.end());
  return result;
}
inline std::string block_name(std::int64_t layer) { return "blk." + std::to_string(layer) + "."; }

/// Tensor `index` of nn::gpt2_tensors, of a layer or (-1) of no layer.
inline SourceMatrix gpt2_tensor(ModelSource const& source, std::size_t index, std::int64_t layer, std::int64_t padded) {
  nn::Gpt2Config const& c = source.gpt2_config();
  SourceTensors const tensors(source);
  std::string const name = (layer < 0 ? "" : block_name(layer)) + std::string(gpt2_gguf_names[index]);
  if (index == 0) return tensors.table(name, padded);
  Shape const shape = nn::gpt2_shape(c, index);
  std::int64_t const width = shape[shape.rank() - 1];
  if (shape.rank() == (layer < 0 ? 1 : 2)) return tensors.vector(name, width);
  return tensors.matrix(name, shape[shape.rank() - 2], width);
}

/// GPT-2 alone: the head must be the embedding. Errors: configuration.
inline void require_tied(ModelSource const& source, char const* target) {
  if (source.model.find("output.weight") == nullptr) return;
  SourceTensors const tensors(source);
  SourceMatrix const head = tensors.table("output.weight", 0), embedding = tensors.table("token_embd.weight", 0);
  std::vector<float> a(static_cast<std::size_t>(head.columns)), b = a;
  for (std::int64_t row = 0; row < head.rows(); ++row) {
    read_rows(head, row, 1, a.data());
    read_rows(embedding, row, 1, b.data());
    if (a != b)
      throw Error(ErrorKind::configuration, "convert",
                  "the head of '" + source.model.source + "' has weights of its own, which " + target +
                      " cannot hold. Choose a GGUF file");
  }
}

}  // namespace detail

/// The library's own parameters of a source, layers stacked, rotations between neighbours; embedding and head have
/// `padded` rows. Errors: format; configuration, for a head that GPT-2 has not.
inline std::vector<ExportedTensor> stacked_tensors(ModelSource const& source, std::int64_t padded) {
  std::vector<ExportedTensor> all;
  SourceTensors const tensors(source);
  if (source.gpt2()) {
    detail::require_tied(source, "a GPT-2 here");
    nn::Gpt2Config c = source.gpt2_config();
    c.padded_vocabulary = padded;
    for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i) {
      std::vector<SourceMatrix> layers;
      for (std::int64_t layer = 0; layer < (nn::gpt2_tensors[i].stacked ? c.layers : 1); ++layer)
        layers.push_back(detail::gpt2_tensor(source, i, nn::gpt2_tensors[i].stacked ? layer : -1, padded));
      all.push_back({std::string(nn::gpt2_tensors[i].name), nn::gpt2_shape(c, i), detail::joined(layers)});
    }
    return all;
  }
  nn::LlamaConfig const& c = source.llama_config();
  std::int64_t const n = c.channels, q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  auto const stacked = [&](char const* name, Shape const& shape, auto&& of_layer) {
    std::vector<SourceMatrix> layers;
    for (std::int64_t layer = 0; layer < c.layers; ++layer) layers.push_back(of_layer(layer));
    all.push_back({name, shape, detail::joined(layers)});
  };
  auto const vector = [&](char const* name, char const* gguf) {
    stacked(name, {c.layers, n}, [&](auto layer) { return tensors.vector(detail::block_name(layer) + gguf, n); });
  };
  auto const matrix = [&](char const* name, char const* gguf, std::int64_t rows, std::int64_t columns) {
    stacked(name, {c.layers, rows, columns},
            [&](auto layer) { return tensors.matrix(detail::block_name(layer) + gguf, rows, columns); });
  };
  auto const heads = [&](bool bias) {
    return [&, bias](std::int64_t layer) {
      std::vector<SourceMatrix> three;
      for (int which = 0; which < 3; ++which)
        three.push_back(tensors.heads(layer, which, bias, kernel::RotaryPairing::interleaved));
      return detail::joined(three);
    };
  };
  all.push_back({"embedding", {padded, n}, tensors.table("token_embd.weight", padded)});
  vector("blocks.norm_1.weight", "attn_norm.weight");
  stacked("blocks.qkv.weight", {c.layers, q + 2 * kv, n}, heads(false));
  if (c.qkv_bias) stacked("blocks.qkv.bias", {c.layers, q + 2 * kv}, heads(true));
  matrix("blocks.proj.weight", "attn_output.weight", n, q);
  vector("blocks.norm_2.weight", "ffn_norm.weight");
  matrix("blocks.gated.gate.weight", "ffn_gate.weight", c.hidden, n);
  matrix("blocks.gated.up.weight", "ffn_up.weight", c.hidden, n);
  matrix("blocks.down.weight", "ffn_down.weight", n, c.hidden);
  all.push_back({"norm.weight", {n}, tensors.vector("output_norm.weight", n)});
  if (!c.tied) all.push_back({"head", {padded, n}, tensors.table("output.weight", padded)});
  return all;
}
/// For training: embedding and head are padded to a multiple of 128 rows. Errors: format; configuration, for a head or
/// rotations that training has not.
inline std::vector<ExportedTensor> parameter_tensors(ModelSource const& source) {
  if (!source.gpt2() && !rotates_plainly(source))
    throw Error(ErrorKind::configuration, "convert",
                "'" + source.model.source +
                    "' stretches its rotations for long texts, or rotates a part of each head alone, which models in "
                    "training do not. Use a model without rope_scaling");
  return stacked_tensors(source, nn::padded_vocabulary(source.classes()));
}

namespace detail {

/// Bytes of a tensor in a file.
inline std::int64_t exported_bytes(ExportedTensor const& tensor, BlockType type) {
  std::int64_t const width = tensor.shape[tensor.shape.rank() - 1];
  return checked_multiply(tensor.shape.size() / width, row_bytes(type, width));
}

/// Gives a tensor's bytes in pieces, a few MiB of it at a time; a turned one whole. Errors: overflow (a number that
/// float16 cannot hold), naming the tensor; what quantise throws.
template <class Write>
void stream_tensor(ExportedTensor const& tensor, BlockType type, Write&& write) {
  std::int64_t const columns = tensor.from.columns, rows = tensor.from.rows();
  std::vector<float> values;
  std::string bytes;
  auto const put = [&](std::int64_t count) {
    if (type == BlockType::f16)
      for (std::int64_t i = 0; i < count; ++i)
        if (float const x = values[static_cast<std::size_t>(i)]; std::isfinite(x) && std::abs(x) >= 65520.0f)
          throw Error(ErrorKind::overflow, "convert",
                      "tensor '" + tensor.name + "' has a number beyond those of float16, 65504. Use BF16 or F32");
    bytes.resize(static_cast<std::size_t>(row_bytes(type, count)));
    quantise(type, values.data(), count, bytes.data());
    write(bytes.data(), bytes.size());
  };
  if (tensor.turned) {
    std::vector<float> whole(static_cast<std::size_t>(rows * columns));
    read_rows(tensor.from, 0, rows, whole.data());
    values.resize(whole.size());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        values[static_cast<std::size_t>(j * rows + i)] = whole[static_cast<std::size_t>(i * columns + j)];
    return put(rows * columns);
  }
  // A vector is one row of a file's blocks: it is not cut.
  std::int64_t const step =
      columns == 1 ? rows : std::max<std::int64_t>(1, (std::int64_t{1} << 20) / columns);
  for (std::int64_t first = 0; first < rows; first += step) {
    std::int64_t const now = std::min(step, rows - first);
    values.resize(static_cast<std::size_t>(now * columns));
    read_rows(tensor.from, first, now, values.data());
    put(now * columns);
  }
}

/// All of them, in order; type_of(tensor) says what each becomes.
template <class TypeOf, class Write>
void stream_tensors(std::vector<ExportedTensor const*> const& tensors, ModelExport const& options, TypeOf&& type_of,
                    Write&& write) {
  std::int64_t total = 0, done = 0;
  for (ExportedTensor const* tensor : tensors) total += exported_bytes(*tensor, type_of(*tensor));
  for (ExportedTensor const* tensor : tensors) {
    BlockType const type = type_of(*tensor);
    stream_tensor(*tensor, type, write);
    done += exported_bytes(*tensor, type);
    if (options.progress) options.progress(tensor->name, type, done, total);
  }
}
inline std::vector<ExportedTensor const*> in_order(std::vector<ExportedTensor> const& tensors) {
  std::vector<ExportedTensor const*> order;
  for (ExportedTensor const& tensor : tensors) order.push_back(&tensor);
  return order;
}

}  // namespace detail
}  // namespace tutti::train
