// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/parallel/outer_average.hpp>
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/diloco.hpp>
#include <tutti/tensor/random.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace tutti;
using parallel::Diloco, parallel::DilocoOptions, parallel::OuterBits;

namespace {

constexpr int ranks = 3;
using Vectors = std::vector<std::vector<float>>;

void add_parameters(graph::State& state) {
  auto const parameter = [&](char const* name, Shape const& shape, bool stacked) {
    graph::Field* const field = state.add(name, DType::float32, shape);
    field->parameter = true;
    field->stacked = stacked;
    CounterRandom{1, static_cast<std::uint64_t>(shape.size())}.fill_normal(field->view<float>().elements(), 0, 1);
  };
  parameter("table", {40, 7}, false);
  parameter("blocks.weight", {4, 9, 3}, true);
  parameter("norm", {5}, false);
}
std::vector<float> parameters_of(graph::State const& state) {
  std::vector<float> all;
  for (graph::Field const& field : state.fields())
    if (field.parameter)
      for (float const value : field.view<float>().elements()) all.push_back(value);
  return all;
}

/// An inner step: towards a target of this rank's own, by a share that depends on nothing else.
void descend(graph::State& state, int rank, float share = 0.2f) {
  std::uint64_t stream = 0;
  for (graph::Field& field : state.fields()) {
    if (!field.parameter) continue;
    std::vector<float> target(static_cast<std::size_t>(field.shape.size()));
    CounterRandom{7 + static_cast<std::uint64_t>(rank), stream++}.fill_normal(std::span<float>(target), 1, 1);
    float* const value = field.view<float>().data();
    for (std::size_t i = 0; i < target.size(); ++i) value[i] += share * (target[i] - value[i]);
  }
}

/// f(diloco, replica, rank, port) on every rank, over replicas that start alike.
void on_ranks(DilocoOptions const& options,
              std::function<void(Diloco&, graph::State&, int, Shared<comm::Port> const&)> const& f) {
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    graph::State replica;
    add_parameters(replica);
    auto const port = comm::port(communicator);
    Diloco diloco(context, port, replica, options);
    diloco.begin();
    f(diloco, replica, communicator.rank(), port);
  });
}
/// Parameters of every rank after so many steps.
Vectors trained(DilocoOptions const& options, std::int64_t steps) {
  Vectors results(ranks);
  on_ranks(options, [&](Diloco& diloco, graph::State& replica, int rank, auto const&) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      descend(replica, rank);
      diloco.after_step(step);
    }
    results[static_cast<std::size_t>(rank)] = parameters_of(replica);
  });
  return results;
}
double distance(std::vector<float> const& a, std::vector<float> const& b) {
  double most = 0;
  if (a.size() != b.size()) return 1e30;  // called by ranks, which may not assert
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double(a[i]) - double(b[i])));
  return most;
}

}  // namespace

TEST_CASE("with one inner step, outer rate 1 and no momentum DiLoCo is averaging after each step") {
  Vectors const got = trained({.inner_steps = 1, .outer = {.learning_rate = 1, .momentum = 0}}, 5);
  graph::State replicas[ranks];
  for (graph::State& state : replicas) add_parameters(state);
  for (int step = 0; step < 5; ++step) {
    for (int rank = 0; rank < ranks; ++rank) descend(replicas[rank], rank);
    for (graph::Field& field : replicas[0].fields()) {
      float* all[ranks];
      for (int rank = 0; rank < ranks; ++rank) all[rank] = replicas[rank][field.name].data();
      for (std::int64_t i = 0; i < field.shape.size(); ++i) {
        float const mean = (all[0][i] + all[1][i] + all[2][i]) / 3;
        for (float* one : all) one[i] = mean;
      }
    }
  }
  for (auto const& one : got) {
    CHECK(distance(one, got[0]) == 0);
    CHECK(distance(one, parameters_of(replicas[0])) < 1e-6);
  }
}

