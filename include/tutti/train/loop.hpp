// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The life of a training run, the same on every rank: restore or initialise, agree, step, validate, sample,
/// checkpoint, leave. What it tells is in loop_reports.hpp, what it keeps in loop_checkpoints.hpp.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/io/folder_lock.hpp>
#include <tutti/parallel/compression.hpp>
#include <tutti/train/algorithm.hpp>
#include <tutti/train/all_succeed.hpp>
#include <tutti/train/checkpoint_parts.hpp>
#include <tutti/train/checkpoint_writer.hpp>
#include <tutti/train/machine.hpp>
#include <tutti/train/optimizer_choice.hpp>
#include <tutti/train/product_choices.hpp>
#include <tutti/train/profiling.hpp>
#include <tutti/train/rank_reports.hpp>
#include <tutti/train/run_outputs.hpp>
#include <tutti/train/sample_text.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/signals.hpp>
#include <tutti/train/start_table.hpp>
#include <tutti/train/state_files.hpp>
#include <tutti/train/train_step.hpp>
#include <tutti/train/validation.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace tutti::train {

/// Trains a model as the options say. `Loss` as TrainStep wants it.
/// Ranks     all, with the same setup and configuration.
/// Blocking  until the last step, or until a signal asked to stop; then the run is checkpointed and ends as if done
/// Errors    those of its parts; checkpoints written before stay
template <class Loss, class Device = Cpu>
class Run {
  static_assert(reads_tokens<Loss>,
                "tutti: the trainer gives tokens and targets; a loss that declares other inputs has TrainStep, in a "
                "loop of its own (examples/016_regression.cpp)");

 public:
  using Config = typename Loss::Config;
  /// Fills the parameters of a state that this rank may write.
  using Initialise = std::function<void(graph::State&)>;

  /// The ranks of `place` share this node's processors and devices. Without `initial` a new run begins as TrainStep's
  /// `initialise` says, and without `optimizer` the options choose one. Does not communicate.
  Run(parallel::DataParallel data_parallel, NodePlace const& place, Setup setup, Config const& config,
      Initialise initial = {}, std::optional<optim::AnyOptimizer> const& optimizer = {})
      : data_parallel_(std::move(data_parallel)),
        port_(data_parallel_.everyone()),
        ranks_on_node_(place.ranks),
        setup_(fitting(std::move(setup), place.ranks)),
        initial_(std::move(initial)),
        machine_(setup_.options, place),
        step_(machine_.context(), config, optimizer ? *optimizer : optimizer_of(o()),
              {.batch = share().count,
               .sequence = o().sequence,
               .evaluation_batch = setup_.rows,
               .micro_steps = setup_.micro_steps,
               .weight = averages_gradients() ? weight() : 1,
               .clip = o().clip,
               .compute = o().compute_dtype(),
               .recompute = o().recompute,
               .profile = o().profile,
               .keep_packed = o().keep_packed,
               .bucket_bytes = o().bucket_bytes,
               .offload_optimizer = o().offload_optimizer,
               .groups = optim::parse_groups(o().groups),
               .weigh_targets = setup_.train->leaves_out_targets(),
               .pipeline = pipeline_layout(o(), setup_.mesh.pipeline, stage()),
               .tensor = setup_.mesh.tensor,
               .sequence_parallel = o().sequence_parallel,
               .state_ranks = o().zero_stage() > 1 ? setup_.mesh.data : 1,
               .gather_again = o().zero_stage() == 3,
               .seed = o().seed,
               .first_row = share().begin * setup_.micro_steps,
               .compress = parallel::compressor_of(o().compress)}),
        algorithm_(make_algorithm()) {
    built_seconds_ = static_cast<double>(exec::now_ns() - built_since_) * 1e-9;
  }

  /// Ranks: all. Blocking.
  void connect() {
    std::visit([&](auto& algorithm) { algorithm.connect(data_parallel_); }, algorithm_);
  }
  /// Refuses what memory cannot hold, and a device that is not here. Errors: configuration, io, unavailable. Does not
  /// communicate.
  void prepare();

