// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two networks against each other, each with an optimizer of its own (Goodfellow et al., 2014): a generator makes
// numbers of noise, a discriminator tells them from real ones. Two programs share one state.

#include <tutti/backend/any.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>
#include <tutti/parallel.hpp>

#include <cmath>
#include <cstdio>

using namespace tutti;
using graph::Var;
constexpr std::int64_t batch = 128, hidden = 16;

struct Network {
  BOOST_HANA_DEFINE_STRUCT(Network, (nn::Linear, first), (nn::Linear, second), (nn::Linear, last));
  Var operator()(Var x) const { return last(tanh(second(tanh(first(x))))); }
};
Network network(std::int64_t in) {
  return {nn::linear_of(in, hidden, 0.5), nn::linear_of(hidden, hidden, 0.3), nn::linear_of(hidden, 1, 0.3)};
}
struct Gan {
  BOOST_HANA_DEFINE_STRUCT(Gan, (Network, generator), (Network, discriminator));
};

int main(int argc, char** argv) {
  return with_backend("auto", argc, argv, [](auto& comm) {
    Gan const gan{network(2), network(1)};
    std::int64_t const rows = batch / comm.size();
    optim::AdamW const adamw{.beta1 = 0.5, .beta2 = 0.99};
    auto const softplus = [](Var x) { return log(1.0f + exp(x)); };
    auto const input = [&](graph::Builder& b, char const* name, std::int64_t width) {
      return b.input(name, DType::float32, {rows, width}, graph::Replication::varying);
    };
    graph::Graph const telling = graph::trace(gan, [&](graph::Builder& b, Gan const& model) {
      Var const made = model.discriminator(model.generator(input(b, "noise", 2)));
      Var const real = model.discriminator(input(b, "real", 1));
      optim::minimise(mean_all(softplus(made) + softplus(-real)), optim::Pass::whole, adamw,
                      {.reduce = true, .frozen = {"generator.*"}});
    });
    graph::Graph const making = graph::trace(gan, [&](graph::Builder& b, Gan const& model) {
      Var const made = model.generator(input(b, "noise", 2));
      b.output("made", made);
      optim::minimise(mean_all(softplus(-model.discriminator(made))), optim::Pass::whole, adamw,
                      {.reduce = true, .frozen = {"discriminator.*"}});
    });
    graph::State state(telling);
    state.add(making);
    state.initialise(5);
    exec::Context context(comm.context_options());
    graph::Program const first = graph::compile(telling), second = graph::compile(making);
    auto const ranks = parallel::data_parallel(comm);
    graph::Executor tell(context, first, state, {.port = ranks.port.get()});
    graph::Executor make(context, second, state, {.port = ranks.port.get()});
    auto noise = empty<float>({rows, 2}), real = empty<float>({rows, 1});
    double mean = 0, square = 0;  // of what is made in the last steps
    for (int i = 1; i <= 1000; ++i) {
      CounterRandom{1, i}.fill_normal(noise.elements(), 0, 1, 2 * rows * comm.rank());
      CounterRandom{2, i}.fill_normal(real.elements(), 3, 0.5f, rows * comm.rank());
      for (graph::Executor* program : {&tell, &make}) {
        program->set("noise", noise.view());
        if (program == &tell) program->set("real", real.view());
        optim::set_step(*program, adamw, 0.002, i);
        program->run();
      }
      if (comm.rank() == 0 && i % 50 == 1)
        std::fprintf(stderr, "step %d: loss %.7f %.7f\n", i, tell.value("loss"), make.value("loss"));
      for (float const x : make.output<float>("made"))
        if (i > 800) mean += x / (200.0 * batch), square += x * x / (200.0 * batch);
    }
    comm.all_reduce(mean, sum);
    comm.all_reduce(square, sum);
    auto const says = [](double x) { return std::abs(x) < 0.3 ? "within" : "beyond"; };
    if (comm.rank() == 0)
      std::printf("mean %s 0.3 of 3, deviation %s 0.3 of 0.5\n", says(mean - 3),
                  says(std::sqrt(square - mean * mean) - 0.5));
  });
}
