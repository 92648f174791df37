// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model is a struct of parameters and an ordinary function. Everything else is derived from the two: names, gradient,
// one program of forward, backward, clip and AdamW, its memory plan. Here: a small network learns to multiply two
// numbers.

#include <tutti/graph.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

using namespace tutti;
using graph::Var;

struct Network {
  BOOST_HANA_DEFINE_STRUCT(Network, (nn::Linear, first), (nn::Linear, second));

  constexpr Var operator()(Var x) const { return second(gelu(first(x))); }
};

constexpr Network network{nn::linear_of(2, 16, 0.7), nn::linear_of(16, 1, 0.3)};
constexpr optim::AdamW adamw{.beta2 = 0.99};

// Traced by the compiler or at run time: the same graph.
constexpr Var squared_error(graph::Builder& builder, Network const& model) {
  Var const x = builder.input("x", DType::float32, {64, 2});
  Var const y = builder.input("y", DType::float32, {64, 1});
  Var const error = model(x) - y;
  return reduce_sum(error * error, {0, 1}) / 64.0;
}

int main() {
  graph::Graph const loss = graph::trace(network, [](graph::Builder& builder, Network const& model) {
    builder.output("loss", squared_error(builder, model));
  });
  auto const check = graph::check_gradients(loss);
  std::printf("gradients agree with central differences: %s\n", check.worst < 1e-6 ? "yes" : "no");

  graph::Graph const training = graph::trace(network, [](graph::Builder& builder, Network const& model) {
    optim::minimise(squared_error(builder, model), optim::Pass::whole, adamw, {.clip = 1.0});
  });
  exec::Context context;
  graph::Program const program = graph::compile(training);
  graph::State state(training);
  state.initialise(42);
  graph::Executor step(context, program, state);

  auto x = empty<float>({64, 2}), y = empty<float>({64, 1});
  for (int i = 1; i <= 2000; ++i) {
    CounterRandom{7, static_cast<std::uint64_t>(i)}.fill_uniform(x.elements(), -1, 1);
    for (int row = 0; row < 64; ++row) y(row, 0) = x(row, 0) * x(row, 1);
    step.set("x", x.view());
    step.set("y", y.view());
    optim::set_step(step, adamw, 0.01 * (1 - i / 2001.0), i);
    step.run();
    if (i == 1 || i == 2000) std::printf("step %4d: loss %s 0.001\n", i, step.value("loss") < 1e-3 ? "below" : "above");
  }
}
