// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/parallel/shard_operations.hpp> <tutti/parallel/shard_vocabulary.hpp>
// Covers: <tutti/parallel/shard_tokens.hpp> <tutti/parallel/shard_values.hpp>
// Covers: <tutti/parallel/split.hpp> <tutti/parallel/rank_parts.hpp>
// Covers: <tutti/nn/shard_rules.hpp> <tutti/parallel/gather_parameters.hpp>
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/graph/check.hpp>
#include <tutti/graph/file.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/nn/shard_rules.hpp>
#include <tutti/parallel/gather_parameters.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/parallel/rank_parts.hpp>
#include <tutti/parallel/shard.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti;

namespace {

constexpr nn::Gpt2Config gpt2{.layers = 2, .heads = 4, .channels = 8, .vocabulary = 11, .padded_vocabulary = 12,
                              .max_tokens = 6};
constexpr nn::LlamaConfig llama{.layers = 2, .heads = 8, .kv_heads = 4, .channels = 16, .head_size = 2, .hidden = 12,
                                .vocabulary = 11, .padded_vocabulary = 12, .max_tokens = 6};

/// The loss of sequences of which ranks of the data axis have their own.
template <class Loss>
graph::Graph loss_of(typename Loss::Config const& config) {
  return graph::trace(make_parameters(config), [](graph::Builder& b, auto const& parameters) {
    graph::Var const tokens = b.input("tokens", DType::int32, {2, 6}, graph::Replication::varying),
                     targets = b.input("targets", DType::int32, {2, 6}, graph::Replication::varying);
    b.output("loss", Loss{}(parameters, tokens, targets));
  });
}

/// Between whole values, of shape `whole`, and rank `rank`'s part of them.
template <class T>
void copy_part(std::vector<T>& values, std::vector<T>& mine, Shape const& whole, parallel::Split const& split,
               int ranks, int rank, bool joins) {
  parallel::each_run(whole, sizeof(T), split, ranks, rank,
                     [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t bytes) {
                       auto* const there = reinterpret_cast<std::byte*>(values.data()) + in_whole;
                       auto* const here = reinterpret_cast<std::byte*>(mine.data()) + in_part;
                       std::memcpy(joins ? there : here, joins ? here : there, static_cast<std::size_t>(bytes));
                     });
}
/// Rank `rank`'s part of values, of shape `whole`.
graph::naive::Values part(graph::naive::Values values, Shape const& whole, parallel::Split const& split, int ranks,
                          int rank) {
  graph::naive::Values mine(static_cast<std::size_t>(parallel::part_of(whole, split, ranks).size()));
  copy_part(values, mine, whole, split, ranks, rank, false);
  return mine;
}

struct Compared {
  double loss = 0, gradient = 0;  ///< largest differences
  std::string where;
};

/// Loss and gradients of `data` x `tensor` ranks in double, against those of `data` ranks with whole parameters.
template <class Loss>
Compared compare(typename Loss::Config const& config, int data, int tensor, bool shares_tokens = false) {
  graph::Graph const whole = loss_of<Loss>(config);
  parallel::Splits const splits(whole, shard_rules(config), tensor);
  graph::Interpreter reference(grad(whole), data);
  graph::Interpreter divided(grad(parallel::shard(whole, splits, shares_tokens)), data * tensor, tensor);
  randomise(reference, {.integers = 11});
  graph::Graph const& g = reference.graph();
  for (graph::Id id = 0; id < g.size(); ++id)
    if (g[id].name != graph::none)
      for (int rank = 0; rank < data * tensor; ++rank)
        divided.set(g.name(id),
                    part(reference.get(g.name(id), rank / tensor), g.shape(id), splits.of(g.name(id)), tensor,
                         rank % tensor),
                    rank);
  reference.run();
  divided.run();
  Compared found;
  for (int rank = 0; rank < data * tensor; ++rank) {
    found.loss = std::max(found.loss, std::abs(divided.output("loss", rank)[0] -
                                               reference.output("loss", rank / tensor)[0]));
    for (graph::Parameter const& parameter : g.parameters) {
      std::string const name = "gradient." + std::string(g.name(parameter.node));
      auto const expected = part(reference.output(name, rank / tensor), g.shape(parameter.node),
                                 splits.of(g.name(parameter.node)), tensor, rank % tensor);
      auto const& got = divided.output(name, rank);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        if (double const gap = std::abs(got[i] - expected[i]); !(gap <= found.gradient)) {
          found.gradient = gap;
          found.where = name;
        }
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a divided GPT-2 has the loss and the gradients of the whole one, on every mesh") {
  for (auto [data, tensor] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 2}}) {
    Compared const found = compare<nn::Gpt2Loss>(gpt2, data, tensor);
    INFO(data << " x " << tensor << ", worst at " << found.where);
    CHECK(found.loss < 1e-12);
    CHECK(found.gradient < 1e-12);
  }
}

TEST_CASE("a divided LLaMA too, whose heads of keys and values serve several of queries") {
  for (auto [data, tensor] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
    Compared const found = compare<nn::LlamaLoss>(llama, data, tensor);
    INFO(data << " x " << tensor << ", worst at " << found.where);
    CHECK(found.loss < 1e-12);
    CHECK(found.gradient < 1e-12);
  }
}

TEST_CASE("with shares of the tokens between products, too") {
  nn::Gpt2Config undivided = gpt2;  // the table: 11 rows, of which every rank has all
  undivided.padded_vocabulary = 11;
  nn::LlamaConfig untied = llama;
  untied.tied = false;
  for (auto [data, tensor] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
    for (Compared const& found :
         {compare<nn::Gpt2Loss>(gpt2, data, tensor, true), compare<nn::LlamaLoss>(llama, data, tensor, true),
          compare<nn::Gpt2Loss>(undivided, data, tensor, true), compare<nn::LlamaLoss>(untied, data, tensor, true)}) {
      INFO(data << " x " << tensor << ", worst at " << found.where);
      CHECK(found.loss < 1e-12);
      CHECK(found.gradient < 1e-12);
    }
  }
}

TEST_CASE("a block sums over ranks twice forward and twice backward; embedding and head three times in all") {
  parallel::Splits const splits(loss_of<nn::Gpt2Loss>(gpt2), shard_rules(gpt2), 2);
  graph::Graph const step = grad(parallel::shard(loss_of<nn::Gpt2Loss>(gpt2), splits));
  auto const sums = [](graph::Graph const& graph) {
    int count = 0;
    for (graph::Id id = 0; id < graph.size(); ++id)
      count += graph.op(id) == graph::Op::all_reduce && mesh_axis(graph, id) == graph::MeshAxis::tensor ? 1 : 0;
    return count;
  };
  REQUIRE(step.bodies.size() == 2);
  CHECK(sums(step) == 3);  // embeddings, logits of the targets, and the gradient of what the head reads
  CHECK(sums(step.bodies[0]) == 2);
  CHECK(sums(step.bodies[1]) == 2);
  // What a rank has: half of the vocabulary and of the heads, and sums of which each rank has all.
  CHECK(step.shape(step.find_leaf("blocks.qkv.weight")) == Shape{2, 12, 8});
  CHECK(step.shape(step.find_leaf("blocks.proj.weight")) == Shape{2, 8, 4});
  CHECK(step.shape(step.find_leaf("wte")) == Shape{6, 8});
  CHECK(step.shape(step.find_leaf("wpe")) == Shape{6, 8});
  for (char const* name : {"gradient.wpe", "gradient.blocks.ln_1.weight", "gradient.blocks.proj.bias"})
    CHECK(step.replication(step.find_output(name), graph::MeshAxis::tensor) == graph::Replication::replicated);
  for (char const* name : {"gradient.wte", "gradient.blocks.qkv.bias", "gradient.blocks.out.weight"})
    CHECK(step.replication(step.find_output(name), graph::MeshAxis::tensor) == graph::Replication::varying);
}

TEST_CASE("with shares of the tokens a block gathers and scatters in the place of sums, and keeps shares alone") {
  auto const traced = [](Shape const& tokens) {
    return graph::trace(make_parameters(gpt2), [&](graph::Builder& b, nn::Gpt2 const& parameters) {
      b.output("loss", nn::Gpt2Loss{}(parameters, b.input("tokens", DType::int32, tokens),
                                      b.input("targets", DType::int32, tokens)));
    });
  };
  graph::Graph const whole = traced({2, 6}), few = traced({1, 6});
  REQUIRE_ERROR(parallel::shard(few, parallel::Splits(few, shard_rules(gpt2), 4), true), ErrorKind::configuration,
                "the 6 tokens of a micro-step do not divide among 4 ranks of the tensor axis (gpt2.hpp:");
  parallel::Splits const splits(whole, shard_rules(gpt2), 2);
  auto const count = [](graph::Graph const& graph, graph::Op op) {
    int found = 0;
    for (graph::Id id = 0; id < graph.size(); ++id)
      found += graph.op(id) == op && mesh_axis(graph, id) == graph::MeshAxis::tensor ? 1 : 0;
    return found;
  };
  auto const kept = [](graph::Graph const& graph) {  // by the forward loop, for a token and layer
    std::int64_t floats = 0;
    for (graph::Id id = 0; id < graph.size(); ++id)
      if (graph.op(id) == graph::Op::repeat && !repeat_shape(graph, id).reversed)
        for (int i = 1; i < graph.results(id); ++i) floats += graph.type(id, i).shape.size();
    return static_cast<double>(floats) / (2 * 12);
  };
  graph::Graph const sums = grad(parallel::shard(whole, splits)), shares = grad(parallel::shard(whole, splits, true));
  REQUIRE(shares.bodies.size() == 2);
  for (int body : {0, 1}) {
    graph::Graph const& graph = shares.bodies[static_cast<std::size_t>(body)];
    CHECK(count(graph, graph::Op::all_reduce) == 0);
    CHECK(count(graph, graph::Op::reduce_scatter) == 2);
    CHECK(count(graph, graph::Op::all_gather) == (body == 0 ? 2 : 4));  // inputs anew, and what was scattered
  }
  // Sums for vectors that each rank used for its share: six of a layer for all layers at once, two of the last norm,
  // positions; and the logits of the targets.
  CHECK(count(shares, graph::Op::all_reduce) == 10);
  CHECK(kept(sums) == Approx(4 * 8 + 4 + (12 * 8 + 4) / 2));
  CHECK(kept(shares) == Approx((4 * 8 + 4) / 2 + (12 * 8 + 4) / 2));
  CHECK(graph::program_hash(graph::read(graph::write(shares))) == graph::program_hash(shares));
}

TEST_CASE("of parameters in parts each rank has the average of the ranks' gradients of its rows") {
  nn::LlamaConfig odd = llama;  // 9 rows of a table, which every rank has whole
  odd.vocabulary = odd.padded_vocabulary = 9;
  graph::Graph const whole = graph::trace(make_parameters(odd), [&](graph::Builder& b, nn::Llama const& parameters) {
    b.output("loss", nn::LlamaLoss{}(parameters, b.input("tokens", DType::int32, {1, 4}),
                                     b.input("targets", DType::int32, {1, 4})));
  });
  for (bool again : {true, false})
    for (int ranks : {2, 4}) {
      parallel::Splits const splits = parallel::parameter_parts(whole, ranks);
      CHECK(splits.entries().size() + 1 == whole.parameters.size());
      graph::Interpreter reference(grad(whole), ranks);
      graph::Interpreter divided(grad(parallel::gather_parameters(whole, splits, again)), ranks);
      randomise(reference, {.integers = 9});
      graph::Graph const& g = reference.graph();
      for (int rank = 0; rank < ranks; ++rank) {
        reference.set("tokens", graph::naive::Values{0, 8, double(rank), 2}, rank);
        for (graph::Id id = 0; id < g.size(); ++id)
          if (g[id].name != graph::none)
            divided.set(g.name(id), part(reference.get(g.name(id), rank), g.shape(id), splits.of(g.name(id)), ranks,
                                         rank), rank);
      }
      reference.run();
      divided.run();
      double gap = 0;
      for (graph::Parameter const& parameter : g.parameters) {
        std::string const name = "gradient." + std::string(g.name(parameter.node));
        parallel::Split const& split = splits.of(g.name(parameter.node));
        graph::naive::Values mean = reference.output(name, 0);
        for (int rank = 1; rank < ranks; ++rank)
          for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += reference.output(name, rank)[i];
        for (double& value : mean) value /= ranks;
        for (int rank = 0; rank < ranks; ++rank) {
          auto const expected = split.divided() ? part(mean, g.shape(parameter.node), split, ranks, rank)
                                                : reference.output(name, rank);
          auto const& got = divided.output(name, rank);
          REQUIRE(got.size() == expected.size());
          for (std::size_t i = 0; i < got.size(); ++i) gap = std::max(gap, std::abs(got[i] - expected[i]));
        }
      }
      INFO(ranks << " ranks, gathered again: " << again);
      CHECK(gap < 1e-12);
    }
}

TEST_CASE("of packed matrices every rank has its part of each, and the parts are the whole again") {
  parallel::Split const split{1, {4, 2, 2}};
  Shape const shape{2, 8, 3};
  std::vector<float> whole(48), again(48);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  for (int rank : {1, 0}) {
    std::vector<float> mine(static_cast<std::size_t>(parallel::part_of(shape, split, 2).size()));
    copy_part(whole, mine, shape, split, 2, rank, false);
    // Rows 0, 1 of the first four, then one of either pair.
    for (std::size_t column = 0; column < 3; ++column)
      CHECK(mine[6 + column] == static_cast<float>((rank == 0 ? 12 : 15) + column));
    copy_part(again, mine, shape, split, 2, rank, true);
  }
  CHECK(again == whole);
  CHECK(parallel::whole_of(parallel::part_of(shape, split, 2), split, 2) == shape);
}

TEST_CASE("a state's parts come together where they are wanted, moments as their parameters") {
  graph::Graph const model = loss_of<nn::LlamaLoss>(llama);
  std::vector<std::string> wrong(4);
  threads::run(4, [&](Communicator<Threads>& communicator) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    parallel::Splits const splits(model, shard_rules(llama), 4);
    graph::State whole(model);
    whole.add("m.blocks.qkv.weight", DType::float32, whole.at("blocks.qkv.weight").shape);
    whole.add("other", DType::float32, {3});
    whole.initialise(5);
    for (float& value : whole.at("m.blocks.qkv.weight").view<float>().elements()) value = 3 + 2 * value;
    graph::State part;
    for (graph::Field const& field : whole.fields()) {
      std::string const& of = field.name.starts_with("m.") ? field.name.substr(2) : field.name;
      part.add(field.name, field.dtype, parallel::part_of(field.shape, splits.of(of), 4));
    }
    parallel::RankParts parts;
    parts.divide(splits);
    parallel::DataParallel const ranks{.port = nullptr, .node = nullptr, .tensor = comm::port(communicator)};
    parts.take(whole, part, ranks);
    graph::State const joined = parts.joined(ranks, part, communicator.rank() == 2);
    if (communicator.rank() != 2) {
      if (!joined.fields().empty()) wrong[rank] = "holds what it did not want";
      return;
    }
    for (graph::Field const& field : whole.fields()) {
      graph::Field const* const found = joined.find(field.name);
      if (found == nullptr || !(found->shape == field.shape) ||
          std::memcmp(found->data(), field.data(), static_cast<std::size_t>(field.bytes())) != 0)
        wrong[rank] += field.name + " ";
    }
  });
  for (std::string const& text : wrong) CHECK(text == "");
}

