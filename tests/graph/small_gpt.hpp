// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A GPT of any size and its training programs, for tests of what runs them.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/tensor/view.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

using namespace tutti::graph;

struct SmallNorm {
  BOOST_HANA_DEFINE_STRUCT(SmallNorm, (Param, gamma), (Param, beta));
  constexpr Var operator()(Var x) const { return layer_norm(x, gamma, beta); }
};
struct SmallLinear {
  BOOST_HANA_DEFINE_STRUCT(SmallLinear, (Param, weight), (Param, bias));
  constexpr Var operator()(Var x) const { return linear(x, weight, bias); }
};
struct SmallBlock {
  BOOST_HANA_DEFINE_STRUCT(SmallBlock, (SmallNorm, ln_1), (SmallLinear, qkv), (SmallLinear, proj), (SmallNorm, ln_2),
                           (SmallLinear, fc), (SmallLinear, out));
  constexpr Var operator()(Var x, int heads) const {
    x = x + proj(attention(qkv(ln_1(x)), heads));
    return x + out(gelu(fc(ln_2(x))));
  }
};
struct SmallGpt {
  BOOST_HANA_DEFINE_STRUCT(SmallGpt, (Param, wte), (Param, wpe), (Stack<SmallBlock>, blocks), (SmallNorm, ln_f));
};

struct SmallSizes {
  std::int64_t layers = 2, batch = 2, tokens = 7, channels = 12, vocabulary = 19, padded = 23;
  int heads = 3;
};

constexpr SmallGpt small_gpt(SmallSizes const& s) {
  std::int64_t const c = s.channels;
  auto const norm = [&] { return SmallNorm{{{c}, ones()}, {{c}, zeros()}}; };
  auto const dense = [](std::int64_t in, std::int64_t out) {
    return SmallLinear{{{out, in}, normal(0.2)}, {{out}, normal(0.1)}};
  };
  SmallGpt model;
  model.wte = {{s.padded, c}, normal(0.3)};
  model.wpe = {{s.tokens + 2, c}, normal(0.3)};
  model.blocks.block = {norm(), dense(c, 3 * c), dense(c, c), norm(), dense(c, 4 * c), dense(4 * c, c)};
  model.blocks.length = s.layers;
  model.ln_f = norm();
  return model;
}

constexpr Var small_loss(Builder& builder, SmallGpt const& model, SmallSizes const& s) {
  Var const tokens = builder.input("tokens", DType::int32, {s.batch, s.tokens}),
            targets = builder.input("targets", DType::int32, {s.batch, s.tokens});
  Var x = embed(model.wte, model.wpe, tokens);
  x = repeat(model.blocks, x, [&](SmallBlock const& block, Var h) { return block(h, s.heads); });
  return linear_cross_entropy(model.ln_f(x), model.wte, targets, s.vocabulary);
}

enum class SmallPass : std::uint8_t { loss, gradients, whole, first, middle, last };

/// The loss alone, with gradients as outputs, or (part of) a clipped AdamW step over `micro` micro-steps, reduced over
/// ranks if wanted.
inline Graph small_graph(SmallSizes const& s, SmallPass pass, bool reduce = false, int micro = 1,
                         Recompute recompute = Recompute::none) {
  return trace(small_gpt(s), [&](Builder& builder, SmallGpt const& model) {
    Var const loss = small_loss(builder, model, s);
    auto const parameters = builder.graph().parameters;
    auto const name_of = [&](std::size_t i) { return std::string(builder.graph().name(parameters[i].node)); };
    if (pass == SmallPass::loss) return builder.output("loss", loss);
    List<Var> wrt;
    for (auto const& parameter : parameters) wrt.push_back({&builder, parameter.node});
    List<Var> values = gradients(loss, wrt, 1.0 / micro, recompute);
    auto const averaged = [&](Var v) { return reduce ? all_reduce(vary(v, comm::PortOp::avg), comm::PortOp::avg) : v; };
    if (pass == SmallPass::gradients) {
      builder.output("loss", averaged(loss));
      for (std::size_t i = 0; i < parameters.size(); ++i) builder.output("gradient." + name_of(i), averaged(values[i]));
      return;
    }
    for (std::size_t i = 0; i < parameters.size() && pass != SmallPass::whole; ++i) {
      Var const sum = builder.state("sum." + name_of(i), wrt[i].shape());
      if (pass != SmallPass::first) values[i] = sum + values[i];
      if (pass != SmallPass::last) builder.update(sum, values[i]);
    }
    if (pass == SmallPass::first || pass == SmallPass::middle) return builder.output("loss", loss);
    builder.output("loss", averaged(loss));
    Var squares{};
    for (Var& g : values) {
      g = averaged(g);
      squares = squares.builder == nullptr ? square_sum(g) : square_sum(g, squares);
    }
    Var const norm = convert(sqrt(squares), DType::float32);
    builder.output("norm", norm);
    Var const scale = 0.5 / maximum(norm, 0.5);
    Var const rate = builder.scalar("rate"), c1 = builder.scalar("correction1"), c2 = builder.scalar("correction2");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Var const m = builder.state("m." + name_of(i), wrt[i].shape()),
                v = builder.state("v." + name_of(i), wrt[i].shape());
      auto const next = adamw(wrt[i], values[i], m, v, rate, c1, c2, scale, {0.9, 0.95, 1e-8, 0.1});
      builder.update(wrt[i], next.parameter);
      builder.update(m, next.m);
      builder.update(v, next.v);
    }
  });
}

/// Tokens and targets that differ for every `salt`; one target in eleven is ignored.
inline std::vector<std::int32_t> small_tokens(SmallSizes const& s, unsigned salt, bool targets) {
  std::vector<std::int32_t> result;
  for (std::int64_t i = 0; i < s.batch * s.tokens; ++i) {
    unsigned const x = (static_cast<unsigned>(i) + (targets ? 1u : 0u)) * 2654435761u + salt * 40503u;
    result.push_back(
        targets && i % 11 == 5 ? -1 : static_cast<std::int32_t>((x >> 8) % static_cast<unsigned>(s.vocabulary)));
  }
  return result;
}

/// Inputs of a small program's step: tokens, and the scalars of AdamW where it has them.
template <class Executor>
void set_batch(Executor& executor, SmallSizes const& sizes, unsigned salt, int step) {
  auto const tokens = small_tokens(sizes, salt, false), targets = small_tokens(sizes, salt, true);
  executor.set("tokens", TensorView<std::int32_t const>(tokens.data(), {sizes.batch, sizes.tokens}));
  executor.set("targets", TensorView<std::int32_t const>(targets.data(), {sizes.batch, sizes.tokens}));
  if (!executor.program().has_input("rate")) return;
  executor.set("rate", 0.01);
  executor.set("correction1", 1 - std::pow(0.9, step));
  executor.set("correction2", 1 - std::pow(0.95, step));
}

}  // namespace tutti::test
