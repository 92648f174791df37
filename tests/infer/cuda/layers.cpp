// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/cuda/layers.hpp> <tutti/infer/layer_device.hpp> <tutti/infer/stored_state.hpp>
#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/infer/cuda/layers.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/tensor/mt19937.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

/// A model of three layers with normal weights of one type, `width` channels, four heads.
class MadeModel {
 public:
  /// `widened`: the matrices hold, in fp32, what blocks of `type` stand for.
  explicit MadeModel(bool gpt2, BlockType type, bool tied = true, int width = 64, bool widened = false)
      : type_(type), width_(width), widened_(widened) {
    if (gpt2) {
      model.config = nn::Gpt2Config{.layers = 3, .heads = 4, .channels = width, .vocabulary = 90,
                                    .padded_vocabulary = 96, .max_tokens = 48};
    } else {
      nn::LlamaConfig c{.layers = 3, .heads = 4, .kv_heads = 2, .channels = width, .head_size = width / 4,
                        .hidden = 2 * width, .vocabulary = 90, .padded_vocabulary = 96, .max_tokens = 48};
      c.window = 20;
      model.config = c;
      model.rotation = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, {}, c.max_tokens);
    }
    matrix("token_embd", 96, width);
    if (gpt2) matrix("position_embd", 48, width);
    for (int layer = 0; layer < 3; ++layer) {
      std::string const block = concat("blk.", layer, ".");
      norm(block + "attn_norm", gpt2);
      norm(block + "ffn_norm", gpt2);
      matrix(block + "attn_output", width, width);
      if (gpt2) {
        matrix(block + "attn_qkv", 3 * width, width);
        matrix(block + "ffn_up", 4 * width, width);
        matrix(block + "ffn_down", width, 4 * width);
        for (auto const& [name, size] : {std::pair{"attn_qkv", 3 * width}, {"attn_output", width},
                                         {"ffn_up", 4 * width}, {"ffn_down", width}})
          vector(block + name + ".bias", size, 0);
      } else {
        matrix(block + "attn_q", width, width);
        matrix(block + "attn_k", width / 2, width);
        matrix(block + "attn_v", width / 2, width);
        matrix(block + "ffn_gate", 2 * width, width);
        matrix(block + "ffn_up", 2 * width, width);
        matrix(block + "ffn_down", width, 2 * width);
      }
    }
    norm("output_norm", gpt2);
    if (!tied) matrix("output", 96, width);
  }
  nn::StoredModel model;

 private:
  void add(std::string name, BlockType type, std::int64_t rows, std::int64_t columns, float mean, float deviation) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    generator_.fill_normal(values, mean, deviation);
    auto const bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows * row_bytes(type, columns)));
    quantise(type, values.data(), rows * columns, bytes->data());
    if (widened_) {
      dequantise(type, bytes->data(), rows * columns, values.data());
      auto const stored = std::as_bytes(std::span(values));
      bytes->assign(stored.begin(), stored.end());
      type = BlockType::f32;
    }
    model.tensors.push_back({std::move(name), type, rows, columns, bytes->data()});
    model.keep.push_back(bytes);
  }
  void matrix(std::string const& name, std::int64_t rows, std::int64_t columns) {
    add(name + ".weight", type_, rows, columns, 0, 1.9f / std::sqrt(static_cast<float>(width_)));
  }
  void vector(std::string const& name, std::int64_t size, float mean) {
    add(name, BlockType::f32, 1, size, mean, 0.3f);
  }
  void norm(std::string const& name, bool bias) {
    vector(name + ".weight", width_, 1);
    if (bias) vector(name + ".bias", width_, 0);
  }
  BlockType type_;
  int width_;
  bool widened_;
  Mt19937 generator_{5};
};

infer::cuda::CudaLayers& device() {
  static infer::cuda::CudaLayers device;
  return device;
}
exec::Context& processors() {
  static exec::Context context({.threads = 1});
  return context;
}
std::vector<std::int32_t> const prompt{3, 49, 0, 17, 17, 8, 21, 60, 5, 71, 33, 2};

std::int32_t likeliest(std::span<float const> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}
DecoderOptions with_layers(std::int64_t count) {
  DecoderOptions options{.slots = 2, .capacity = 32, .batch = 16};
  if (count != 0) options.device = &device();
  options.device_share.count = count;
  return options;
}
/// A prompt and eight greedy tokens, with the logits of each.
std::vector<std::int32_t> continued(Decoder& decoder, std::vector<float>& logits) {
  Sequence sequence(decoder, 1);
  std::vector<std::int32_t> text;
  std::span<float const> behind = sequence.append(prompt);
  for (int i = 0; i < 8; ++i) {
    logits.insert(logits.end(), behind.begin(), behind.end());
    text.push_back(likeliest(behind));
    behind = sequence.append({&text.back(), 1});
  }
  return text;
}
double off(std::vector<float> const& got, std::vector<float> const& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const difference = std::abs(double{got[i]} - double{expected[i]});
    worst = difference <= worst ? worst : difference;
    scale = std::max(scale, std::abs(double{expected[i]}));
  }
  return got.size() == expected.size() ? worst / scale : 1e9;
}

}  // namespace