TEST_CASE("rows of parts along another axis lie in the whole tensor where they were taken from, each byte once") {
  graph::Graph const model = loss_of<nn::LlamaLoss>(llama);
  graph::State whole(model);
  whole.initialise(5);
  std::vector<std::string> wrong(4);
  std::vector<std::vector<char>> seen;  // by field and byte
  for (graph::Field const& field : whole.fields()) seen.emplace_back(static_cast<std::size_t>(field.bytes()), char{0});
  threads::run(4, [&](Communicator<Threads>& communicator) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const expect = [&](bool holds, std::string const& what) { wrong[rank] += holds ? "" : what + "; "; };
    parallel::DataParallel const ranks = parallel::mesh(communicator, {2, 2});
    parallel::RankParts parts;
    parts.divide(parallel::Splits(model, shard_rules(llama), 2));
    graph::Graph const divided = parallel::shard(model, parts.levels()[0]);
    parts.divide(parallel::parameter_parts(divided, 2));
    graph::State part(parallel::gather_parameters(divided, parts.levels()[1], true));
    parts.take(whole, part, ranks);
    bool both = false;
    for (int turn = 0; turn < 4; ++turn) {
      for (std::size_t i = 0; i < part.fields().size() && turn == communicator.rank(); ++i) {
        graph::Field const& mine = part.fields()[i];
        bool const rows = parts.divides(mine, graph::MeshAxis::data),
                   heads = parts.divides(mine, graph::MeshAxis::tensor);
        both = both || (rows && heads);
        expect(parts.whole_shape(mine) == whole.fields()[i].shape, mine.name + " has another shape");
        if ((!rows && ranks.port->rank() > 0) || (!heads && ranks.tensor->rank() > 0)) continue;
        for (parallel::PartRun const& run :
             parts.outward({{0, 0, mine.bytes()}}, mine, ranks, std::source_location::current())) {
          for (std::int64_t k = run.in_whole; k < run.in_whole + run.bytes; ++k) ++seen[i][static_cast<std::size_t>(k)];
          expect(std::memcmp(static_cast<std::byte const*>(whole.fields()[i].data()) + run.in_whole,
                             static_cast<std::byte const*>(mine.data()) + run.in_part,
                             static_cast<std::size_t>(run.bytes)) == 0,
                 mine.name + " has other bytes");
        }
      }
      communicator.barrier();
    }
    expect(both, "nothing is divided twice");
    graph::State const joined = parts.joined(ranks, part, communicator.rank() == 1);
    for (graph::Field const& field : joined.fields())
      expect(std::memcmp(field.data(), whole.at(field.name).data(), static_cast<std::size_t>(field.bytes())) == 0,
             field.name + " came together otherwise");
    expect((communicator.rank() == 1) == (joined.fields().size() == whole.fields().size()), "is held elsewhere");
  });
  for (std::string const& text : wrong) CHECK(text == "");
  for (auto const& field : seen) CHECK(field == std::vector<char>(field.size(), char{1}));
}