  /// Takes --out for this run, once every rank has read what it resumes. Errors: io. Does not communicate.
  void open(Viewers const& viewers = {}) {
    if (!writes_text && o().sample_every > 0)
      throw Error(ErrorKind::unavailable, "train", "--sample-every: this model writes no text. Leave it out");
    if (!root()) {
      if (!o().out.empty()) outputs_.open_log(fmt::format("{}/rank_{:04}.log", o().out, port_->rank()));
      return;
    }
    if (!o().out.empty()) {
      lock_ = io::FolderLock(o().out);
      begin_history();
    }
    OutputOptions outputs;  // member by member: nvcc garbles names of members in braces here
    outputs.out = o().out;
    outputs.resumed = setup_.same_run ? setup_.first_step : -1;
    outputs.tensorboard = o().tensorboard;
    outputs.dashboard = o().dashboard;
    outputs.dashboard_port = o().dashboard_port;
    outputs_.open(outputs, viewers);
  }

  /// After `open`. It returns also when training has diverged; `require_converging` says so.
  void operator()() {
    StopSignals const signals(root() && !outputs_.drawn());
    done_ = setup_.first_step;
    started_ = now();
    try {
      restore();
      peak_flops_ = agreed_peak();
      announce();
      agree(false);
      if (stop_ == 0) validate(), agree(false);
      started_ = now();
      outputs_.phase("training");
      while (begun() < setup_.steps && stop_ == 0 && diverged_.empty()) train(begun()), heed();
      finish();
    } catch (std::exception const& error) {
      try {
        end("error", error.what());
      } catch (std::exception const&) {  // a full disk, say: the first failure is the one to tell of
      }
      throw;
    }
  }
  /// The same on every rank. Errors: invalid_argument.
  void require_converging() const {
    if (!diverged_.empty()) throw Error(ErrorKind::invalid_argument, "train_model", diverged_);
  }

 private:
  using Step = TrainStep<Loss, Device>;
  static_assert(TrainingAlgorithm<DataParallelTraining<Step>> && TrainingAlgorithm<DilocoTraining<Step>>);
  using Algorithm = std::variant<DataParallelTraining<Step>, DilocoTraining<Step>>;

  Algorithm make_algorithm() {
    if (averages_gradients()) return Algorithm(std::in_place_index<0>, step_, data_ranks());
    return Algorithm(std::in_place_index<1>, step_, machine_.host(), port_, diloco_options(o(), weight()));
  }
  static constexpr bool writes_text = requires(exec::Context & context, Config const& config, graph::State& state,
                                           data::Tokenizer const& tokenizer) {
    sample_text(context, config, state, tokenizer, std::string(), std::int64_t{}, std::uint64_t{});
  };
  double flops_per_token() const {
    return train::flops_per_token(step_.config(), o().sequence, step_.parameter_count());
  }
  bool averages_gradients() const noexcept { return o().algorithm == AlgorithmName::ddp; }
  /// Of this rank's sequences in a mean over ranks, 1 where shares are even.
  double weight() const noexcept {
    return static_cast<double>(data_ranks() * share().count) / static_cast<double>(setup_.micro_rows);
  }
  /// A rank's, for a step's gradients, where collectives are rings; 0 where parameters are averaged now and then.
  std::int64_t sent_bytes() {
    return averages_gradients() ? step_.sent_bytes(graph::MeshAxis::data, data_ranks()) : 0;
  }
  /// Of the state, with what the algorithm keeps: what a node's ranks have together, or each has where they have none.
  std::int64_t common_bytes() const {
    if (step_.divided()) return step_.shared_bytes();
    return step_.state_bytes() + std::visit([](auto const& algorithm) { return algorithm.bytes(); }, algorithm_);
  }
  /// What each has beside it.
  std::int64_t own_bytes() const { return step_.divided() ? step_.state_bytes() - step_.shared_bytes() : 0; }
  /// Of what is shown and kept, the model is the one that all agree on.
  template <class F>
  void with_agreed_model(F&& f) {
    struct Shown {
      Algorithm& algorithm;
      explicit Shown(Algorithm& of) : algorithm(of) { exchange(); }
      ~Shown() { exchange(); }
      void exchange() const {
        std::visit([](auto& one) { one.exchange(); }, algorithm);
      }
    } const shown(algorithm_);
    f();
  }

  Setup fitting(Setup setup, int ranks_on_node) const {
    require_memory(setup, ranks_on_node,
                   data_parallel_.node && setup.options.algorithm == AlgorithmName::ddp &&
                       setup.options.optimizer != OptimizerName::sgd);
    return setup;
  }
  Options const& o() const noexcept { return setup_.options; }
  bool root() const noexcept { return port_->rank() == 0; }
  int ranks() const noexcept { return port_->size(); }
  /// Those, or the groups of those that have one model together, that share out a batch.
  int data_ranks() const noexcept { return data_parallel_.port->size(); }
  int stage() const noexcept { return data_parallel_.pipeline ? data_parallel_.pipeline->rank() : 0; }
  /// This rank's sequences among those of a micro-step.
  data::Share share() const noexcept {
    return setup_.share(data_parallel_.port->rank());
  }
  static double now() noexcept { return static_cast<double>(exec::now_ns()) * 1e-9; }

