// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/grad_repeat.hpp>
// What a backward loop computes again: the same bits, in less memory, and nothing of it moves back to the forward loop.

#include <tutti/graph/amp.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>

#include "model.hpp"
#include "run_graph.hpp"
#include "small_gpt.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace tutti;
using namespace tutti::graph;
using namespace tutti::test;

namespace {

constexpr Recompute policies[] = {Recompute::none, Recompute::pointwise, Recompute::block};

struct Traced {
  constexpr Graph operator()() const { return gpt_loss(3); }
};
constexpr auto traced = freeze<Traced>();
template <Recompute policy>
struct Gradient {
  constexpr Graph operator()() const { return grad(thaw(traced), "loss", 1, policy); }
};
constexpr auto pointwise = freeze<Gradient<Recompute::pointwise>>();
constexpr auto whole_block = freeze<Gradient<Recompute::block>>();

Id find(Graph const& graph, Op op, int which = 0) {
  for (Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == op && which-- == 0) return id;
  return none;
}
int count(Graph const& graph, Op op) {
  int n = 0;
  for (Id id = 0; id < graph.size(); ++id) n += graph.op(id) == op;
  return n;
}
int count(Program const& program, StepKind kind) {
  return static_cast<int>(std::count_if(program.list.steps.begin(), program.list.steps.end(),
                                        [&](Step const& step) { return step.kind == kind; }));
}
/// Bytes that the forward loop keeps in one iteration.
std::int64_t kept_bytes(Graph const& graph) {
  Id const forward = find(graph, Op::repeat);
  std::int64_t bytes = 0;
  for (int i = repeat_shape(graph, forward).carried; i < graph.results(forward); ++i)
    bytes += graph.type(forward, i).shape.size() * 4 / repeat_shape(graph, forward).length;
  return bytes;
}

/// A loop whose block is elementwise but for one product: all of it could be fused across iterations.
struct Layer {
  BOOST_HANA_DEFINE_STRUCT(Layer, (Param, weight), (Param, scale));
};
struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (Stack<Layer>, layers), (Param, shared));
};
constexpr Graph chain(std::int64_t length, Replication batch = Replication::replicated) {
  return trace(Model{{{{{6, 6}, normal(1)}, {{6}, ones()}}, length}, {{6}, ones()}}, [&](Builder& b, Model const& p) {
    Var x = exp(b.input("x", DType::float32, {4, 6}, batch));
    x = repeat(p.layers, x, [&](Layer const& q, Var h) {
      Var const y = tanh(h * q.scale) * exp(p.shared) + h;
      return y + logistic(linear(y * y, q.weight)) * sin(y);
    });
    b.output("loss", sum_all(x * x));
  });
}

std::uint64_t differing(Results const& a, Results const& b) {
  std::uint64_t n = a.size() != b.size();
  for (auto const& [name, bytes] : a) n += !b.contains(name) || b.at(name) != bytes;
  return n;
}

}  // namespace

TEST_CASE("what is computed again changes no bit of a loss, a gradient or an update, on any instruction set") {
  for (std::int64_t const layers : {1, 2, 4})
    for (SmallPass const pass : {SmallPass::gradients, SmallPass::whole, SmallPass::last}) {
      SmallSizes sizes;
      sizes.layers = layers;
      RunOptions options;
      options.limit = sizes.vocabulary;
      for (exec::Isa isa : exec::all_isas) {
        if (!exec::available(isa)) continue;
        options.isa = isa;
        Results const reference = run_executor(small_graph(sizes, pass), options);
        for (Recompute const policy : {Recompute::pointwise, Recompute::block}) {
          INFO(layers << " layers, " << exec::name(isa) << ", " << name(policy));
          Graph const graph = small_graph(sizes, pass, false, 1, policy);
          CHECK(differing(reference, run_executor(graph, options)) == 0);
          options.threads = 3;
          CHECK(differing(reference, run_executor(graph, options)) == 0);
          options.threads = 1;
        }
      }
    }
}

