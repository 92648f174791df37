// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model of your own in the trainer: its data, flags, validation, checkpoints, resuming, DiLoCo, any number of ranks.
//   mpiexec -n 2 040_train_your_own --data build/data/jargon --steps 200 --out runs/own
#include <tutti/backend/any.hpp>
#include <tutti/nn.hpp>
#include <tutti/train.hpp>
using namespace tutti;

// A token and the three before it foretell the next one.
struct Config {
  std::int64_t vocabulary = 0, channels = 64;
};
struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (nn::Param, table), (nn::Linear, mix), (nn::Linear, out));
};
Model make_parameters(Config const& c) {
  std::int64_t const n = c.channels;
  return {{{c.vocabulary, n}, graph::normal(0.02)}, nn::linear_of(4 * n, n, 0.05), nn::linear_of(n, n, 0.05)};
}
struct Loss {
  using Config = ::Config;
  graph::Var operator()(Model const& p, graph::Var tokens, graph::Var targets) const {
    graph::Var const x = embed(p.table, tokens);  // (rows, length, channels)
    auto const earlier = [&](std::int64_t by) {       // the token so many places before, zeros where there is none
      return graph::slice(graph::pad(x, {0, by, 0}, {0, 0, 0}), {0, 0, 0}, {x.shape()[0], x.shape()[1], x.shape()[2]});
    };
    graph::Var const h = p.mix(graph::concatenate({x, earlier(1), earlier(2), earlier(3)}, 2));
    return linear_cross_entropy(p.out(gelu(h)), p.table, targets, p.table.shape[0]);
  }
};

int main(int argc, char** argv) {
  train::Options options;
  if (auto const code = train::parse_or_leave(argc, argv, options)) return *code;
  return with_backend(options.backend.text(), {.ranks = options.ranks}, [&](auto& comm) {
    return train::train_model<Loss>(comm, options, [](train::Setup const& setup) {
      return Config{.vocabulary = setup.tokenizer ? setup.tokenizer->tokenizer.vocabulary() : 256};
    });
  });
}