TEST_CASE("the loss of a divided head is that of the whole one, rows at a time too, with padding and ignored targets") {
  using namespace graph;
  constexpr Replications parts = Replications().with(graph::MeshAxis::tensor, Replication::varying);
  auto const traced = [&](int ranks, std::int64_t most) {
    Builder b;
    Var const x = b.parameter("x", {2, 6, 4}, zeros());
    Var const w = b.parameter("w", {12 / ranks, 4}, zeros(), false, Where::current(),
                              ranks > 1 ? parts : Replications());
    Var const targets = b.input("targets", DType::int32, {2, 6});
    Losses losses{};
    if (ranks == 1) losses = linear_cross_entropy_losses(x, w, targets, 10);
    else losses = parallel::detail::divided_linear_cross_entropy(x, w, targets, {}, -1, 10, ranks, most);
    b.output("loss", losses.mean);
    b.output("rows", losses.tokens);
    return grad(canonical(b.graph()), "loss", 0.5);
  };
  Interpreter reference(traced(1, 0));
  randomise(reference, {});
  naive::Values const targets{3, 9, -1, 0, 5, 6, 1, -1, 8, 2, 7, 4};
  reference.set("targets", targets);
  reference.run();
  for (int ranks : {2, 3, 4})
    for (std::int64_t most : {1000, 20, 1}) {
      Interpreter divided(traced(ranks, most), ranks, ranks);
      parallel::Split const split{0, {12}};
      divided.set("targets", targets);
      divided.set("x", reference.get("x"));
      for (int rank = 0; rank < ranks; ++rank)
        divided.set("w", part(reference.get("w"), {12, 4}, split, ranks, rank), rank);
      divided.run();
      INFO(ranks << " ranks, " << most << " logits at a time");
      CHECK(divided.graph().bodies.size() == (most == 1000 ? 0 : 2));
      for (int rank = 0; rank < ranks; ++rank) {
        auto const same = [&](char const* name, naive::Values const& expected) {
          naive::Values const& got = divided.output(name, rank);
          REQUIRE(got.size() == expected.size());
          for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-12));
        };
        same("loss", reference.output("loss"));
        same("rows", reference.output("rows"));
        same("gradient.x", reference.output("gradient.x"));
        same("gradient.w", part(reference.output("gradient.w"), {12, 4}, split, ranks, rank));
      }
    }
}