TEST_CASE("products with more terms than are summed at once change no bit either") {
  SmallSizes sizes;
  sizes.channels = 256;
  sizes.heads = 4;
  RunOptions options;
  options.limit = sizes.vocabulary;
  for (DType const compute : {DType::float32, DType::bfloat16}) {
    auto const graph = [&](Recompute policy) {
      return amp(small_graph(sizes, SmallPass::gradients, false, 1, policy), compute);
    };
    Results const reference = run_executor(graph(Recompute::none), options);
    for (Recompute const policy : {Recompute::pointwise, Recompute::block}) {
      INFO(name(policy) << ", " << tutti::name(compute));
      CHECK(differing(reference, run_executor(graph(policy), options)) == 0);
    }
  }
}

TEST_CASE("programs that compute again agree with the interpreter, fused or not, shared or not") {
  SmallSizes sizes;
  sizes.layers = 3;
  for (Recompute const policy : policies) {
    INFO(name(policy));
    check_graph(small_graph(sizes, SmallPass::gradients, false, 1, policy), 2e-4, sizes.vocabulary);
    check_graph(grad(chain(3), "loss", 1, policy), 2e-4);
    check_graph(grad(decompose(gpt_loss(2)), "loss", 1, policy), 2e-4, 7);
  }
}

TEST_CASE("the forward loop of a GPT keeps less under every policy, and the backward loop runs what it does not keep") {
  std::int64_t const rows = 2 * 4, c = 12, row = rows * 4;  // tokens, channels, bytes of a number for each token
  Graph const plain = grad(gpt_loss(3)), cheap = grad(gpt_loss(3), "loss", 1, Recompute::pointwise),
              all = grad(gpt_loss(3), "loss", 1, Recompute::block);
  // x, norm, qkv, attention, x, norm, fc, gelu; two statistics of each norm; lse of 3 heads.
  CHECK(kept_bytes(plain) == row * ((1 + 1 + 3 + 1 + 1 + 1 + 4 + 4) * c + 2 * 2 + 3));
  CHECK(kept_bytes(cheap) == row * ((1 + 3 + 1 + 1 + 4) * c + 3));
  CHECK(kept_bytes(all) == row * c);
  auto const backward = [](Graph const& graph, Op op) { return count(graph.body(find(graph, Op::repeat, 1)), op); };
  for (Op const op : {Op::linear, Op::attention, Op::layer_norm, Op::gelu, Op::barrier})
    CHECK(backward(plain, op) == 0);
  CHECK(backward(cheap, Op::linear) == 0);
  CHECK(backward(cheap, Op::attention) == 0);
  CHECK(backward(cheap, Op::layer_norm) == 2);
  CHECK(backward(cheap, Op::gelu) == 1);
  CHECK(backward(cheap, Op::barrier) == 6);
  CHECK(backward(all, Op::linear) == 3);  // nobody reads what leaves the block
  CHECK(backward(all, Op::attention) == 1);
  CHECK(backward(all, Op::layer_norm) == 2);
  CHECK(backward(all, Op::gelu) == 1);
  CHECK(backward(all, Op::barrier) == 1);
  // In time, too: of the steps for three layers the backward loop's come on top, behind all of the forward loop's.
  Program const once = compile(plain), again = compile(all);
  CHECK(count(once, StepKind::attention) == 3);
  CHECK(count(again, StepKind::attention) == 6);
  CHECK(count(once, StepKind::layer_norm) == 7);
  CHECK(count(again, StepKind::layer_norm) == 13);
  CHECK(count(compile(cheap), StepKind::layer_norm) == 13);
  CHECK(count(again, StepKind::copy) == count(once, StepKind::copy));
  CHECK(count(compile(cheap), StepKind::copy) == count(once, StepKind::copy));
}