  /// What --out holds of another history makes room.
  void begin_history();

  void restore();

  /// Sum over ranks: the job's ceiling.
  double agreed_peak() {
    double peak = machine_.measure_peak_flops(step_.options().compute);
    parallel::all_reduce(*port_, {&peak, 1}, comm::PortOp::sum);
    return peak;
  }

  void announce();

  /// Steps done or under way.
  std::int64_t begun() const noexcept { return done_ + (under_way_ ? 1 : 0); }

  /// Begins a step, and tells of the one before that is still under way. This one stays under way, so that a device
  /// goes from one to the next, unless what is next needs its outcome.
  void train(std::int64_t step) {
    if (!under_way_) told_ = now();
    std::int64_t const rows = share().count * setup_.micro_steps;
    if (tokens_.size() == 0) {
      tokens_ = Tensor<std::int32_t>(Shape{rows, o().sequence});
      targets_ = Tensor<std::int32_t>(Shape{rows, o().sequence});
    }
    setup_.train->fill(step, share().begin * setup_.micro_steps, tokens_.view(), targets_.view());
    double const rate = setup_.schedule(step);
    auto const due = [&](std::int64_t every) { return every > 0 && (step + 1) % every == 0; };
    Batch const batch{step, std::as_const(tokens_).view(), std::as_const(targets_).view()};
    if (due(o().gradient_statistics)) {
      if (under_way_) tell();
      if (!diverged_.empty()) return;
      measure_gradients(batch);
    }
    step_.start(batch, rate);
    if (under_way_) tell();
    if (!diverged_.empty()) return;  // and nobody asks what became of the step after
    under_way_ = UnderWay{step, rate};
    bool const validates = due(o().validate_every), samples = due(o().sample_every), saves = due(o().checkpoint_every);
    bool const waits = std::visit([](auto& algorithm) { return algorithm.waits; }, algorithm_);
    bool const late = step_.asynchronous() && !waits && stop_ == 0 && step + 1 < setup_.steps;
    if (late && !validates && !samples && !saves) return;
    tell();
    if (!diverged_.empty()) return;
    if (validates && stop_ == 0) validate(), agree(false);
    if (samples && stop_ == 0) sample(), agree(false);
    if (saves && stop_ == 0) checkpoint(), agree(false);
  }

  /// Of the step that comes. Its time is none of the step's.
  void measure_gradients(Batch const& batch);

  /// Waits for the step under way, and tells of it.
  void tell();

  /// A stop that any rank was asked for is a stop for all, after the same step, and so is a step that went wrong.
  /// Returns whether it did on any.
  /// Rank 0 also says what its watchers asked for, and when all tell how they are. `busy_ms`: what the step took this
  /// rank without what it waited for others; the slowest one is known from then on.
  bool agree(bool wrong, double busy_ms = 0) {
    if (root()) outputs_.poll();
    double const stop = StopSignals::received() == 0 && outputs_.stop() ? SIGINT : StopSignals::received();
    double found[] = {stop, wrong ? 1.0 : 0.0, outputs_.paused() ? 1.0 : 0.0, outputs_.take_checkpoint() ? 1.0 : 0.0,
                      root() && reports_.due() ? 1.0 : 0.0, SlowestRank{busy_ms, port_->rank()}.packed(),
                      part_.writing() ? 1.0 : 0.0};
    parallel::all_reduce(*port_, found, comm::PortOp::max);
    if (parts_ && found[6] == 0) finish_parts();
    if (busy_ms > 0) busy_ms_ = busy_ms, slowest_ = SlowestRank::of(found[5]);
    stop_ = static_cast<int>(found[0]);
    paused_ = found[2] != 0;
    keep_now_ = keep_now_ || found[3] != 0;
    if (found[4] != 0)
      reports_.exchange(*port_, done_ + 1, busy_ms_, waited_ms_, machine_.describe(), outputs_.registry());
    return found[1] != 0;
  }

