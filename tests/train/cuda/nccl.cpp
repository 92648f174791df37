// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose gradients NCCL averages in device memory.
// Covers: <tutti/train/cuda/execution.hpp> <tutti/comm/enqueued.hpp>

#include "backend/nccl/harness.hpp"
#include "train/small_batches.hpp"

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/train_step.hpp>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

nn::Gpt2Config const& config = test::small_gpt2;

struct Outcome {
  std::vector<float> losses;
  std::vector<double> exposed_ms, tensor_ms;
  double validation = 0, parameters = 0;
  std::uint64_t hash = 0;
};

struct Wish {
  nn::Gpt2Config model = config;
  DType compute = DType::float32;
  parallel::PipelineSchedule schedule = parallel::PipelineSchedule::one_forward_one_backward;
  int virtual_stages = 1, zero = 0;
};

/// A rank's training on its share of 4 sequences.
class Run {
 public:
  Run(int device, parallel::DataParallel const& ranks, std::int64_t micro_steps = 1, Wish const& wish = {})
      : tensor_(ranks.tensor),
        pipeline_(ranks.pipeline),
        rank_(ranks.port->rank()),
        share_(4 / ranks.port->size()),
        context_(device),
        blas_(context_, {.workspace = std::size_t{1} << 16}),
        step_(blas_, wish.model, {}, options(share_, micro_steps, ranks, wish)) {
    step_.connect(ranks);
    step_.initialise(42);
  }
  void start(std::int64_t i) {
    test::Rows const rows(i, rank_ * share_, share_);
    step_.start(rows.at(i), 1e-2);
  }
  void finish() {
    StepResult const result = step_.finish();
    outcome_.losses.push_back(result.loss);
    outcome_.exposed_ms.push_back(result.exposed_comm_ms);
    outcome_.tensor_ms.push_back(result.exposed_axis_ms[1]);
  }
  std::string table() { return step_.table(); }
  /// Of the magnitudes of the whole model's parameters, on the first rank. Ranks: all.
  double sum_of_parameters() {
    double sum = 0;
    bool const first = rank_ == 0 && (!tensor_ || tensor_->rank() == 0) && (!pipeline_ || pipeline_->rank() == 0);
    graph::State whole = step_.whole_fields();
    for (graph::Field& field : whole.fields()) {
      if (!field.parameter) continue;
      step_.collect(field, first);
      for (std::int64_t i = 0; i < field.shape.size() && first; ++i)
        sum += std::abs(static_cast<double>(field.view<float>().data()[i]));
    }
    return sum;
  }
  Outcome outcome() {
    outcome_.parameters = sum_of_parameters();  // before somebody asks for the state
    test::Rows const held_out(100, 0, 4);
    outcome_.validation = step_.evaluate(held_out.at(100));
    outcome_.hash = parallel::hash(step_.state());
    return outcome_;
  }

 private:
  static TrainStepOptions options(std::int64_t share, std::int64_t micro_steps, parallel::DataParallel const& ranks,
                                  Wish const& wish) {
    TrainStepOptions options;
    options.evaluation_batch = 4;
    options.compute = wish.compute;
    if (ranks.pipeline)
      options.pipeline = {ranks.pipeline->size(), ranks.pipeline->rank(), wish.schedule, wish.virtual_stages};
    if (wish.zero > 1) options.state_ranks = ranks.port->size();
    options.gather_again = wish.zero != 2;
    options.batch = share / micro_steps;
    options.sequence = 8;
    options.micro_steps = micro_steps;
    options.clip = 0.5;
    options.tensor = ranks.tensor ? ranks.tensor->size() : 1;
    return options;
  }

  Shared<comm::Port> tensor_, pipeline_;
  std::int64_t rank_, share_;
  kernel::cuda::Context context_;
  kernel::cuda::Blas blas_;
  TrainStep<nn::Gpt2Loss, Cuda> step_;
  Outcome outcome_;
};
/// 4 steps.
Outcome trained(int device, parallel::DataParallel const& ranks, std::int64_t micro_steps = 1, Wish const& wish = {}) {
  Run run(device, ranks, micro_steps, wish);
  for (std::int64_t i = 0; i < 4; ++i) {
    run.start(i);
    run.finish();
  }
  return run.outcome();
}