namespace {

struct Own {
  BOOST_HANA_DEFINE_STRUCT(Own, (nn::Linear, up), (nn::Linear, down), (graph::Param, mixed));
};
/// A model of four features, of which `f(parameters, x)` makes one number.
template <class F>
graph::Graph own_model(F&& f) {
  Own own;
  own.up = nn::linear_of(4, 8, 0.1);
  own.down = nn::linear_of(8, 4, 0.1);
  own.mixed = {{8}, graph::normal(0.1)};
  return graph::trace(own, [&](graph::Builder& b, Own const& p) {
    b.output("loss", sum_all(f(p, b.input("x", DType::float32, {3, 4}))));
  });
}
nn::ShardRules const own_rules{{"up.*", 0}, {"down.weight", 1}};

}  // namespace

TEST_CASE("a model of one's own is divided by its own rules, also where layers are written in primitives") {
  using namespace graph;
  Graph const whole = own_model([](Own const& p, Var x) {
    Var const h = tanh(p.up(x)) * 2.0 + 1.0;
    Var const grouped = transpose(reshape(h, {3, 4, 2}), {1, 0, 2});  // (heads, rows, size)
    Var const scores = dot_general(grouped, grouped, {2}, {2}, {0}, {0});
    Var const mixed = dot_general(scores, grouped, {2}, {1}, {0}, {0});
    Var const back = reshape(transpose(mixed, {1, 0, 2}), {3, 8});
    return p.down(back) + reshape(reduce_sum(h * h, {1}), {3, 1}) * 0.5 * x;
  });
  for (int tensor : {2, 4}) {
    parallel::Splits const splits(whole, own_rules, tensor);
    Interpreter reference(grad(whole)), divided(grad(parallel::shard(whole, splits)), tensor, tensor);
    randomise(reference, {});
    for (char const* name : {"x", "up.weight", "up.bias", "down.weight", "down.bias", "mixed"})
      for (int rank = 0; rank < tensor; ++rank)
        divided.set(name, part(reference.get(name), whole.shape(whole.find_leaf(name)), splits.of(name), tensor, rank),
                    rank);
    reference.run();
    divided.run();
    for (int rank = 0; rank < tensor; ++rank) {
      CHECK(divided.output("loss", rank)[0] == Approx(reference.output("loss")[0]).epsilon(1e-12));
      for (char const* name : {"up.weight", "up.bias", "down.weight", "down.bias"}) {
        std::string const of = std::string("gradient.") + name;
        auto const expected =
            part(reference.output(of), whole.shape(whole.find_leaf(name)), splits.of(name), tensor, rank);
        for (std::size_t i = 0; i < expected.size(); ++i)
          CHECK(divided.output(of, rank)[i] == Approx(expected[i]).margin(1e-12));
      }
    }
  }
}