  /// Between two steps, what watchers asked for: a checkpoint, a pause.
  void heed() {
    if (!paused_ && !keep_now_) return;
    if (under_way_) tell();
    while (stop_ == 0 && diverged_.empty() && (paused_ || keep_now_)) {
      if (std::exchange(keep_now_, false)) {
        if (o().out.empty()) outputs_.line("no checkpoint: there is no --out to keep it in");
        else if (last_saved_ != done_) checkpoint();
      }
      outputs_.phase(paused_ ? "paused" : "training");
      if (paused_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      agree(false);
    }
    outputs_.phase("training");
  }

  void validate();

  /// Rank 0 writes, the others go on to the next collective and wait there.
  void sample();
  void write_sample(graph::State& whole);

  void checkpoint();
  void write_checkpoint();
  void write_checkpoint(CheckpointContents contents);
  /// Waits for the checkpoint that is being written beside training, and tells of it. Errors: io. Ranks: all, where
  /// they have parts.
  void finish_checkpoint();
  void tell_of_checkpoint(CheckpointWriter::Written const& written);
  /// Each rank begins to write what it has. False, on all of them: they do not share the folder. Ranks: all.
  bool begin_parts(CheckpointContents& contents, graph::State const& whole);
  /// Waits until all have written; then the first begins to complete the checkpoint. Ranks: all. Errors: io.
  void finish_parts();
  /// What the first rank adds.
  void add_facts(CheckpointContents& contents);

  void finish();

  /// The last line of metrics.jsonl: how far the run came, and why it ended.
  void end(char const* reason, std::string const& error = {});

  std::int64_t built_since_ = exec::now_ns();  // first: the members after it are what takes time
  parallel::DataParallel data_parallel_;
  Shared<comm::Port> port_;
  int ranks_on_node_;
  Setup setup_;
  Initialise initial_;
  Machine<Device> machine_;
  Step step_;
  Algorithm algorithm_;
  io::FolderLock lock_;
  RunOutputs outputs_;
  RankReports reports_;
  Tensor<std::int32_t> tokens_, targets_;
  struct UnderWay {
    std::int64_t step;
    double rate;
  };
  std::optional<UnderWay> under_way_;
  double peak_flops_ = 0, validation_loss_ = 0, step_seconds_ = 0, started_ = 0;
  double told_ = 0;  // when the step before was told of, or the first one began
  double waited_ms_ = 0, busy_ms_ = 0, built_seconds_ = 0;
  SlowestRank slowest_;  // of the last step
  int stop_ = 0;
  bool paused_ = false, keep_now_ = false, told_of_folders_ = false;
  std::int64_t done_ = 0, last_validated_ = -1, last_sampled_ = -1, last_saved_ = -1;
  std::string saved_, diverged_, origin_;
  CheckpointPart part_;  // of the checkpoint that ranks are writing together
  std::optional<CheckpointInParts> parts_;
  CheckpointWriter writer_;  // of the rank that writes, or completes
};

/// Trains a model and returns the exit code for main: 1 when options, files or the machine do not allow it, which the
/// lowest rank that finds it so says on the error stream, and when training diverges.
/// Ranks     all, with the same arguments but for `place`. Blocking. Errors: those of the training itself.
template <class Loss, class Device = Cpu>
int run_training(parallel::DataParallel const& ranks, NodePlace const& place, Setup setup,
                 typename Loss::Config const& config, std::function<void(graph::State&)> initial = {},
                 std::optional<optim::AnyOptimizer> const& optimizer = {}, Viewers const& viewers = {}) {
  comm::Port& port = *ranks.everyone();
  if (setup.shares.empty() && ranks.port->size() > 1 && RankShares(setup.options.rank_shares).measured()) {
    std::optional<Machine<Device>> machine;
    if (!all_succeed(port, [&] { machine.emplace(setup.options, place); })) return 1;
    setup.take_shares(measured_shares(*machine, setup.options.compute_dtype(), port, *ranks.port));
  }
  std::optional<Run<Loss, Device>> run;
  if (!all_succeed(port, [&] { run.emplace(ranks, place, std::move(setup), config, std::move(initial), optimizer); }))
    return 1;
  run->connect();
  if (!all_succeed(port, [&] { run->prepare(); })) return 1;
  if (!all_succeed(port, [&] { run->open(viewers); })) return 1;
  (*run)();
  return all_succeed(port, [&] { run->require_converging(); }) ? 0 : 1;
}

}  // namespace tutti::train

// What follows belongs to the class.
#include <tutti/train/loop_checkpoints.hpp>
#include <tutti/train/loop_reports.hpp>
