// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/optim/minimise.hpp> <tutti/optim/muon.hpp> <tutti/optim/optimizer.hpp>
// Covers: <tutti/optim/parameter_groups.hpp> <tutti/optim/sgd.hpp> <tutti/optim/trained_parameters.hpp>
#include "support/catch.hpp"

#include <tutti/graph/compile.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/optim.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

using namespace tutti;
using namespace tutti::optim;
using graph::Var;
using Values = std::vector<double>;

namespace {

struct Block {
  BOOST_HANA_DEFINE_STRUCT(Block, (graph::Param, weight), (graph::Param, bias));
};
struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (graph::Param, table), (graph::Stack<Block>, blocks), (graph::Param, tall),
                           (graph::Param, head));
};
constexpr std::int64_t layers = 2, width = 3, tokens = 4, tall = 5, classes = 2;

/// An embedding, two layers, a matrix of more rows than columns, and a head.
Model model() {
  Model m;
  m.table = {{6, width}, graph::normal(1)};
  m.blocks.block.weight = {{width, width}, graph::normal(1)};
  m.blocks.block.bias = {{width}, graph::zeros()};
  m.blocks.length = layers;
  m.tall = {{tall, width}, graph::normal(1)};
  m.head = {{classes, tall}, graph::normal(1)};
  return m;
}
Var loss_of(graph::Builder& builder, Model const& p) {
  Var const in = builder.input("tokens", DType::int32, {1, tokens});
  Var const targets = builder.input("targets", DType::int32, {1, tokens});
  Var const x = repeat(p.blocks, embed(p.table, in),
                       [](Block const& block, Var h) { return h + tanh(linear(h, block.weight, block.bias)); });
  return graph::cross_entropy(linear(tanh(linear(x, p.tall)), p.head), targets);
}
template <class O>
graph::Graph program(O const& optimizer, StepOptions const& options = {}) {
  return graph::trace(model(), [&](graph::Builder& builder, Model const& p) {
    minimise(loss_of(builder, p), Pass::whole, optimizer, options);
  });
}
graph::Graph gradients() {
  return graph::grad(graph::trace(
      model(), [](graph::Builder& builder, Model const& p) { builder.output("loss", loss_of(builder, p)); }));
}

/// Leaves by name, carried from step to step as a State would.
using State = std::map<std::string, Values>;
State start() {
  State state;
  std::uint64_t seed = 1;
  graph::Graph const graph = gradients();
  for (graph::Parameter const& parameter : graph.parameters) {
    Values& values = state[std::string(graph.name(parameter.node))];
    values.resize(static_cast<std::size_t>(graph.shape(parameter.node).size()));
    for (double& value : values) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<double>(seed >> 40) / 16777216.0 - 0.5;
    }
  }
  return state;
}
graph::Interpreter run(graph::Graph const& graph, State& state, double rate, std::int64_t step,
                       List<StepScalar> const& scalars) {
  graph::Interpreter interpreter(graph, 1);
  for (auto const& [name, values] : state)
    if (graph.find_leaf(name) != graph::none) interpreter.set(name, values);
  double const shift = static_cast<double>(step);
  interpreter.set("tokens", {std::fmod(shift, 6), 1, 5, 3});
  interpreter.set("targets", {0, 1, std::fmod(shift, 2), 1});
  if (graph.find_leaf("learning_rate") != graph::none) interpreter.set("learning_rate", {rate});
  for (StepScalar const& scalar : scalars)
    if (graph.find_leaf(scalar.name) != graph::none) interpreter.set(scalar.name, {scalar.value});
  interpreter.run();
  for (graph::Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == graph::Op::parameter || graph.op(id) == graph::Op::state)
      state[std::string(graph.name(id))] = interpreter.get(graph.name(id));
  return interpreter;
}

void expect(Values const& got, Values const& expected, double tolerance = 1e-6) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(tolerance).margin(1e-9));
}

/// The optimizers again, over plain arrays.
struct Naive {
  enum class Kind { sgd, muon, adamw } kind;
  std::size_t layers = 1, rows = 1, columns = 1;  // of muon
  double momentum = 0, decay = 0, rate = 1;       // factor of the rate
  bool nesterov = false;
  double scale = 1;  // of muon
  Values velocity{}, v{};

