// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A recurrent network: `scan` runs a body over time, with two carried values, and its gradient runs back through time.
// An LSTM reads numbers, of which two are marked, and learns to say their sum (the adding problem of Hochreiter and
// Schmidhuber, 1997). Ranks share the batch: 011_lstm --ranks 2 are threads, mpiexec -n 4 011_lstm processes.

#include <tutti/backend/any.hpp>
#include <tutti/graph.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>
#include <tutti/parallel.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

using namespace tutti;
using graph::Var;

constexpr std::int64_t time_steps = 20, batch = 64, hidden = 24;

struct Lstm {
  BOOST_HANA_DEFINE_STRUCT(Lstm, (nn::Linear, input), (nn::Linear, recurrent), (nn::Linear, head));

  /// x (time, batch, channels): the answer after the last element, (batch, 1).
  Var operator()(Var x) const {
    std::int64_t const rows = x.shape()[1];
    Var const zero = graph::constant(*x.builder, 0, {rows, hidden});
    graph::Scanned const states = graph::scan({zero, zero}, {x}, [&](auto const& carried, auto const& element) {
      Var const gates = input(element[0]) + recurrent(carried[0]);
      auto const gate = [&](std::int64_t i) { return slice(gates, {0, i * hidden}, {rows, (i + 1) * hidden}); };
      Var const cell = logistic(gate(0)) * carried[1] + logistic(gate(1)) * tanh(gate(2));
      return graph::ScanStep{{logistic(gate(3)) * tanh(cell), cell}};
    });
    return head(states.carried[0]);
  }
};

int main(int argc, char** argv) {
  return with_backend("auto", argc, argv, [](auto& comm) {
    Lstm const lstm{nn::linear_of(2, 4 * hidden, 0.5), nn::linear_of(hidden, 4 * hidden, 0.2, false),
                    nn::linear_of(hidden, 1, 0.2)};
    std::int64_t const rows = batch / comm.size();
    optim::AdamW const adamw{.beta2 = 0.99};
    graph::Graph const training = graph::trace(lstm, [&](graph::Builder& b, Lstm const& model) {
      Var const x = b.input("x", DType::float32, {time_steps, rows, 2}, graph::Replication::varying);
      Var const y = b.input("y", DType::float32, {rows, 1}, graph::Replication::varying);
      Var const error = model(x) - y;
      optim::minimise(mean_all(error * error), optim::Pass::whole, adamw, {.clip = 1.0, .reduce = true});
    });
    graph::State state(training);
    state.initialise(7);  // the same on every rank
    exec::Context context(comm.context_options());
    graph::Program const program = graph::compile(training);
    auto const ranks = parallel::data_parallel(comm);
    graph::Executor step(context, program, state, {.port = ranks.port.get()});

    auto x = empty<float>({time_steps, rows, 2}), y = empty<float>({rows, 1});
    for (int i = 1; i <= 750; ++i) {
      for (std::int64_t row = 0; row < rows; ++row) {  // of the global batch, whatever the number of ranks
        CounterRandom const random{i, comm.rank() * rows + row};
        std::int64_t const first = random.bits(0) % 10, second = 10 + random.bits(1) % 10;
        for (std::int64_t t = 0; t < time_steps; ++t) {
          x(t, row, 0) = random.uniform(2 + t);
          x(t, row, 1) = t == first || t == second ? 1.0f : 0.0f;
        }
        y(row, 0) = x(first, row, 0) + x(second, row, 0);
      }
      step.set("x", x.view());
      step.set("y", y.view());
      optim::set_step(step, adamw, 0.01 * (1 - i / 751.0), i);
      step.run();
      if (comm.rank() == 0 && i % 50 == 1) std::fprintf(stderr, "step %d: loss %.7f\n", i, step.value("loss"));
      if (comm.rank() == 0 && (i == 1 || i == 750))  // 0.17 is the error of always answering 1
        std::printf("step %4d: squared error %s 0.01\n", i, step.value("loss") < 0.01 ? "below" : "above");
    }
  });
}