void wait_for(std::atomic<bool> const& flag) {
  while (!flag) std::this_thread::yield();
}

}  // namespace

TEST_CASE("gradients averaged by NCCL give what the host's average gives, the same on all ranks") {
  for (int const ranks : {1, 2, 4}) {
    if (ranks > test::most_ranks()) break;
    INFO(ranks << " ranks");
    std::vector<Outcome> by_nccl(static_cast<std::size_t>(ranks)), by_host = by_nccl;
    test::run_on_devices(ranks, [&](auto& comm) {
      auto const at = static_cast<std::size_t>(comm.rank());
      parallel::DataParallel both = parallel::data_parallel(comm);
      CHECK(static_cast<bool>(both.device) == (ranks > 1));
      int const device = comm.backend().accelerator().index();
      by_nccl[at] = trained(device, both);
      both.device = nullptr;
      by_host[at] = trained(device, both);
    });
    test::check_clean();
    for (int rank = 0; rank < ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      CHECK(by_nccl[at].hash == by_nccl[0].hash);
      CHECK(by_nccl[at].losses == by_nccl[0].losses);
      for (std::size_t i = 0; i < 4; ++i) CHECK(by_nccl[at].losses[i] == Approx(by_host[at].losses[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("devices with a part of a model each train as one does, by NCCL and through the host") {
  std::vector<float> whole;
  test::run_on_devices(1, [&](auto& comm) {
    whole = trained(comm.backend().accelerator().index(), parallel::data_parallel(comm)).losses;
  });
  for (int const data : {1, 2}) {
    int const ranks = 2 * data;
    if (ranks > test::most_ranks()) break;
    INFO("data " << data << " x tensor 2");
    std::vector<Outcome> by_nccl(static_cast<std::size_t>(ranks)), by_host = by_nccl, again = by_nccl;
    test::run_on_devices(ranks, [&](auto& comm) {
      auto const at = static_cast<std::size_t>(comm.rank());
      parallel::DataParallel mesh = parallel::mesh(comm, {.data = data, .tensor = 2}, parallel::Replicas::per_rank);
      CHECK(static_cast<bool>(mesh.tensor_device));
      CHECK(static_cast<bool>(mesh.device) == (data > 1));
      int const device = comm.backend().accelerator().index();
      by_nccl[at] = trained(device, mesh, 2 / data);
      again[at] = trained(device, mesh, 2 / data);
      mesh.device = mesh.tensor_device = nullptr;
      by_host[at] = trained(device, mesh, 2 / data);
    });
    test::check_clean();
    for (std::size_t at = 0; at < by_nccl.size(); ++at) {
      CHECK(by_nccl[at].losses == by_nccl[0].losses);
      CHECK(by_nccl[at].losses == again[at].losses);
      CHECK(by_nccl[at].hash == again[at].hash);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(by_nccl[at].losses[i] == Approx(whole[i]).epsilon(1e-5));
        CHECK(by_host[at].losses[i] == Approx(whole[i]).epsilon(1e-5));
        CHECK(by_nccl[at].tensor_ms[i] > 0);
        CHECK(by_host[at].tensor_ms[i] > 0);
      }
    }
  }
}

TEST_CASE("devices that are stages of a pipeline train as one does, whatever the schedule and the axes beside it") {
  using parallel::PipelineSchedule;
  nn::Gpt2Config four = config;
  four.layers = 4;
  nn::Gpt2Config dropped = config;
  dropped.dropout = 0.2;
  struct Case {
    char const* what;
    parallel::MeshSizes sizes;
    std::int64_t micro_steps;
    Wish wish;
  };
  Case const cases[]{{"one after the other", {.pipeline = 2}, 2, {}},
                     {"two parts each",
                      {.pipeline = 2},
                      4,
                      {.model = four, .schedule = PipelineSchedule::interleaved, .virtual_stages = 2}},
                     {"backward passes in halves", {.pipeline = 2}, 4, {.schedule = PipelineSchedule::zero_bubble}},
                     {"in bfloat16, with dropout", {.pipeline = 2}, 2, {.model = dropped, .compute = DType::bfloat16}},
                     {"data 2", {.data = 2, .pipeline = 2}, 2, {}},
                     {"data 2 with parts of the state", {.data = 2, .pipeline = 2}, 2, {.zero = 2}},
                     {"tensor 2", {.tensor = 2, .pipeline = 2}, 2, {}}};
  for (Case const& one : cases) {
    int const ranks = one.sizes.data * one.sizes.tensor * one.sizes.pipeline;
    if (ranks > test::most_ranks()) break;
    INFO(one.what);
    Outcome whole;
    test::run_on_devices(1, [&](auto& comm) {
      Wish alone = one.wish;
      alone.zero = 0;
      whole = trained(comm.backend().accelerator().index(), parallel::data_parallel(comm),
                      one.micro_steps * one.sizes.data, alone);
    });
    std::vector<Outcome> by_nccl(static_cast<std::size_t>(ranks)), again = by_nccl, by_host = by_nccl;
    test::run_on_devices(ranks, [&](auto& comm) {
      auto const at = static_cast<std::size_t>(comm.rank());
      parallel::DataParallel mesh = parallel::mesh(comm, one.sizes, parallel::Replicas::per_rank);
      CHECK(static_cast<bool>(mesh.device) == (one.sizes.data > 1));
      int const device = comm.backend().accelerator().index();
      by_nccl[at] = trained(device, mesh, one.micro_steps, one.wish);
      again[at] = trained(device, mesh, one.micro_steps, one.wish);
      if (ranks == 2) return;  // where nothing is NCCL's
      mesh.device = mesh.tensor_device = nullptr;
      by_host[at] = trained(device, mesh, one.micro_steps, one.wish);
    });
    test::check_clean();
    double const bound = one.wish.compute == DType::float32 ? 1e-5 : 2e-3;
    for (std::size_t at = 0; at < by_nccl.size(); ++at) {
      CHECK(by_nccl[at].losses == by_nccl[0].losses);
      CHECK(by_nccl[at].losses == again[at].losses);
      CHECK(by_nccl[at].hash == again[at].hash);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(by_nccl[at].losses[i] == Approx(whole.losses[i]).epsilon(bound));
        if (ranks > 2) CHECK(by_host[at].losses[i] == Approx(whole.losses[i]).epsilon(bound));
        CHECK(by_nccl[at].exposed_ms[i] > 0);
      }
      CHECK(by_nccl[at].validation == Approx(whole.validation).epsilon(bound));
    }
    CHECK(by_nccl[0].parameters == Approx(whole.parameters).epsilon(bound));
    if (ranks > 2) CHECK(by_host[0].parameters == Approx(whole.parameters).epsilon(bound));
  }
}

TEST_CASE(
    "devices with parts of parameters gather those of the next layer meanwhile, captured, led by the host, through "
    "it") {
  std::vector<float> whole;
  test::run_on_devices(1, [&](auto& comm) {
    whole = trained(comm.backend().accelerator().index(), parallel::data_parallel(comm)).losses;
  });
  for (int const zero : {2, 3}) {
    INFO("stage " << zero);
    Wish const wish{.zero = zero};
    Outcome outcomes[3][2];  // captured, led by the host, through it; by rank
    std::string table;
    for (int const way : {0, 1, 2})
      test::run_on_devices(2,
                           [&](auto& comm) {
                             parallel::DataParallel ranks = parallel::data_parallel(comm, parallel::Replicas::per_rank);
                             if (way == 2) ranks.device = nullptr;
                             int const device = comm.backend().accelerator().index();
                             outcomes[way][comm.rank()] = trained(device, ranks, 1, wish);
                             if (way == 0 && comm.rank() == 0) table = Run(device, ranks, 1, wish).table();
                           },
                           {.captures = way == 0});
    test::check_clean();
    for (char const* const wait : {"all_gather_wait", "reduce_scatter_wait"}) CHECK(test::contains(table, wait));
    for (auto const& by_rank : outcomes)
      for (int const rank : {0, 1}) {
        CHECK(by_rank[rank].losses == by_rank[0].losses);
        CHECK(by_rank[rank].losses == outcomes[0][0].losses);
        CHECK(by_rank[rank].hash == outcomes[0][rank].hash);
        for (std::size_t i = 0; i < 4; ++i) CHECK(by_rank[rank].losses[i] == Approx(whole[i]).epsilon(1e-5));
      }
  }
}

TEST_CASE("a step with NCCL is one capture that the device goes through, with the bits of one that the host leads") {
  for (int const micro_steps : {1, 2}) {
    Outcome outcomes[2][2];  // led by the host, captured; by rank
    for (bool const captures : {false, true})
      test::run_on_devices(2,
                           [&](auto& comm) {
                             outcomes[captures ? 1 : 0][comm.rank()] = trained(
                                 comm.backend().accelerator().index(), parallel::data_parallel(comm), micro_steps);
                           },
                           {.captures = captures});
    test::check_clean();
    for (auto const& by_rank : outcomes)
      for (Outcome const& one : by_rank) {
        CHECK(one.hash == outcomes[0][0].hash);
        CHECK(one.losses == outcomes[0][0].losses);
        for (double const ms : one.exposed_ms) CHECK(ms > 0);
      }
  }
}

TEST_CASE("with NCCL two steps are under way before another rank has begun them, and losses are read one step late") {
  std::atomic<bool> ahead = false;
  Outcome outcomes[2], in_turn[2];
  test::run_on_devices(
      2,
      [&](auto& comm) {
        int const device = comm.backend().accelerator().index();
        parallel::DataParallel const ranks = parallel::data_parallel(comm);
        in_turn[comm.rank()] = trained(device, ranks);
        comm.set_deadline_seconds(20);
        Run run(device, ranks);
        run.start(0);  // the host leads the first step, and everything is captured before the second one
        run.finish();
        if (comm.rank() == 1) wait_for(ahead);
        run.start(1);
        run.start(2);
        ahead = true;
        run.finish();
        run.start(3);
        run.finish();
        run.finish();
        outcomes[comm.rank()] = run.outcome();
      });
  test::check_clean();
  for (int const rank : {0, 1}) {
    CHECK(outcomes[rank].losses == in_turn[rank].losses);
    CHECK(outcomes[rank].hash == in_turn[0].hash);
  }
}

TEST_CASE("collectives of the program come before and behind captured steps on all ranks") {
  test::run_on_devices(2, [&](auto& comm) {
    Cuda const device = comm.backend().accelerator();
    Run run(device.index(), parallel::data_parallel(comm));
    for (int i = 0; i < 4; ++i) {
      auto x = comm.all_reduce_async(to_device(full<float>(Shape{1000}, 1.0f), device), sum);
      run.start(i);
      auto y = comm.all_reduce_async(to_device(full<float>(Shape{500}, 2.0f), device), sum);
      CHECK(to_host(y.wait())(499) == 4.0f);
      run.finish();
      CHECK(to_host(x.wait())(999) == 2.0f);
    }
  });
  test::check_clean();
}

TEST_CASE("a rank that does not come to a captured step, or calls something else, is named") {
  for (bool const calls_barrier : {false, true}) {
    std::string told;
    std::atomic<bool> over = false;
    test::run_on_devices(2, [&](auto& comm) {
      try {
        Run run(comm.backend().accelerator().index(), parallel::data_parallel(comm));
        for (int i = 0; i < 2; ++i) {
          run.start(i);
          run.finish();
        }
        if (comm.rank() == 0) {
          run.start(2);  // the device waits, the host does not
          run.start(3);
          comm.set_deadline_seconds(calls_barrier ? 60 : 0.5);
          run.finish();
        } else if (calls_barrier) {
          comm.barrier();
        } else {
          wait_for(over);
        }
      } catch (Error const& error) {
        if (comm.rank() == 0) told = error.what();
      }
      if (comm.rank() == 0) over = true;
    });
    test::check_clean();
    INFO(told);
    CHECK(test::contains(told, calls_barrier ? "rank 1 calls barrier" : "missing: 1"));
  }
}

TEST_CASE("a rank that throws beside captured steps ends the others' wait") {
  std::string told;
  try {
    test::run_on_devices(2, [&](auto& comm) {
      Run run(comm.backend().accelerator().index(), parallel::data_parallel(comm));
      for (int i = 0; i < 2; ++i) {
        run.start(i);
        run.finish();
      }
      if (comm.rank() == 1) throw Error(ErrorKind::invalid_argument, "test", "out of luck");
      run.start(2);
      run.finish();
    });
  } catch (Error const& error) {
    told = error.what();
  }
  test::check_clean();
  INFO(told);
  CHECK(test::contains(told, "out of luck"));
}
