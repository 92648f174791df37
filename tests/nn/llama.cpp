// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/nn/llama.hpp> <tutti/nn/llama_config.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/graph/check.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/nn/llama.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::nn;

namespace {

graph::Graph loss_graph(LlamaConfig const& config, std::int64_t batch, std::int64_t length) {
  return graph::trace(make_parameters(config), [&](graph::Builder& builder, Llama const& p) {
    graph::Var const tokens = builder.input("tokens", DType::int32, {batch, length});
    graph::Var const targets = builder.input("targets", DType::int32, {batch, length});
    builder.output("loss", LlamaLoss{}(p, tokens, targets));
  });
}

/// Rows of a file's tensors one below the other.
void fill(graph::State& state, std::string const& name, io::Gguf const& file, std::vector<std::string> const& from) {
  float* to = state.at(name).view<float>().elements().data();
  for (std::string const& tensor : from) {
    auto const values = file.floats(tensor);
    to = std::copy(values.elements().begin(), values.elements().end(), to);
  }
  REQUIRE(to == state.at(name).view<float>().elements().data() + state.at(name).shape.size());
}

}  // namespace

TEST_CASE("The loss of a LLaMA of two layers agrees with an independent implementation in double") {
  for (char const* const architecture : {"llama", "qwen2"}) {
    test::TinyModel sizes{.architecture = architecture};
    sizes.tied = sizes.architecture == "llama";
    test::ScratchFolder const folder;
    std::string const path = folder / "tiny.gguf";
    write_tiny_gguf(path, sizes);
    io::Gguf const file(path);

    LlamaConfig config{.layers = sizes.layers,
                       .heads = sizes.heads,
                       .kv_heads = sizes.kv_heads,
                       .channels = sizes.channels,
                       .head_size = sizes.head_size,
                       .hidden = sizes.hidden,
                       .vocabulary = sizes.vocabulary,
                       .padded_vocabulary = sizes.vocabulary,
                       .max_tokens = sizes.positions};
    config.pairing = sizes.tied ? kernel::RotaryPairing::interleaved : kernel::RotaryPairing::half;
    config.tied = sizes.tied;
    config.qkv_bias = !sizes.tied;
    std::int64_t const length = 20;
    graph::Graph const graph = loss_graph(config, 1, length);
    REQUIRE(graph::parameter_count(make_parameters(config)) == parameter_count(config));
    graph::Program const program = graph::compile(graph);
    graph::State state(graph);
    fill(state, "embedding", file, {"token_embd.weight"});
    auto const each_layer = [&](std::string const& name, std::vector<std::string> const& tensors) {
      std::vector<std::string> from;
      for (char const* const layer : {"blk.0.", "blk.1."})
        for (std::string const& tensor : tensors) from.push_back(layer + tensor);
      fill(state, name, file, from);
    };
    each_layer("blocks.norm_1.weight", {"attn_norm.weight"});
    each_layer("blocks.qkv.weight", {"attn_q.weight", "attn_k.weight", "attn_v.weight"});
    if (config.qkv_bias) each_layer("blocks.qkv.bias", {"attn_q.bias", "attn_k.bias", "attn_v.bias"});
    each_layer("blocks.proj.weight", {"attn_output.weight"});
    each_layer("blocks.norm_2.weight", {"ffn_norm.weight"});
    each_layer("blocks.gated.gate.weight", {"ffn_gate.weight"});
    each_layer("blocks.gated.up.weight", {"ffn_up.weight"});
    each_layer("blocks.down.weight", {"ffn_down.weight"});
    fill(state, "norm.weight", file, {"output_norm.weight"});
    if (!config.tied) fill(state, "head", file, {"output.weight"});

    std::vector<std::int32_t> tokens, targets;
    double expected = 0;
    test::TinyReference reference(file, sizes);
    for (std::int64_t t = 0; t < length; ++t) {
      tokens.push_back(static_cast<std::int32_t>((t * 37 + 5) % sizes.vocabulary));
      targets.push_back(static_cast<std::int32_t>((t * 29 + 1) % sizes.vocabulary));
      auto const logits = reference(tokens.back());
      double const top = *std::max_element(logits.begin(), logits.end());
      double total = 0;
      for (double const logit : logits) total += std::exp(logit - top);
      expected +=
          (top + std::log(total) - logits[static_cast<std::size_t>(targets.back())]) / static_cast<double>(length);
    }
    exec::Context context({.threads = 2});
    graph::Executor executor(context, program, state);
    executor.set("tokens", TensorView<std::int32_t const>(tokens.data(), {1, length}));
    executor.set("targets", TensorView<std::int32_t const>(targets.data(), {1, length}));
    executor.run();
    CAPTURE(architecture, expected, executor.value("loss"));
    REQUIRE(std::abs(executor.value("loss") - expected) < 1e-5 * expected);
  }
}

TEST_CASE("Gradients of a LLaMA agree with central differences") {
  LlamaConfig config{.layers = 2,
                     .heads = 2,
                     .kv_heads = 1,
                     .channels = 6,
                     .head_size = 4,
                     .hidden = 10,
                     .vocabulary = 11,
                     .padded_vocabulary = 13,
                     .max_tokens = 8};
  for (bool const tied : {true, false}) {
    config.tied = tied;
    config.qkv_bias = !tied;
    auto const check = graph::check_gradients(loss_graph(config, 2, 4));
    CAPTURE(tied, check.worst);
    REQUIRE(check.worst < 1e-6);
  }
}

TEST_CASE("Sizes that no LLaMA can have are refused") {
  LlamaConfig const good{};
  auto const refused = [&](auto change, std::string const& part) {
    LlamaConfig config = good;
    change(config);
    REQUIRE_ERROR(validate(config), ErrorKind::configuration, part);
  };
  refused([](LlamaConfig& c) { c.layers = 0; }, "layers");
  refused([](LlamaConfig& c) { c.kv_heads = 5; }, "multiple");
  refused([](LlamaConfig& c) { c.head_size = 3; }, "even");
  refused([](LlamaConfig& c) { c.padded_vocabulary = 5; }, "padded");
  refused([](LlamaConfig& c) { c.epsilon = 0; }, "epsilon");
  refused([](LlamaConfig& c) { c.window = -1; }, "window");
}
