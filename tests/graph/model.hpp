// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A small GPT as a user would write it: what the tests of graphs trace.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/repeat.hpp>

namespace tutti::test {

using namespace tutti::graph;

struct Norm {
  BOOST_HANA_DEFINE_STRUCT(Norm, (Param, gamma), (Param, beta));
  constexpr Var operator()(Var x) const { return layer_norm(x, gamma, beta); }
};
struct Projection {
  BOOST_HANA_DEFINE_STRUCT(Projection, (Param, weight), (Param, bias));
  constexpr Var operator()(Var x) const { return linear(x, weight, bias); }
};
struct Block {
  BOOST_HANA_DEFINE_STRUCT(Block, (Norm, ln_1), (Projection, qkv), (Projection, proj), (Norm, ln_2), (Projection, fc),
                           (Projection, out));
};
struct Gpt {
  BOOST_HANA_DEFINE_STRUCT(Gpt, (Param, wte), (Param, wpe), (Stack<Block>, blocks), (Norm, ln_f));
};

constexpr Norm norm(std::int64_t channels) { return {{{channels}, ones()}, {{channels}, zeros()}}; }
constexpr Projection projection(std::int64_t in, std::int64_t out) {
  return {{{out, in}, normal(0.02)}, {{out}, zeros()}};
}
constexpr Gpt gpt(std::int64_t vocabulary, std::int64_t positions, std::int64_t channels, std::int64_t layers) {
  return {{{vocabulary, channels}, normal(0.02)},
          {{positions, channels}, normal(0.02)},
          {{norm(channels), projection(channels, 3 * channels), projection(channels, channels), norm(channels),
            projection(channels, 4 * channels), projection(4 * channels, channels)},
           layers},
          norm(channels)};
}

constexpr Var block(Block const& p, Var x, int heads) {
  x = x + p.proj(attention(p.qkv(p.ln_1(x)), heads));
  return x + p.out(gelu(p.fc(p.ln_2(x))));
}

/// Loss of tokens (2, 4) under a GPT of 7 tokens, 12 channels and 3 heads, with tied embeddings.
constexpr Graph gpt_loss(std::int64_t layers, Replication batch = Replication::replicated) {
  return trace(gpt(7, 5, 12, layers), [&](Builder& b, Gpt const& p) {
    Var const tokens = b.input("tokens", DType::int32, {2, 4}, batch),
              targets = b.input("targets", DType::int32, {2, 4}, batch);
    Var x = embed(p.wte, p.wpe, tokens);
    x = repeat(p.blocks, x, [](Block const& q, Var h) { return block(q, h, 3); });
    b.output("loss", linear_cross_entropy(p.ln_f(x), p.wte, targets));
  });
}

}  // namespace tutti::test