  static Values times(Values const& a, Values const& b, std::size_t m, std::size_t k, std::size_t n) {
    Values c(m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[l * n + j];
    return c;
  }
  static Values transposed(Values const& a, std::size_t m, std::size_t n) {
    Values t(a.size());
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) t[j * m + i] = a[i * n + j];
    return t;
  }
  /// From the rows' side alone: the iteration is an odd polynomial of the matrix, the same from either.
  static Values newton_schulz(Values x, std::size_t m, std::size_t n) {
    double norm = 0;
    for (double value : x) norm += value * value;
    for (double& value : x) value /= std::sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; ++step) {
      Values const gram = times(x, transposed(x, m, n), m, n, m), square = times(gram, gram, m, m, m);
      Values by(gram.size());
      for (std::size_t i = 0; i < by.size(); ++i) by[i] = -4.7750 * gram[i] + 2.0315 * square[i];
      Values const added = times(by, x, m, m, n);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + added[i];
    }
    return x;
  }

  void step(Values& p, Values const& g, double base, int n) {
    velocity.resize(p.size());
    v.resize(p.size());
    double const lr = base * rate;
    Values move(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (kind == Kind::adamw) {
        velocity[i] = 0.9 * velocity[i] + 0.1 * g[i];
        v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
        move[i] = velocity[i] / (1 - std::pow(0.9, n)) / (std::sqrt(v[i] / (1 - std::pow(0.95, n))) + 1e-8);
      } else {
        double const part = kind == Kind::muon ? (1 - momentum) * g[i] : g[i];
        velocity[i] = momentum * velocity[i] + part;
        move[i] = nesterov ? part + momentum * velocity[i] : velocity[i];
      }
    }
    if (kind == Kind::muon)
      for (std::size_t layer = 0; layer < layers; ++layer) {
        auto const at = move.begin() + static_cast<std::ptrdiff_t>(layer * rows * columns);
        Values const one = newton_schulz({at, at + static_cast<std::ptrdiff_t>(rows * columns)}, rows, columns);
        std::transform(one.begin(), one.end(), at, [&](double value) { return value * scale; });
      }
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = (1 - lr * decay) * p[i] - lr * move[i];
  }
};

/// Three steps of a program against the plain ones, from the same gradients.
template <class O>
State follow(O const& optimizer, std::map<std::string, Naive> naive, StepOptions const& options = {}) {
  graph::Graph const graph = program(optimizer, options);
  State state = start(), expected = state;
  for (int step = 1; step <= 3; ++step) {
    State leaves = expected;
    auto const reference = run(gradients(), leaves, 0, step, {});
    for (auto& [name, one] : naive) {
      INFO(name << " at step " << step);
      one.step(expected[name], reference.output("gradient." + name), 0.1, step);
    }
    run(graph, state, 0.1, step, optimizer.scalars(step));
    for (auto const& [name, values] : expected) {
      INFO(name << " at step " << step);
      expect(state.at(name), values);
    }
  }
  return state;
}

}  // namespace

TEST_CASE("SGD follows its equations with and without momentum, Nesterov's too; weights decay apart from gradients") {
  for (double momentum : {0.0, 0.8})
    for (bool nesterov : {false, true})
      for (double decay : {0.0, 0.3}) {
        INFO(momentum << (nesterov ? " Nesterov, decay " : ", decay ") << decay);
        Naive const matrix{
            .kind = Naive::Kind::sgd, .momentum = momentum, .decay = decay, .nesterov = nesterov && momentum > 0};
        Naive vector = matrix;
        vector.decay = 0;
        State const state = follow(Sgd{momentum, nesterov, decay}, {{"table", matrix},
                                                                    {"blocks.weight", matrix},
                                                                    {"blocks.bias", vector},
                                                                    {"tall", matrix},
                                                                    {"head", matrix}});
        CHECK(state.count("velocity.tall") == (momentum > 0 ? 1u : 0u));
        CHECK(state.count("m.tall") == 0);
      }
}

TEST_CASE("Muon makes every layer's momentum orthogonal; embedding, head and vectors are AdamW's") {
  for (MuonScale scale : {MuonScale::match_adamw, MuonScale::spectral}) {
    bool const match = scale == MuonScale::match_adamw;
    Naive const layered{.kind = Naive::Kind::muon,
                        .layers = layers,
                        .rows = width,
                        .columns = width,
                        .momentum = 0.9,
                        .decay = 0.2,
                        .nesterov = match,
                        .scale = match ? 0.2 * std::sqrt(3.0) : 1};
    Naive upright = layered;
    upright.layers = 1;
    upright.rows = tall;
    upright.scale = match ? 0.2 * std::sqrt(5.0) : std::sqrt(5.0 / 3.0);
    Naive const other{.kind = Naive::Kind::adamw, .decay = 0.2};
    Naive vector = other;
    vector.decay = 0;
    Muon const muon{.momentum = 0.9, .nesterov = match, .weight_decay = 0.2, .scale = scale};
    State const state = follow(
        muon,
        {{"table", other}, {"blocks.weight", layered}, {"blocks.bias", vector}, {"tall", upright}, {"head", other}});
    for (char const* name : {"velocity.tall", "velocity.blocks.weight", "m.table", "v.head", "m.blocks.bias"})
      CHECK(state.count(name) == 1);
    for (char const* name : {"m.tall", "velocity.head", "velocity.table"}) CHECK(state.count(name) == 0);
    // A group takes a matrix out.
    follow(muon,
           {{"table", other}, {"blocks.weight", other}, {"blocks.bias", vector}, {"tall", upright}, {"head", other}},
           {.groups = {{.pattern = "blocks.*", .vector = true}}});
  }
}