TEST_CASE("replicas part between outer steps and meet at them, by Nesterov's momentum") {
  Vectors const apart = trained({.inner_steps = 4}, 7), together = trained({.inner_steps = 4}, 8);
  CHECK(distance(apart[0], apart[1]) > 0.1);
  CHECK(distance(together[0], together[1]) == 0);
  CHECK(distance(together[0], together[2]) == 0);

  graph::State agreed;
  add_parameters(agreed);
  std::vector<float> parameters = parameters_of(agreed), momentum(parameters.size());
  for (int round = 0; round < 2; ++round) {
    std::vector<float> mean(parameters.size());
    for (int rank = 0; rank < ranks; ++rank) {
      graph::State replica;
      add_parameters(replica);
      parallel::scatter(parameters, parallel::fragments_of(replica, 1)[0], replica);
      for (int step = 0; step < 4; ++step) descend(replica, rank);
      std::vector<float> const now = parameters_of(replica);
      for (std::size_t i = 0; i < now.size(); ++i) mean[i] += (parameters[i] - now[i]) / ranks;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) {
      momentum[i] = 0.9f * momentum[i] + mean[i];
      parameters[i] -= 0.7f * (mean[i] + 0.9f * momentum[i]);
    }
  }
  CHECK(distance(together[0], parameters) < 1e-5);
}

TEST_CASE("formats of few bits lead where float32 does, over enough rounds, and every rank to the same bits") {
  DilocoOptions const exact{.inner_steps = 2, .outer = {.learning_rate = 0.7, .momentum = 0.5}};
  Vectors const wanted = trained(exact, 60);
  for (OuterBits const bits : {OuterBits::bfloat16, OuterBits::int8, OuterBits::int4}) {
    INFO("format " << static_cast<int>(bits));
    DilocoOptions options = exact;
    options.bits = bits;
    Vectors const got = trained(options, 60);
    for (auto const& one : got) CHECK(distance(one, got[0]) == 0);
    CHECK(distance(got[0], wanted[0]) < (bits == OuterBits::int4 ? 0.1 : 0.01));
  }
}

TEST_CASE("bytes for an average: a 30th of gradients averaged each step, and with four bits less than a 200th") {
  std::int64_t const count = 1 << 16;
  std::int64_t const gradients = 2 * 3 * (count / 4) * 4 * 30;  // of 30 steps, each rank, around a ring
  std::vector<std::int64_t> whole(4), few(4);
  threads::run(4, [&](Communicator<Threads>& communicator) {
    auto const port = comm::port(communicator);
    auto const rank = static_cast<std::size_t>(communicator.rank());
    whole[rank] = parallel::OuterAverage(port, OuterBits::float32, count).bytes_sent();
    few[rank] = parallel::OuterAverage(port, OuterBits::int4, count).bytes_sent();
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(whole[rank] * 30 == gradients);
    CHECK(few[rank] * 200 < gradients);
  }
}

TEST_CASE("fragments are averaged in turn; with an overlap they are mixed in later") {
  DilocoOptions const options{.inner_steps = 4, .fragments = 2, .overlap = 1, .mix = 0.25};
  std::vector<std::vector<bool>> changed(ranks);  // by rank: (step, fragment)
  std::vector<double> off(ranks, 1);
  on_ranks(options, [&](Diloco& diloco, graph::State& replica, int rank, auto const&) {
    auto const fragments = parallel::fragments_of(replica, 2);
    auto const part = [&](int f) {
      std::vector<float> flat(static_cast<std::size_t>(parallel::size(fragments[static_cast<std::size_t>(f)])));
      parallel::gather(replica, fragments[static_cast<std::size_t>(f)], flat);
      return flat;
    };
    auto const at = static_cast<std::size_t>(rank);
    for (std::int64_t step = 1; step <= 6; ++step) {
      descend(replica, rank);
      std::vector<float> const before[] = {part(0), part(1)};
      diloco.after_step(step);
      for (int f : {0, 1}) changed[at].push_back(part(f) != before[f]);
      if (step != 5) continue;
      diloco.exchange();
      std::vector<float> const agreed = part(0);
      diloco.exchange();
      std::vector<float> mixed = before[0];
      for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] = 0.25f * mixed[i] + 0.75f * agreed[i];
      off[at] = distance(part(0), mixed);
    }
  });
  // Fragment 1 is sent at step 2 and fragment 0 at step 4, and each is mixed in one step later.
  for (auto const& one : changed)
    CHECK(one == std::vector<bool>{false, false, false, false, false, true, false, false, true, false, false, false});
  for (double const one : off) CHECK(one < 1e-6);
}

