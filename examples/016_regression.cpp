// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floats in and floats out, with batch norm: a network learns a surface from points with noise, on any number of ranks.
// What batch norm saw on average is a state, averaged over the ranks, which evaluation reads.

#include <tutti/backend/any.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstdio>

using namespace tutti;
using graph::Var;
constexpr std::int64_t batch = 64, hidden = 32;

struct Surface {
  BOOST_HANA_DEFINE_STRUCT(Surface, (nn::Linear, first), (graph::Param, scale), (graph::Param, shift),
                           (nn::Linear, second), (nn::Linear, last));

  /// (batch, 2) to (batch, 1). In training batches are normalised by their own mean and variance.
  Var operator()(Var x, bool training) const {
    graph::Builder& b = *x.builder;
    auto const range = b.scope("network");
    Var const h = first(x);
    auto const seen = [&](char const* name, auto&& now) {  // in training what is now, which joins the average
      Var const average = b.state(name, {hidden}, graph::StateUpdate::averaged);
      if (!training) return average;
      b.update(average, 0.95f * average + 0.05f * stop_gradient(now()));
      return now();
    };
    Var const mean = seen("norm.mean", [&] { return reduce_mean(h, {0}); });
    Var const variance = seen("norm.variance", [&] { return reduce_mean((h - mean) * (h - mean), {0}); });
    Var const normed = (h - mean) / sqrt(variance + 1e-5f) * scale + shift;
    return last(tanh(second(tanh(normed))));
  }
};

struct Points {
  BOOST_HANA_DEFINE_STRUCT(Points, (train::Input, x), (train::Input, y));
};
struct SquaredError {
  struct Config {};
  static Points inputs(Config const&) { return {train::row_input<float>({2}), train::row_input<float>({1})}; }
  Var operator()(Surface const& model, Points const& in, train::LossContext const& of) const {
    Var const y = model(in.x, of.training), error = y - in.y;
    of.output("y", y);
    return mean_all(error * error);
  }
};
Surface make_parameters(SquaredError::Config const&) {
  return {nn::linear_of(2, hidden, 0.7), {{hidden}, graph::ones()}, {{hidden}, graph::zeros()},
          nn::linear_of(hidden, hidden, 0.2), nn::linear_of(hidden, 1, 0.2)};
}

int main(int argc, char** argv) {
  return with_backend("auto", argc, argv, [](auto& comm) {
    auto const rows = batch / comm.size();
    exec::Context context(comm.context_options());
    train::TrainStep<SquaredError> step(context, {}, {}, {.batch = rows, .evaluation_batch = 4});
    step.initialise(3);
    step.connect(parallel::data_parallel(comm));
    auto const height = [](float a, float b) { return std::sin(2 * a) * b; };
    auto x = empty<float>({rows, 2}), y = empty<float>({rows, 1});
    for (int i = 1; i <= 1200; ++i) {
      CounterRandom{1, i}.fill_uniform(x.elements(), -1, 1, 2 * rows * comm.rank());
      CounterRandom{2, i}.fill_uniform(y.elements(), -0.05f, 0.05f, rows * comm.rank());
      for (std::int64_t row = 0; row < rows; ++row) y(row, 0) += height(x(row, 0), x(row, 1));
      auto const result = step({{"x", x}, {"y", y}}, 0.01 * (1 - i / 1201.0));
      if (comm.rank() == 0 && i % 50 == 1) std::fprintf(stderr, "step %d: loss %.7f\n", i, result.loss);
    }
    auto points = empty<float>({4, 2}), right = empty<float>({4, 1});
    float at = 0;
    for (int p = 0; p < 4; ++p, at += 0.25f) points(p, 0) = points(p, 1) = at, right(p, 0) = height(at, at);
    step.evaluate({{"x", points}, {"y", right}});
    auto const found = step.output<float>("y");
    for (int p = 0; p < 4 && comm.rank() == 0; ++p)
      std::printf("%.2f: %s 0.05\n", right(p, 0), std::abs(found(p, 0) - right(p, 0)) < 0.05f ? "within" : "beyond");
  });
}