TEST_CASE("nothing that is computed again moves to where it was computed first, though fusion could join them") {
  for (Recompute const policy : {Recompute::pointwise, Recompute::block}) {
    INFO(name(policy));
    auto const bytes = [&](std::int64_t length) {
      return compile(grad(chain(length), "loss", 1, policy)).plan.arena_bytes;
    };
    // An iteration more takes what it keeps; sums for the shared value and gradients, which are outputs, are there
    // once.
    std::int64_t const tensor = align_up(4 * 6 * 4), kept = policy == Recompute::block ? tensor : 2 * tensor;
    CHECK(kept_bytes(grad(chain(4), "loss", 1, policy)) == kept / tensor * 4 * 6 * 4);
    CHECK(bytes(9) - bytes(4) == 5 * kept);
  }
  CHECK(kept_bytes(grad(chain(4))) > 4 * 4 * 6 * 4);
  RunOptions options;
  Results const reference = run_executor(grad(chain(4)), options);
  for (Recompute const policy : {Recompute::pointwise, Recompute::block})
    CHECK(differing(reference, run_executor(grad(chain(4), "loss", 1, policy), options)) == 0);
}

TEST_CASE("the arena of a deep GPT shrinks by what is not kept") {
  SmallSizes sizes;
  sizes.layers = 4, sizes.batch = 4, sizes.tokens = 64, sizes.channels = 24;
  auto const bytes = [&](Recompute policy, std::int64_t layers) {
    sizes.layers = layers;
    return compile(small_graph(sizes, SmallPass::gradients, false, 1, policy)).plan.arena_bytes;
  };
  std::int64_t const tensor = 4 * 64 * 24 * 4, row = 4 * 64 * 4;  // a number for each channel, or one, of each token
  std::int64_t const kept[] = {16 * tensor + 7 * row, 10 * tensor + 3 * row, tensor};
  for (int i = 0; i < 3; ++i) {
    INFO(name(policies[i]) << ": " << bytes(policies[i], 4) << " bytes of 4 layers");
    CHECK(bytes(policies[i], 8) - bytes(policies[i], 4) == 4 * kept[i]);
  }
  // One layer's values are all there when it is differentiated, whatever the policy.
  CHECK(bytes(Recompute::none, 4) - bytes(Recompute::pointwise, 4) >= 3 * 6 * tensor);
  CHECK(bytes(Recompute::none, 4) - bytes(Recompute::block, 4) >= 3 * 14 * tensor);
}

TEST_CASE("a gradient that computes again is made in a constant expression, printed, and survives being written out") {
  CHECK(same(thaw(pointwise), grad(gpt_loss(3), "loss", 1, Recompute::pointwise)));
  CHECK(same(thaw(whole_block), grad(gpt_loss(3), "loss", 1, Recompute::block)));
  CHECK_FALSE(same(thaw(whole_block), thaw(pointwise)));
  CHECK_FALSE(same(thaw(pointwise), grad(gpt_loss(3))));
  CHECK(test::contains(to_string(thaw(whole_block)), "{3, 1, 0, 12, 0, 2} recompute block : float32 (2, 4, 12)"));
  CHECK(test::contains(to_string(thaw(pointwise)), " recompute pointwise : "));
  CHECK_FALSE(test::contains(to_string(grad(gpt_loss(3))), "recompute"));
  Graph const canon = canonical(canonical(thaw(whole_block)));
  CHECK(count(canon.body(find(canon, Op::repeat, 1)), Op::attention) == 1);
  Graph const written = decompose(thaw(whole_block));
  CHECK(repeat_shape(written, find(written, Op::repeat)).recompute == Recompute::block);
  CHECK(kept_bytes(written) == kept_bytes(thaw(whole_block)));
}

