// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/model_trainer.hpp>
// Covers: <tutti/federate/global_model.hpp>
// Covers: <tutti/train/any_train_step.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/jax_folder.hpp"

#include <tutti/federate/global_model.hpp>
#include <tutti/federate/model_trainer.hpp>
#include <tutti/train/model_choice.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace tutti;
using namespace tutti::federate;

namespace {

/// Data, options and a setup as a shepherd has them for two workers.
struct Run {
  test::ScratchFolder folder;
  train::Setup setup;
  train::ModelChoice choice;
  Program program;
  Facts facts;

  Run() : Run([](Run const&, train::Options&) {}) {}
  template <class Adjust>
  explicit Run(Adjust&& adjust) {
    write_shard("train.bin", 3000, 1);
    write_shard("validation.bin", 400, 2);
    train::Options o;
    o.layers = 2, o.channels = 32, o.heads = 2, o.vocabulary = 61;
    o.batch = 2, o.sequence = 16, o.steps = 40, o.warmup = 3, o.learning_rate = 0.004;
    o.data = folder / "train.bin", o.validation_data = folder / "validation.bin", o.out = folder / "out";
    o.threads = 1;
    o.backend = train::BackendName::threads;
    adjust(std::as_const(*this), o);
    setup = train::make_setup(o, 2, [&](train::Setup& s) { choice = train::choose_model(s); });
    program = {.model = choice.config,
               .options = setup.options,
               .steps = setup.steps,
               .samples_per_step = setup.global_rows,
               .data_hash = train::to_hex(hash_corpus(setup.train->corpus())),
               .tokenizer_hash = "",
               .data_tokens = setup.train->corpus().tokens()};
    facts.run = 1;
    if (auto const* const gpt2 = std::get_if<nn::Gpt2Config>(&choice.config))
      facts.parameters = nn::parameter_count(*gpt2);
    facts.batch = 2, facts.sequence = setup.options.sequence;
    facts.samples = setup.steps * setup.global_rows;
    facts.program = to_text(program);
  }

  nn::Gpt2Config const& model() const { return std::get<nn::Gpt2Config>(choice.config); }
  /// Of so many kinds of tokens.
  void write_shard(char const* name, int count, unsigned seed, unsigned kinds = 61) const {
    std::int32_t header[256] = {20240520, 1, count};
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      unsigned const next = (seed >> 28) < 11 ? tokens[i - 1] * 7u + 3 : seed >> 16;
      tokens[i] = static_cast<std::uint16_t>(next % kinds);
    }
    std::ofstream file(folder / name, std::ios::binary);
    file.write(reinterpret_cast<char const*>(header), sizeof(header));
    file.write(reinterpret_cast<char const*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
  }
  train::Options local(std::string const& data = "") const {
    train::Options o;
    o.data = data.empty() ? folder / "train.bin" : data;
    o.threads = 1;
    return o;
  }
};

}  // namespace