TEST_CASE("A model writes the same text with none, some or all of its layers on a device") {
  for (bool const gpt2 : {false, true})
    for (bool const tied : {true, false}) {
      if (gpt2 && !tied) continue;
      MadeModel const made(gpt2, BlockType::f32, tied);
      Decoder alone(processors(), made.model, with_layers(0));
      std::vector<float> expected;
      auto const text = continued(alone, expected);
      CHECK(alone.device_layers() == 0);
      for (std::int64_t const count : {1, 3, 4}) {
        if (tied && count == 3) continue;
        Decoder decoder(processors(), made.model, with_layers(count));
        std::vector<float> logits;
        CAPTURE(gpt2, tied, count);
        CHECK(continued(decoder, logits) == text);
        CHECK(off(logits, expected) < 2e-5);
        CHECK(decoder.device_layers() == std::min<std::int64_t>(count, 3));
        CHECK(decoder.device_has_head() == (count > 3));
        CHECK(decoder.hidden().size() == 64);
      }
    }
}

TEST_CASE("Quantised weights and narrow caches on a device stay near to those of processors") {
  for (BlockType const type : {BlockType::q4_k, BlockType::q8_0})
    for (BlockType const cache : {BlockType::f32, BlockType::f16, BlockType::q8_0}) {
      if ((type == BlockType::q4_k) == (cache == BlockType::f16)) continue;  // heads of 64 elements, and of 16
      int const width = type == BlockType::q4_k ? 256 : 64;
      std::span<std::int32_t const> const nine = std::span(prompt).first(9);
      auto const logits = [&](MadeModel const& made, std::int64_t layers) {
        auto options = with_layers(layers);
        options.cache = cache;
        Decoder decoder(processors(), made.model, options);
        Sequence sequence(decoder);
        auto const each = sequence.append_each(nine);
        return std::vector<float>(each.begin(), each.end());
      };
      MadeModel const made(false, type, true, width);
      auto const got = logits(made, 99);
      CAPTURE(name(type), name(cache));
      // A device multiplies in fp32, as processors do where the same weights are stored in fp32.
      CHECK(off(got, logits(MadeModel(false, type, true, width, true), 0)) < (cache == BlockType::f32 ? 1e-4 : 4e-2));
      // Processors round the rows that quantised weights are multiplied by to int8.
      CHECK(off(got, logits(made, 0)) < 0.15);
    }
}

TEST_CASE("Sequences on a device go on together, and their caches leave it and come back") {
  MadeModel const made(false, BlockType::f32);
  Decoder decoder(processors(), made.model, with_layers(2));
  std::vector<NewToken> rows;
  for (std::int32_t i = 0; i < 12; ++i) rows.push_back({prompt[static_cast<std::size_t>(i)], 0, i, i == 11});
  for (std::int32_t i = 0; i < 3; ++i) rows.push_back({prompt[static_cast<std::size_t>(i) + 4], 1, i, i == 2});
  auto const both = decoder.append(rows);
  std::vector<float> const first(both.begin(), both.begin() + 90);
  Decoder other(processors(), made.model, with_layers(2));
  Sequence alone(other);
  auto const single = alone.append(prompt);
  CHECK(off({single.begin(), single.end()}, first) < 1e-5);

  // Slot 0's cache into slot 1 of the other, as a file would bring it.
  auto const from = decoder.cache(0), to = other.cache(1);
  REQUIRE(from.size() == 6);
  for (std::size_t i = 0; i < from.size(); ++i)
    std::memcpy(to[i].data, from[i].data,
                static_cast<std::size_t>(from[i].heads * from[i].capacity * from[i].columns) * sizeof(float));
  other.cache_written(1);
  NewToken const next{7, 0, 12, true}, moved{7, 1, 12, true};
  auto const expected = decoder.append({&next, 1});
  std::vector<float> const before(expected.begin(), expected.end());
  auto const got = other.append({&moved, 1});
  CHECK(std::equal(got.begin(), got.end(), before.begin(), before.end()));
}

TEST_CASE("As many layers go to a device as its free memory holds") {
  MadeModel const made(false, BlockType::f32, false);
  nn::CacheSizes const sizes{2, 32};
  auto const fits = [&](std::int64_t free) { return infer::cuda::detail::fitting_layers(made.model, sizes, 16, free); };
  std::int64_t const working = infer::cuda::detail::device_working_bytes(made.model, 16);
  std::int64_t const layer = infer::cuda::detail::layer_bytes(made.model, sizes, 0);
  // Floats of two norms and seven matrices; keys and values of two slots.
  CHECK(layer == 4 * (2 * 64 + 64 * (64 + 32 + 32 + 64 + 3 * 128)) + 2 * 2 * 2 * 32 * 16 * 4);
  CHECK(fits(0) == 0);
  CHECK(fits(working + layer - 1) == 0);
  CHECK(fits(working + layer) == 1);
  CHECK(fits(working + 3 * layer) == 3);
  CHECK(fits(working + 3 * layer + 96 * 64 * 4) == 4);
  Decoder decoder(processors(), made.model, with_layers(DeviceShare::as_many_as_fit));
  CHECK(decoder.device_layers() == 3);
  CHECK(device().describe() == "CUDA device 0");
}

TEST_CASE("A device that is not there, and heads that kernels lack, are refused in words") {
  REQUIRE_ERROR(infer::cuda::CudaLayers(9), ErrorKind::unavailable, "there is no CUDA device 9");
}