TEST_CASE("what crosses ranks is kept and not sent again") {
  auto const summed = [](Recompute policy) {
    Graph const loss =
        trace(Model{{{{{6, 6}, normal(1)}, {{6}, ones()}}, 3}, {{6}, ones()}}, [&](Builder& b, Model const& p) {
          Var x = b.input("x", DType::float32, {4, 6});
          x = repeat(p.layers, x, [&](Layer const& q, Var h) {
            Var const sum = all_reduce(vary(linear(h, q.weight), comm::PortOp::sum), comm::PortOp::sum);
            return tanh(sum * q.scale) * h;
          });
          b.output("loss", sum_all(x * x));
        });
    return grad(loss, "loss", 1, policy);
  };
  Graph const plain = summed(Recompute::none), all = summed(Recompute::block);
  CHECK(count(all.body(find(all, Op::repeat)), Op::all_reduce) == 1);
  CHECK(count(all.body(find(all, Op::repeat, 1)), Op::all_reduce) ==
        count(plain.body(find(plain, Op::repeat, 1)), Op::all_reduce));
  CHECK(count(all.body(find(all, Op::repeat, 1)), Op::tanh) == 1);
  CHECK(kept_bytes(all) == 2 * 4 * 6 * 4);  // what enters, and the sum
  Interpreter a(plain, 2), b(all, 2);
  for (auto* run : {&a, &b}) {
    for (int rank = 0; rank < 2; ++rank) {
      run->set("x", random_values(plain, plain.find_leaf("x"), 5), rank);
      for (char const* leaf : {"layers.weight", "layers.scale", "shared"})
        run->set(leaf, random_values(plain, plain.find_leaf(leaf), 5), rank);
    }
    run->run();
  }
  for (char const* output : {"loss", "gradient.layers.weight", "gradient.layers.scale"})
    for (int rank = 0; rank < 2; ++rank) CHECK(a.output(output, rank) == b.output(output, rank));
}

TEST_CASE("ranks average gradients of what they compute again") {
  GradientCheckOptions options;
  options.integers = 7;
  for (Recompute const policy : {Recompute::pointwise, Recompute::block}) {
    Graph loss = gpt_loss(2, Replication::varying);
    set_recompute(loss, policy);  // as data of the graph: every gradient of it follows
    Graph const gradient = grad(loss);
    CHECK(repeat_shape(gradient, find(gradient, Op::repeat, 1)).recompute == policy);
    CHECK(count(gradient.body(find(gradient, Op::repeat, 1)), Op::all_reduce) == 12);
    GradientCheck const result = check_gradients(loss, options, {}, 3);
    INFO(result.where);
    CHECK(result.worst < 1e-6);
  }
}

TEST_CASE("a loop within a loop computes again too, both of them or the inner one alone") {
  auto const nested = [](Recompute policy) {
    Builder b;
    Var const outer = b.parameter("outer", {2, 3}, zeros()), inner = b.parameter("inner", {4, 3}, zeros());
    Var const x = b.parameter("x", {3}, zeros());
    Scan loop(b, x, 2, Where::current());
    Var const scale = loop.slice(outer, "scale");
    Stack<Layer> blocks;
    blocks.block.weight = Param{{3}, zeros(), inner};
    blocks.block.scale = Param{{3}, zeros(), inner};
    blocks.length = 4;
    Var const next = repeat(blocks, loop.carried(), [&](Layer const& q, Var h) {
      return tanh(h * q.weight + scale) * logistic(h) + h * q.scale;
    });
    b.output("loss", sum_all(pow(loop.finish(next * scale), 2)));
    return grad(canonical(b.graph()), "loss", 1, policy);
  };
  RunOptions options;
  Results const reference = run_executor(nested(Recompute::none), options);
  for (Recompute const policy : {Recompute::pointwise, Recompute::block}) {
    Graph const graph = nested(policy);
    INFO(to_string(graph));
    CHECK(differing(reference, run_executor(graph, options)) == 0);
    check_against_interpreter(graph, run_executor(graph, options), options, 1e-5);
    CHECK(kept_bytes(graph) < kept_bytes(nested(Recompute::none)));
  }
  CHECK(kept_bytes(nested(Recompute::block)) == 3 * 4);
}
