// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose ranks share out AdamW's moments and have parameters of their own.
// Covers: <tutti/parallel/sections.hpp>
// Covers: <tutti/train/train_step_fields.hpp>

#include "support/catch.hpp"
#include "train/compressed.hpp"

#include <tutti/backend/threads.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

using namespace tutti;
using parallel::Replicas;

namespace {

std::vector<test::CompressedRun> runs(char const* compress, int ranks, Replicas replicas, std::int64_t micro_steps) {
  std::vector<test::CompressedRun> all(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    all[static_cast<std::size_t>(communicator.rank())] =
        test::train_compressed(communicator, parallel::compressor_of(compress), replicas, micro_steps);
  });
  for (test::CompressedRun const& run : all) CHECK(run.wrong == "");
  return all;
}

}  // namespace

TEST_CASE("ranks that share out moments have the losses of those that do not, the same bits on all, and resume") {
  for (char const* compress : {"none", "powersgd:4"})
    for (int ranks : {2, 3, 4}) {
      std::int64_t const micro_steps = ranks == 2 ? 3 : 1;
      INFO(ranks << " ranks, compressed: " << compress);
      auto const whole = runs(compress, ranks, Replicas::per_rank, micro_steps),
                 shared = runs(compress, ranks, Replicas::sharded, micro_steps);
      for (test::CompressedRun const& run : shared) {
        CHECK(run.matrix == shared[0].matrix);
        CHECK(run.losses == shared[0].losses);
      }
      for (std::size_t i = 0; i < whole[0].losses.size(); ++i)
        CHECK(shared[0].losses[i] == Approx(whole[0].losses[i]).epsilon(1e-6));
    }
}

TEST_CASE("moments that ranks share out take the memory of a share, and are gathered whole where they are wanted") {
  constexpr int ranks = 3;
  std::map<std::string, std::vector<float>> whole, gathered;
  std::vector<std::string> wrong(ranks);
  std::vector<std::int64_t> bytes(ranks);
  std::int64_t all_bytes = 0;
  for (Replicas replicas : {Replicas::per_rank, Replicas::sharded})
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      auto const rank = static_cast<std::size_t>(communicator.rank());
      exec::Context context({.threads = 1});
      train::TrainStep<nn::Gpt2Loss> step(context, test::compressed_gpt2, optim::AdamW{}, {.batch = 2, .sequence = 8});
      step.initialise(42);
      step.connect(parallel::data_parallel(communicator, replicas));
      for (std::int64_t i = 0; i < 4; ++i) {
        test::Rows const batch(i, communicator.rank() * 2, 2);
        step(batch.at(i), 3e-3);
      }
      bool const sharded = replicas == Replicas::sharded;
      if (sharded) bytes[rank] = step.state_bytes();
      else if (rank == 0) all_bytes = step.state_bytes();
      Shared<comm::Port> const port = comm::port(communicator);
      auto const copy = [&](std::map<std::string, std::vector<float>>& to) {
        for (graph::Field const& field : step.state().fields()) {
          auto const values = field.view<float>().elements();
          to[field.name].assign(values.begin(), values.end());
        }
      };
      if (!sharded) {
        if (rank == 0) copy(whole);
        return;
      }
      std::map<std::string, std::vector<float>> before, after;
      copy(before);
      step.sections().gather(*port, step.state(), rank == 0);
      if (rank == 0) copy(gathered);
      step.sections().clear_others(step.state());
      graph::State all = step.whole_fields();
      for (graph::Field& field : all.fields()) {
        step.collect(field, rank == 0);
        auto const values = field.view<float>().elements();
        std::vector<float> const found(values.begin(), values.end());
        if (rank == 0 && found != gathered.at(field.name)) wrong[rank] = field.name + " is another one by itself";
        if (rank != 0 && !field.parameter && found != std::vector<float>(found.size()))
          wrong[rank] = field.name + " comes where it is not wanted";
      }
      copy(after);
      if (before != after) wrong[rank] = "sections changed";
      int one_by_one = 0;
      step.fill_each([&](graph::State& one) {
        one_by_one += one.fields().size() == 1;
        graph::Field& field = one.fields().front();
        auto const& from = before.at(field.name);
        if (field.parameter) std::copy(from.begin(), from.end(), field.view<float>().data());
        else std::fill_n(field.view<float>().data(), field.shape.size(), 2.0f);
      });
      if (one_by_one != static_cast<int>(before.size())) wrong[rank] = "several at a time";
      for (graph::Field const& field : step.state().fields())
        for (std::size_t i = 0; i < before.at(field.name).size(); ++i) {
          float const is = field.view<float>().data()[i], was = before.at(field.name)[i];
          if (field.parameter ? is != was : is != 0 && is != 2) wrong[rank] = field.name + " was filled otherwise";
        }
      step.fill([](graph::State& state) {  // as a checkpoint is read: of moments a rank keeps its own
        for (graph::Field& field : state.fields())
          if (!field.parameter)
            for (float& value : field.view<float>().elements()) value = 1;
      });
      double ones = 0, size = 0;
      for (graph::Field const& field : step.state().fields()) {
        if (field.parameter) continue;
        for (float const value : field.view<float>().elements()) ones += static_cast<double>(value);
        size += static_cast<double>(field.shape.size());
      }
      parallel::all_reduce(*port, {&ones, 1}, comm::PortOp::sum);
      if (ones != size) wrong[rank] = "moments are not each on one rank";
      try {
        step.connect(parallel::data_parallel(communicator));
        wrong[rank] = "connected again";
      } catch (Error const& error) {
        if (!test::contains(error.message(), "of which others know nothing")) wrong[rank] = error.message();
      }
    });
  for (std::string const& said : wrong) CHECK(said == "");
  std::int64_t moments = 0;
  for (auto const& [name, values] : gathered) {
    INFO(name);
    REQUIRE(values.size() == whole.at(name).size());
    if (name.starts_with("m.") || name.starts_with("v.")) moments += static_cast<std::int64_t>(4 * values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      REQUIRE(values[i] == Approx(whole.at(name)[i]).epsilon(1e-5).margin(1e-7));
  }
  std::int64_t sum = 0;
  for (std::int64_t const one : bytes) sum += one;
  CHECK(sum == ranks * (all_bytes - moments) + moments);
}