TEST_CASE("jobs of a worker are steps of the trainer: same samples, same rates, moments that stay") {
  Run run;
  ModelTrainer trainer(run.local());
  CHECK(trainer.prepare(run.facts) > 0);
  GlobalModel global(run.setup, run.program, nullptr);
  std::vector<float> parameters(global.parameters().begin(), global.parameters().end());

  // The same by hand. Samples of the second job lie in two ranges.
  exec::Context context({.threads = 1});
  train::Options const& o = run.setup.options;
  train::TrainStep<nn::Gpt2Loss> step(
      context, run.model(),
      {.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay},
      {.batch = 2, .sequence = 16, .clip = o.clip});
  step.initialise(static_cast<std::uint64_t>(o.seed));
  std::vector<std::int64_t> const order{0, 1, 2, 3, 4, 5, 20, 21, 7, 8};
  Tensor<std::int32_t> tokens(Shape{2, 16}), targets(Shape{2, 16});
  std::vector<float> by_hand(parameters.size());
  auto const all = parallel::fragments_of(step.state(), 1).front();
  for (std::size_t k = 0; k < 5; ++k) {
    for (std::int64_t row = 0; row < 2; ++row) {
      std::int64_t const sample = order[2 * k + static_cast<std::size_t>(row)];
      run.setup.train->fill(sample / 4, sample % 4, tokens.slice(0, row, row + 1), targets.slice(0, row, row + 1));
    }
    // Of 160 samples in 40 steps, three steps take the run from sample 0 to 12, two from 12 to 24.
    std::int64_t const at = k < 3 ? static_cast<std::int64_t>(k) : 3 + static_cast<std::int64_t>(k - 3) * 3 / 2;
    step({0, std::as_const(tokens).view(), std::as_const(targets).view()}, run.setup.schedule(at));
  }
  parallel::gather(step.state(), all, by_hand);

  JobControl control;
  Job job;
  job.ranges = {{0, 6}};
  job.end = 12;
  Trained const first = trainer.train(job, parameters, control);
  CHECK(first.samples == 6);
  CHECK(first.seconds > 0);
  CHECK(first.loss > 0);
  job.ranges = {{20, 2}, {7, 2}};
  job.begin = 12, job.end = 24;
  CHECK(trainer.train(job, parameters, control).samples == 4);
  CHECK(parameters == by_hand);
  CHECK(control.steps == 2);
  control.stop = true;
  CHECK(trainer.train(job, parameters, control).samples == 0);
  CHECK(parameters == by_hand);
}

TEST_CASE("with fragments, global model and trainer have one order of parameters, and fragments move one by one") {
  Run run;
  run.program.fragments = 2;
  run.program.outer_learning_rate = 0.5;
  GlobalModel global(run.setup, run.program, nullptr), at_once(run.setup, [&] {
    Program program = run.program;
    program.fragments = 1;
    return program;
  }(), nullptr);
  REQUIRE(global.fragments().size() == 2);
  CHECK(global.fragments()[0] + global.fragments()[1] == run.facts.parameters);
  CHECK(global.validate().loss == at_once.validate().loss);

  ModelTrainer trainer(run.local());
  Facts facts = run.facts;
  facts.program = to_text(run.program);
  REQUIRE_ERROR(trainer.prepare(facts), ErrorKind::format, "differ");
  facts.fragments = global.fragments();
  CHECK(trainer.prepare(facts) > 0);
  Job job;
  job.ranges = {{0, 40}};
  job.end = 160;
  JobControl control;
  std::vector<float> const before(global.parameters().begin(), global.parameters().end());
  std::vector<float> after = before;
  trainer.train(job, after, control);
  auto const cut = static_cast<std::ptrdiff_t>(facts.fragments[0]);
  std::vector<float> gradient(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) gradient[i] = before[i] - after[i];
  double const loss = global.validate().loss;
  // Momentum counts from the second step of a fragment on; the first moves it by 0.5 * (1 + 0.9) of the gradient.
  global.step(1, std::span(gradient).subspan(static_cast<std::size_t>(cut)));
  CHECK(std::equal(before.begin(), before.begin() + cut, global.parameters().begin()));
  for (std::size_t i = static_cast<std::size_t>(cut); i < before.size(); ++i)
    REQUIRE(std::abs(global.parameters()[i] - (before[i] - 0.95f * gradient[i])) < 1e-5f);
  global.step(0, std::span(gradient).first(static_cast<std::size_t>(cut)));
  CHECK(global.validate().loss < loss - 0.05);
}