TEST_CASE("singular values of an orthogonalised matrix come near one, also where they are far apart") {
  graph::Builder builder;
  builder.output("y", orthogonalised(builder.input("x", DType::float32, {2, 2, 3})));
  graph::Interpreter interpreter(builder.graph(), 1);
  interpreter.set("x", {3, 0, 0, 0, 0.2, 0, 0, 0, 0, 0, 0, 0});  // a layer of zeros stays one
  interpreter.run();
  Values const y = interpreter.output("y");
  for (std::size_t i : {0u, 4u}) {
    CHECK(y[i] > 0.6);
    CHECK(y[i] < 1.3);
  }
  for (std::size_t i : {1u, 2u, 3u, 5u, 6u, 9u}) CHECK(y[i] == 0);
  REQUIRE_ERROR(orthogonalised(builder.input("v", DType::float32, {3})), ErrorKind::shape, "(m, n)");
}

TEST_CASE("groups change decay and rate, freeze, and the last that says something wins") {
  Naive const plain{.kind = Naive::Kind::adamw, .decay = 0.2};
  Naive slow = plain, kept = plain, vector = plain, quick = plain;
  slow.rate = kept.rate = 0.5;
  kept.decay = 0;
  vector.rate = quick.rate = 0.25;
  vector.decay = 0.1;  // a vector decays where a group says so
  State const state = follow(AdamW{.weight_decay = 0.2},
                             {{"tall", slow}, {"head", kept}, {"blocks.bias", vector}, {"blocks.weight", quick}},
                             {.groups = {{.pattern = "*", .rate = 0.5},
                                         {.pattern = "blocks.*", .rate = 2},
                                         {.pattern = "blocks.*", .decay = 0.1, .rate = 0.25},
                                         {.pattern = "blocks.weight", .decay = 0.2},
                                         {.pattern = "table", .frozen = true},
                                         {.pattern = "head", .decay = 0}}});
  CHECK(state.count("m.table") == 0);
}

TEST_CASE("groups are read as they are written; what is none is named") {
  List<ParameterGroup> const groups = parse_groups(" blocks.*:decay=0,rate=1e-1 ;wte:frozen;; head:vector,rate=0");
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].pattern == "blocks.*");
  CHECK(groups[0].decay == 0.0);
  CHECK(groups[0].rate == 0.1);
  CHECK((groups[1].frozen && !groups[1].decay && groups[1].rate == 1));
  CHECK((groups[2].vector && groups[2].rate == 0 && !groups[2].frozen));
  CHECK(parse_groups("").empty());
  for (char const* text : {"wte", "wte:", ":frozen", "wte:decay", "wte:decay=", "wte:decay=x", "wte:decay=-1", "wte:,",
                           "wte:rate=nan", "wte:Frozen"}) {
    INFO(text);
    REQUIRE_ERROR(parse_groups(text), ErrorKind::configuration, "'" + std::string(text) + "': ");
  }
}

TEST_CASE("a group that names nothing says which names there are; what is below zero is refused") {
  REQUIRE_ERROR(program(AdamW{}, {.groups = {{.pattern = "block.*", .decay = 0}}}), ErrorKind::configuration,
                "no parameter is named 'block.*', of which a parameter group speaks");
  REQUIRE_ERROR(program(AdamW{}, {.groups = {{.pattern = "block.*"}}}), ErrorKind::configuration,
                "There are: table, blocks.weight, blocks.bias, tall, head");
  REQUIRE_ERROR(program(AdamW{}, {.groups = {{.pattern = "head", .rate = -1}}}), ErrorKind::configuration,
                "at least 0");
}