TEST_CASE("logits that a divided product makes are compared where they are, for a loss written by itself") {
  using namespace graph;
  struct Head {
    BOOST_HANA_DEFINE_STRUCT(Head, (nn::Linear, out));
  };
  Head head;
  head.out = nn::linear_of(4, 8, 0.1);
  Graph const whole = trace(head, [](Builder& b, Head const& p) {
    Var const targets = b.input("targets", DType::int32, {3, 2});
    Losses const losses = cross_entropy_losses(p.out(b.input("x", DType::float32, {3, 2, 4})), targets, 2);
    b.output("loss", losses.mean + sum_all(losses.tokens) * 0.25);
  });
  parallel::Splits const splits(whole, {{"out.*", 0}}, 4);
  Interpreter reference(grad(whole)), divided(grad(parallel::shard(whole, splits)), 4, 4);
  randomise(reference, {});
  reference.set("targets", {0, 7, 2, 3, 4, 2});
  for (char const* name : {"x", "targets", "out.weight", "out.bias"})
    for (int rank = 0; rank < 4; ++rank)
      divided.set(name, part(reference.get(name), whole.shape(whole.find_leaf(name)), splits.of(name), 4, rank), rank);
  reference.run();
  divided.run();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(divided.output("loss", rank)[0] == Approx(reference.output("loss")[0]).epsilon(1e-12));
    auto const expected = part(reference.output("gradient.out.weight"), {8, 4}, splits.of("out.weight"), 4, rank);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(divided.output("gradient.out.weight", rank)[i] == Approx(expected[i]).margin(1e-12));
  }
}