TEST_CASE("a LLaMA and a StableHLO module are trained as a GPT-2 is, and their checkpoints are the trainer's") {
  bool const module = GENERATE(false, true);
  INFO((module ? "a module" : "a LLaMA"));
  Run run([&](Run const& made, train::Options& o) {
    if (!module) {
      o.architecture = train::Architecture::llama, o.kv_heads = 1, o.hidden = 48;
      return;
    }
    o.layers = 0, o.channels = 0, o.heads = 0, o.vocabulary = 16, o.sequence = 6;
    o.model = test::jax_folder() + "/gpt.mlir";
    made.write_shard("train.bin", 3000, 1, 16);
    made.write_shard("validation.bin", 400, 2, 16);
  });
  GlobalModel global(run.setup, run.program, nullptr);
  run.facts.parameters = static_cast<std::int64_t>(global.parameters().size());
  ModelTrainer trainer(run.local());
  REQUIRE(trainer.prepare(run.facts) > 0);
  std::vector<float> const before(global.parameters().begin(), global.parameters().end());
  std::vector<float> after = before;
  Job job;
  job.ranges = {{0, 80}};
  job.end = run.facts.samples;
  JobControl control;
  CHECK(trainer.train(job, after, control).samples == 80);
  double const loss = global.validate().loss;
  std::vector<float> gradient(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) gradient[i] = before[i] - after[i];
  global.step(0, gradient);
  CHECK(global.validate().loss < loss - 0.05);
  train::Checkpoint const checkpoint{global.save(40)};
  CHECK(train::architecture_of(checkpoint) == (module ? "stablehlo" : "llama"));
  if (!module) return;
  // What is not supported is found when the worker builds its step.
  Facts wrong = run.facts;
  std::string const call = "stablehlo.tanh";
  wrong.program.replace(wrong.program.find(call), call.size(), "stablehlo.sort");
  REQUIRE_ERROR(ModelTrainer(run.local()).prepare(wrong), ErrorKind::unavailable, "the shepherd's module:");
}

TEST_CASE("a trainer refuses data that are not the shepherd's, and programs that do not fit their facts") {
  Run run;
  run.write_shard("other.bin", 3000, 3);
  REQUIRE_ERROR(ModelTrainer(run.local(run.folder / "other.bin")).prepare(run.facts), ErrorKind::configuration,
                "Copy the shepherd's files here");
  REQUIRE_ERROR(ModelTrainer(train::Options{}).prepare(run.facts), ErrorKind::configuration, "--data is needed");
  REQUIRE_ERROR(ModelTrainer(run.local(run.folder / "none*.bin")).prepare(run.facts), ErrorKind::io, "--data");
  Facts wrong = run.facts;
  wrong.parameters += 1;
  REQUIRE_ERROR(ModelTrainer(run.local()).prepare(wrong), ErrorKind::format, "differ");
  wrong = run.facts;
  wrong.program = "{}";
  REQUIRE_ERROR(ModelTrainer(run.local()).prepare(wrong), ErrorKind::format, "lacks a fact");
}

TEST_CASE("the global model moves by Nesterov, and its checkpoint is one of the trainer's") {
  Run run;
  run.program.outer_learning_rate = 0.5;
  run.program.outer_momentum = 0;
  GlobalModel global(run.setup, run.program, nullptr);
  std::vector<float> const before(global.parameters().begin(), global.parameters().end());
  auto const at_first = global.validate();
  CHECK(at_first.loss > 3.5);  // ln 61 is 4.1
  CHECK(at_first.loss < 4.7);
  std::vector<float> gradient(before.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 5) * 0.125f;
  global.step(0, gradient);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    REQUIRE(std::abs(global.parameters()[i] - (before[i] - 0.5f * gradient[i])) < 1e-6f);
  CHECK(global.validate().loss != at_first.loss);

  std::string const path = global.save(12);
  train::Checkpoint const checkpoint{path};
  CHECK(checkpoint.step() == 12);
  CHECK(train::gpt2_config(checkpoint) == run.model());
  auto const model = train::Gpt2Model::load(run.folder / "out");
  double difference = 0;
  std::vector<float> saved(before.size());
  {
    exec::Context context({.threads = 1});
    train::TrainStep<nn::Gpt2Loss> step(context, run.model(), {}, {.batch = 1, .sequence = 16});
    train::read_gpt2(checkpoint, run.model(), nn::gpt2_data(step.state()));
    parallel::gather(step.state(), parallel::fragments_of(step.state(), 1).front(), saved);
  }
  for (std::size_t i = 0; i < saved.size(); ++i)
    difference =
        std::max(difference, std::abs(static_cast<double>(saved[i]) - static_cast<double>(global.parameters()[i])));
  CHECK(difference == 0);
  CHECK(model.weights().config == run.model());
}