TEST_CASE("what is kept at any step resumes to the same bits, averages under way included") {
  for (OuterBits const bits : {OuterBits::float32, OuterBits::int4})
    for (std::int64_t const stop : {1, 4, 5, 6, 8}) {
      INFO("stopped at step " << stop << ", format " << static_cast<int>(bits));
      DilocoOptions const options{.inner_steps = 4, .fragments = 2, .bits = bits, .overlap = 2};
      Vectors const wanted = trained(options, 13);
      Vectors got(ranks);
      on_ranks(options, [&](Diloco& first, graph::State& replica, int rank, Shared<comm::Port> const& port) {
        for (std::int64_t step = 1; step <= stop; ++step) {
          descend(replica, rank);
          first.after_step(step);
        }
        first.exchange();
        Diloco::Kept const kept = first.keep();
        exec::Context context({.threads = 1});
        Diloco second(context, port, replica, options);
        second.begin();
        second.resume(kept.agreed, kept.own);
        for (std::int64_t step = stop + 1; step <= 13; ++step) {
          descend(replica, rank);
          second.after_step(step);
        }
        got[static_cast<std::size_t>(rank)] = parameters_of(replica);
      });
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(distance(got[static_cast<std::size_t>(rank)], wanted[static_cast<std::size_t>(rank)]) == 0);
    }
}

TEST_CASE("ranks weigh as much as their tokens") {
  std::vector<float> moved(ranks);
  on_ranks({}, [&](Diloco&, graph::State& replica, int rank, Shared<comm::Port> const& port) {
    // Rank 0 did all the work of the step, the others none: the average is what rank 0 found.
    exec::Context context({.threads = 1});
    Diloco diloco(context, port, replica,
                  {.inner_steps = 1,
                   .outer = {.learning_rate = 1, .momentum = 0},
                   .weight = rank == 0 ? 3.0 : 1e-12});
    diloco.begin();
    replica["norm"](0) = rank == 0 ? 5.0f : 1000.0f;
    diloco.after_step(1);
    moved[static_cast<std::size_t>(rank)] = replica["norm"](0);
  });
  for (float const value : moved) CHECK(value == Approx(5.0f).epsilon(1e-5));
}

TEST_CASE("options that cannot be are refused in a sentence") {
  exec::Context context({.threads = 1});
  graph::State replica;
  add_parameters(replica);
  threads::run(1, [&](Communicator<Threads>& communicator) {
    auto const refused = [&](DilocoOptions const& options, char const* words) {
      CHECK_THROWS_WITH(Diloco(context, comm::port(communicator), replica, options), Catch::Contains(words));
    };
    refused({.inner_steps = 0}, "inner steps must be at least 1");
    refused({.inner_steps = 2, .fragments = 3}, "3 fragments need at least as many inner steps");
    refused({.inner_steps = 4, .overlap = 4}, "not below the 4 inner steps");
    refused({.mix = 1.5}, "from 0 to 1");
    refused({.weight = 0}, "above 0");
    refused({.inner_steps = 9, .fragments = 7}, "Ask for fewer");
  });
}

TEST_CASE("outer gradients that are not finite end the run on every rank") {
  std::vector<std::string> told(ranks);
  on_ranks({.inner_steps = 1, .bits = OuterBits::int8}, [&](Diloco& diloco, graph::State& replica, int rank, auto&) {
    if (rank == 1) replica["norm"](0) = std::numeric_limits<float>::infinity();
    try {
      diloco.after_step(1);
    } catch (Error const& error) {
      told[static_cast<std::size_t>(rank)] = error.message();
    }
  });
  for (std::string const& text : told) CHECK(!text.empty());
}