TEST_CASE("what does not work on parts is refused with its operation, its line and the way out") {
  using namespace graph;
  auto const refused = [](auto&& f, nn::ShardRules const& rules, char const* sentence) {
    Graph const whole = own_model(f);
    REQUIRE_ERROR(parallel::shard(whole, parallel::Splits(whole, rules, 2)), ErrorKind::unavailable, sentence);
  };
  auto const mlp = [](Own const& p, Var x) { return p.down(tanh(p.up(x))); };
  refused(mlp, {{"up.*", 0}}, "operation 'linear' (");
  refused(mlp, {{"up.*", 0}}, "with 'down.weight', which is whole. Divide that along axis 1");
  refused(mlp, {{"down.weight", 1}}, "with an input that is not divided like it");
  refused(mlp, {{"up.*", 0}, {"down.*", 0}}, "weight that is divided along axis 0");
  refused([](Own const& p, Var x) { return tanh(p.up(x)); }, {{"up.weight", 0}},
          "meets parts of axis 0 with an operand that every rank has whole, by 'parameter' (");
  refused([](Own const& p, Var x) { return p.up(x) * broadcast_in_dim(p.mixed, {3, 8}, {1}); }, {{"up.*", 0}},
          "operation 'multiply' (shard.cpp:");
  refused([](Own const& p, Var x) { return reduce_max(p.up(x), {1}); }, {{"up.*", 0}}, "operation 'reduce_max'");
  refused([](Own const& p, Var x) { return slice(p.up(x), {0, 1}, {3, 5}); }, {{"up.*", 0}}, "takes 1 to 5 of axis 1");
  refused([](Own const& p, Var x) { return reshape(p.up(x), {3, 1, 2, 4, 1}) * 1.0; }, {{"up.*", 0, {3, 1}}},
          "operation 'reshape'");
  refused([](Own const& p, Var x) { return rms_norm(p.up(x), p.mixed); }, {{"up.*", 0}}, "operation 'rms_norm'");
  Graph const whole = own_model([](Own const& p, Var x) { return p.up(x); });
  auto const rules = [&](nn::ShardRules const& wrong, int ranks, char const* sentence) {
    REQUIRE_ERROR(parallel::Splits(whole, wrong, ranks), ErrorKind::configuration, sentence);
  };
  rules({{"up.weight", 0}}, 3, "'up.weight' has 8 rows along axis 0, which 3 ranks of the tensor axis do not divide");
  rules({{"up.weight", 2}}, 2, "the rule for 'up.weight' divides axis 2");
  rules({{"up.weights", 0}}, 2, "no parameter is named 'up.weights'");
  rules({{"up.weight", 0, {2, 1}}}, 2, "are not 3 equal ones");
  nn::LlamaConfig grouped = llama;
  grouped.kv_heads = 2;
  Graph const model = loss_of<nn::LlamaLoss>(grouped);
  REQUIRE_ERROR(parallel::shard(model, parallel::Splits(model, shard_rules(grouped), 4)), ErrorKind::configuration,
                "2 heads do not divide among 4 ranks");
}