TEST_CASE("compiled programs of every optimizer do what the reference does, and any optimizer is one type") {
  exec::Context context({.threads = 2});
  auto const check = [&](AnyOptimizer const& optimizer) {
    INFO(optimizer.describe());
    graph::Graph const graph = program(optimizer, {.clip = 0.05});
    State expected = start();
    graph::State state(graph);
    for (graph::Field& field : state.fields())
      if (field.parameter)
        std::copy(expected[field.name].begin(), expected[field.name].end(), field.view<float>().elements().begin());
    graph::Program const compiled = graph::compile(graph);
    graph::Executor step(context, compiled, state);
    for (int i = 1; i <= 3; ++i) {
      Tensor<std::int32_t> in(Shape{1, tokens}), targets(Shape{1, tokens});
      for (std::int64_t t = 0; t < tokens; ++t) {
        in(0, t) = std::int32_t(std::vector<int>{i % 6, 1, 5, 3}[static_cast<std::size_t>(t)]);
        targets(0, t) = std::int32_t(std::vector<int>{0, 1, i % 2, 1}[static_cast<std::size_t>(t)]);
      }
      step.set("tokens", in.view());
      step.set("targets", targets.view());
      set_step(step, optimizer, 0.1, i);
      step.run();
      run(graph, expected, 0.1, i, optimizer.scalars(i));
      for (graph::Field const& field : state.fields()) {
        INFO(field.name << " after step " << i);
        std::span<float const> const got = std::as_const(field).view<float>().elements();
        expect({got.begin(), got.end()}, expected[field.name], 2e-4);
      }
    }
  };
  check(AdamW{.weight_decay = 0.1});
  check(Sgd{});
  check(Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  check(Muon{.weight_decay = 0.1});
  CHECK(AnyOptimizer(Sgd{.momentum = 0.5}).describe() == "SGD, momentum 0.5, weight decay 0");
}

TEST_CASE("two optimizers train their parameters in one graph, as they do in graphs of their own") {
  struct Two {
    BOOST_HANA_DEFINE_STRUCT(Two, (graph::Param, left), (graph::Param, right));
  };
  Two two;
  two.left = {{2, 3}, graph::normal(1)};
  two.right = {{2, 3}, graph::normal(1)};
  AdamW const adam{.weight_decay = 0.1};
  Sgd const sgd{.momentum = 0.9};
  auto const mean_square = [](Var x) { return graph::reduce_mean(x * x, {0, 1}); };
  auto const first = [&](Two const& p) { return mean_square(p.left - p.right * 2.0f); };
  auto const second = [&](Two const& p) { return mean_square(p.left * p.right - 1.0f); };
  auto const graph = graph::trace(two, [&](graph::Builder&, Two const& p) {
    minimise(first(p), Pass::whole, adam, {.clip = 0.1, .frozen = {"right"}, .name = "one"});
    minimise(second(p), Pass::whole, sgd, {.frozen = {"left"}, .name = "other"});
  });
  auto const alone = [&](bool is_first) {
    return graph::trace(two, [&](graph::Builder&, Two const& p) {
      if (is_first) minimise(first(p), Pass::whole, adam, {.clip = 0.1, .frozen = {"right"}});
      else minimise(second(p), Pass::whole, sgd, {.frozen = {"left"}});
    });
  };
  exec::Context context({.threads = 1});
  graph::Program const together = graph::compile(graph), one = graph::compile(alone(true)),
                       other = graph::compile(alone(false));
  graph::State state(graph), apart(alone(true)), beside(alone(false));
  for (graph::State* of : {&state, &apart, &beside}) {
    of->initialise(3);
    for (char const* name : {"left", "right"})
      for (std::int64_t i = 0; i < 6; ++i)
        of->at(name).view<float>().elements()[static_cast<std::size_t>(i)] =
            0.3f * static_cast<float>(i) - (*name == 'l' ? 0.5f : 0.9f);
  }
  graph::Executor run(context, together, state), run_one(context, one, apart), run_other(context, other, beside);
  for (std::int64_t step = 1; step <= 3; ++step) {
    set_step(run, adam, 0.05, step, "one");
    set_step(run, sgd, 0.1, step, "other");
    run.run();
    set_step(run_one, adam, 0.05, step);
    set_step(run_other, sgd, 0.1, step);
    run_one.run();
    run_other.run();
    CHECK(run.value("one.loss") == run_one.value("loss"));
    CHECK(run.value("other.loss") == run_other.value("loss"));
    CHECK(run.value("one.grad_norm") == run_one.value("grad_norm"));
    for (auto const& [name, from, to] : {std::tuple("left", &apart, &beside), std::tuple("right", &beside, &apart)}) {
      INFO(name << " after step " << step);
      std::span<float> const values = from->at(name).view<float>().elements();
      CHECK(std::ranges::equal(values, state.at(name).view<float>().elements()));
      std::ranges::copy(values, to->at(name).view<float>().elements().begin());
    }
  }
  REQUIRE_ERROR(graph::trace(two,
                             [&](graph::Builder&, Two const& p) {
                               minimise(first(p), Pass::whole, adam, {.frozen = {"right"}});
                               minimise(second(p), Pass::whole, sgd, {.frozen = {"left"}});
                             }),
                ErrorKind::invalid_argument, "Give each of them a StepOptions::name of its own");
}
