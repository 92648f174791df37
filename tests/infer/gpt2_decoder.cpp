// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/generate.hpp>
#include "support/catch.hpp"

#include <tutti/infer/generate.hpp>
#include <tutti/nn/gpt2_initialise.hpp>

#include <cmath>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

using Row = std::vector<double>;

/// Tensors of a small model with weights large enough that every part of it matters.
struct Model {
  nn::Gpt2Config config{
      .layers = 2, .heads = 3, .channels = 24, .vocabulary = 50, .padded_vocabulary = 128, .max_tokens = 16};
  std::array<std::vector<float>, 16> tensors;
  nn::Gpt2Weights weights;

  Model() {
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

Row linear(Row const& x, float const* w, float const* b, std::size_t out) {
  Row y(out);
  for (std::size_t o = 0; o < out; ++o) {
    y[o] = b == nullptr ? 0.0 : double(b[o]);
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += x[i] * double(w[o * x.size() + i]);
  }
  return y;
}
Row norm(Row const& x, float const* g, float const* b) {
  double mean = 0, variance = 0;
  for (double v : x) mean += v / double(x.size());
  for (double v : x) variance += (v - mean) * (v - mean) / double(x.size());
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * double(g[i]) + double(b[i]);
  return y;
}

/// Logits after the last token, everything computed anew in double.
Row oracle(Model const& m, std::vector<std::int32_t> const& tokens) {
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

void check_close(std::span<float const> logits, Row const& expected) {
  REQUIRE(logits.size() == expected.size());
  double scale = 0;
  for (double v : expected) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(double(logits[i]) - expected[i]) < 2e-5 * scale);
}

}  // namespace

TEST_CASE("logits agree with a naive model in double, prompt at once or token by token, on every instruction set") {
  Model const model;
  std::vector<std::int32_t> const tokens{3, 49, 0, 17, 17, 8, 21};
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(name(isa));
    exec::Context context({.threads = 2, .isa = isa});
    Gpt2Decoder whole(context, model.weights), single(context, model.weights);
    check_close(whole.append(tokens), oracle(model, tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      check_close(single.append({&tokens[i], 1}),
                  oracle(model, {tokens.begin(), tokens.begin() + std::ptrdiff_t(i) + 1}));
    CHECK(single.length() == 7);
    std::int32_t const more[] = {5, 6};  // several tokens behind a filled cache
    std::vector<std::int32_t> all = tokens;
    all.insert(all.end(), {5, 6});
    check_close(whole.append(more), oracle(model, all));
    whole.reset();
    check_close(whole.append({tokens.data(), 1}), oracle(model, {3}));
  }
}

TEST_CASE("the decoder is bitwise the same for any number of threads") {
  Model const model;
  std::vector<std::int32_t> const tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    exec::Context context({.threads = threads});
    Gpt2Decoder decoder(context, model.weights);
    (void)decoder.append(tokens);
    std::int32_t const next = 30;
    auto const logits = decoder.append({&next, 1});
    if (first.empty()) first.assign(logits.begin(), logits.end());
    CHECK(std::equal(first.begin(), first.end(), logits.begin()));
  }
}

TEST_CASE("a full or impossible decoder says so") {
  Model const model;
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(Gpt2Decoder(context, model.weights, 17), ErrorKind::invalid_argument, "1 to 16 positions");
  Gpt2Decoder decoder(context, model.weights, 4);
  std::vector<std::int32_t> const five{1, 2, 3, 4, 5};
  REQUIRE_ERROR(decoder.append(five), ErrorKind::out_of_range, "5 tokens do not fit");
  REQUIRE_ERROR(decoder.append({}), ErrorKind::invalid_argument, "no token");
  std::int32_t const foreign = 50;
  REQUIRE_ERROR(decoder.append({&foreign, 1}), ErrorKind::out_of_range, "50");
  CHECK(decoder.length() == 0);
}

TEST_CASE("generation goes past the capacity by reading the newer half again, and stops where it should") {
  Model const model;
  exec::Context context({.threads = 1});
  Gpt2Decoder decoder(context, model.weights, 8);
  Sampler greedy({.temperature = 0});
  std::vector<std::int32_t> text{3, 4, 5};
  std::vector<std::int32_t> expected = text;
  std::int64_t length = 3;  // of the window that the oracle reads: grows to 8, then restarts from the newest 4
  for (int i = 0; i < 20; ++i) {
    Row const logits = oracle(model, {expected.end() - length, expected.end()});
    expected.push_back(std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    length = length == 8 ? 4 : length + 1;
  }
  std::vector<std::int32_t> made = text;
  CHECK(generate(decoder, greedy, text, 20, -1, [&](std::int32_t token) { made.push_back(token); }) == 20);
  CHECK(made == expected);

  std::int32_t const stop = expected[3 + 5];
  std::int64_t const before = std::find(expected.begin() + 3, expected.end(), stop) - expected.begin() - 3;
  made = text;
  CHECK(generate(decoder, greedy, text, 20, stop, [&](std::int32_t token) { made.push_back(token); }) == before);
  CHECK(std::int64_t(made.size()) == 3 + before);
}
