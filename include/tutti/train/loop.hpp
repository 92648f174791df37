// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The life of a training run, the same on every rank: restore or initialise, agree, step, validate, sample,
/// checkpoint, leave. In one class, though long: what ranks do together must be read in its order.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/io/folder_lock.hpp>
#include <tutti/parallel/compression.hpp>
#include <tutti/train/algorithm.hpp>
#include <tutti/train/all_succeed.hpp>
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
               .groups = optim::parse_groups(o().groups),
               .weigh_targets = setup_.train->leaves_out_targets(),
               .pipeline = pipeline_layout(setup_, data_parallel_),
               .tensor = setup_.mesh.tensor,
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
  void prepare() {
    if (o().gradient_statistics > 0) step_.plan_measures();
    step_.compile();
    detail::require_memory(o(), ranks_on_node_, step_.divided(), static_cast<double>(common_bytes()),
                           static_cast<double>(own_bytes() + step_.workspace_bytes()) + setup_.bytes_of_tokens(),
                           machine_.available_memory());
    if (root() && !o().out.empty()) io::make_folder(o().out);
  }

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
    if (!diverged_.empty()) throw Error(ErrorKind::invalid_argument, "train_gpt2", diverged_);
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
  /// This rank's sequences among those of a micro-step.
  data::Share share() const noexcept {
    return data::share_of(setup_.micro_rows, data_parallel_.port->rank(), data_ranks());
  }
  static double now() noexcept { return static_cast<double>(exec::now_ns()) * 1e-9; }

  /// What --out holds of another history makes room.
  void begin_history() {
    if (!setup_.same_run) {
      if (o().overwrite) remove_checkpoints(o().out);
    } else
      for (std::string const& name : set_checkpoints_aside(o().out, setup_.first_step))
        setup_.changes.push_back("a later checkpoint, kept as " + name);
  }

  void restore() {
    if (setup_.resume) {
      if (auto text = take_product_choices(machine_, setup_.resume->folder(), port_->rank()); !text.empty())
        setup_.warnings.push_back(std::move(text));
      step_.fill([&](graph::State& whole) {
        read_parameters(*setup_.resume, whole);
        read_moments(*setup_.resume, whole);
      });
      step_.set_updates(setup_.first_step);
    } else if (initial_) {
      step_.fill([&](graph::State& whole) {
        if (whole.writer()) initial_(whole);
      });
      initial_ = nullptr;  // and the file that it may read
    } else {
      step_.initialise(static_cast<std::uint64_t>(o().seed));
    }
    parallel::broadcast(*data_parallel_.port, step_.state());
    if (averages_gradients()) step_.require_equal("at the start");
    else parallel::require_equal(*port_, step_.state(), "at the start");
    step_.mark_compared();
    std::visit([&](auto& algorithm) { algorithm.begin(setup_.resume ? &*setup_.resume : nullptr); }, algorithm_);
    setup_.resume.reset();  // its mapping may be of a checkpoint that --keep will remove
  }

  /// Sum over ranks: the job's ceiling.
  double agreed_peak() {
    double peak = machine_.measure_peak_flops(step_.options().compute);
    parallel::all_reduce(*port_, {&peak, 1}, comm::PortOp::sum);
    return peak;
  }

  void announce() {
    exec::Context const& host = machine_.host();
    int const busy = host.threads() * ranks_on_node_, may = exec::available_processors();
    auto const describe = [](auto const& algorithm) { return algorithm.describe(); };
    auto const traffic = [&](auto const& algorithm) {
      return algorithm.describe_traffic(step_.parameter_count());
    };
    outputs_.table(start_table(setup_, {.device = machine_.describe(),
                                        .optimizer = step_.optimizer().describe(),
                                        .products = machine_.describe_products(step_.options().compute),
                                        .algorithm = std::visit(describe, algorithm_),
                                        .traffic = std::visit(traffic, algorithm_),
                                        .ranks = ranks(),
                                        .tensor = setup_.mesh.tensor,
                                        .activation_bytes = step_.activation_bytes(),
                                        .ranks_on_node = ranks_on_node_,
                                        .threads = host.threads(),
                                        .parameters = step_.parameter_count(),
                                        .flops_per_token = flops_per_token(),
                                        .peak_flops = peak_flops_,
                                        .state_bytes = common_bytes(),
                                        .own_bytes = own_bytes(),
                                        .work_bytes = step_.workspace_bytes(),
                                        .one_state = step_.divided()}));
    for (std::string const& change : setup_.changes) outputs_.line("on resume: " + change);
    for (std::string const& warning : setup_.warnings) outputs_.line("WARNING: " + warning);
    if (averages_gradients() && data_parallel_.node && !step_.divided() && step_.divisible())
      outputs_.line(
          "WARNING: shared memory is too small for one copy of parameters and moments: every rank keeps its own. "
          "Enlarge /dev/shm, or say --replicas-per-rank");
    if (busy > may)
      outputs_.line(fmt::format(
          "WARNING: {} threads share {} processors: this will be slow. Use fewer ranks or --threads", busy, may));
    outputs_.record({{"type", "start"},
                     {"step", setup_.first_step},
                     {"steps", setup_.steps},
                     {"ranks", ranks()},
                     {"threads", host.threads()},
                     {"backend", o().backend.text()},
                     {"device", o().device.text()},
                     {"algorithm", o().algorithm.text()},
                     {"isa", name(host.isa())},
                     {"processor", exec::processor_name()},
                     {"peak_gflops", peak_flops_ / 1e9},
                     {"parameters", step_.parameter_count()},
                     {"model", setup_.model.json},
                     {"tokens_per_step", setup_.tokens_per_step()},
                     {"rows", setup_.rows},
                     {"micro_steps", setup_.micro_steps},
                     {"sent_bytes", sent_bytes()},
                     {"compress", o().compress.empty() ? "none" : o().compress},
                     {"seed", o().seed},
                     {"prompt", opening_prompt(setup_)}});
    outputs_.registry().set("compiled", {{"seconds", built_seconds_}, {"workspace", step_.workspace_bytes()}});
    if (!averages_gradients()) outputs_.registry().set("inner", {{"steps", o().inner_steps}});
  }

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
    bool const late = Execution<Device>::asynchronous && !waits && stop_ == 0 && step + 1 < setup_.steps;
    if (late && !validates && !samples && !saves) return;
    tell();
    if (!diverged_.empty()) return;
    if (validates && stop_ == 0) validate(), agree(false);
    if (samples && stop_ == 0) sample(), agree(false);
    if (saves && stop_ == 0) checkpoint(), agree(false);
  }

  /// Of the step that comes. Its time is none of the step's.
  void measure_gradients(Batch const& batch) {
    GradientStatistics const found = step_.gradient_statistics(batch);
    RunOutputs::Json row{{"type", "gradients"}, {"step", batch.step + 1}, {"loss", found.loss}, {"norm", found.norm}};
    for (ParameterGradient const& one : found.parameters) {
      row["norm/" + one.name] = one.norm;
      row["zeros/" + one.name] = one.zeros;
    }
    if (!found.not_finite.empty()) row["not_finite"] = found.not_finite;
    outputs_.record(row);
    if (!found.not_finite.empty()) outputs_.line(fmt::format("WARNING: step {}: {}", batch.step + 1, found.not_finite));
    origin_ = found.not_finite.empty() ? "" : ". Of its gradient: " + found.not_finite;
    told_ = now();
  }

  /// Waits for the step under way, and tells of it.
  void tell() {
    auto const [step, rate] = *under_way_;
    under_way_.reset();
    StepResult result = step_.finish();
    // Of a norm that is not finite come parameters that are not: they must not be kept.
    bool const loss_finite = std::isfinite(result.loss), finite = loss_finite && std::isfinite(result.grad_norm);
    bool const diverged = agree(!finite, (now() - told_) * 1e3 - result.exposed_comm_ms);
    if (!diverged) std::visit([&](auto& algorithm) { algorithm.finish_step(step + 1, result); }, algorithm_);
    double const seconds = now() - told_;
    told_ += seconds;
    double const speed = static_cast<double>(setup_.tokens_per_step()) / seconds;
    double const utilisation = speed * flops_per_token() / peak_flops_;
    RunOutputs::Json row{{"type", "step"},
                         {"step", step + 1},
                         {"loss", result.loss},
                         {"grad_norm", result.grad_norm},
                         {"lr", rate},
                         {"ms", seconds * 1e3},
                         {"tokens_per_second", speed},
                         {"mfu", utilisation},
                         {"exposed_comm_ms", result.exposed_comm_ms},
                         {"slowest_ms", slowest_.ms},
                         {"slowest_rank", slowest_.rank}};
    if (data::MixtureLoader const& sets = *setup_.train; sets.sets() > 1)
      for (std::size_t set = 0; set < sets.sets(); ++set) row["epochs"][sets.name(set)] = sets.epochs_at(step + 1, set);
    outputs_.record(row);
    step_seconds_ += seconds;
    waited_ms_ = result.exposed_comm_ms;
    done_ = step + 1;
    if (diverged) {
      float const value = loss_finite ? result.grad_norm : result.loss;
      diverged_ = fmt::format("the {} of step {} is {}: training has diverged. Lower --learning-rate, or resume an "
                              "earlier checkpoint{}",
                              loss_finite ? "gradient's norm" : "loss", done_, std::isnan(value) ? NAN : value,
                              !origin_.empty()                 ? origin_
                              : o().gradient_statistics == 1 ? ""
                                                               : "; with --gradient-statistics 1 it tells which "
                                                                 "operation made what is not finite");
    }
  }

  /// A stop that any rank was asked for is a stop for all, after the same step, and so is a step that went wrong.
  /// Returns whether it did on any.
  /// Rank 0 also says what its watchers asked for, and when all tell how they are. `busy_ms`: what the step took this
  /// rank without what it waited for others; the slowest one is known from then on.
  bool agree(bool wrong, double busy_ms = 0) {
    if (root()) outputs_.poll();
    double const stop = StopSignals::received() == 0 && outputs_.stop() ? SIGINT : StopSignals::received();
    double found[6] = {stop, wrong ? 1.0 : 0.0, outputs_.paused() ? 1.0 : 0.0, outputs_.take_checkpoint() ? 1.0 : 0.0,
                       root() && reports_.due() ? 1.0 : 0.0, SlowestRank{busy_ms, port_->rank()}.packed()};
    parallel::all_reduce(*port_, found, comm::PortOp::max);
    if (busy_ms > 0) slowest_ = SlowestRank::of(found[5]);
    stop_ = static_cast<int>(found[0]);
    paused_ = found[2] != 0;
    keep_now_ = keep_now_ || found[3] != 0;
    if (found[4] != 0) reports_.exchange(*port_, waited_ms_, machine_.describe(), outputs_.registry());
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

  void validate() {
    if (!setup_.validation) return;
    InPhase const phase(outputs_, "validating");
    std::vector<Validation> sets;
    with_agreed_model([&] {
      auto const add = [&](data::ValidationLoader const& held_out) {
        sets.push_back(measure(*data_parallel_.port, step_, held_out,
                               setup_.tokenizer ? &setup_.tokenizer->tokenizer : nullptr,
                               setup_.validation_windows(held_out)));
      };
      add(*setup_.validation);
      for (data::ValidationLoader const& further : setup_.further_validation) add(further);
    });
    Validation const found = joined(sets);
    validation_loss_ = found.loss;
    bool const text_known = found.bits_per_byte > 0;
    outputs_.line(fmt::format("step {}: validation loss {:.4f}{}", done_, found.loss,
                              text_known ? fmt::format(", {:.4f} bits per byte", found.bits_per_byte) : ""));
    outputs_.record({{"type", "validation"},
                     {"step", done_},
                     {"loss", found.loss},
                     {"predictions", found.predictions},
                     {"bits_per_byte", text_known ? RunOutputs::Json(found.bits_per_byte) : RunOutputs::Json()}});
    for (std::size_t i = 0; i < sets.size() && sets.size() > 1; ++i) {
      std::string const& name = (i == 0 ? *setup_.validation : setup_.further_validation[i - 1]).corpus().pattern();
      outputs_.line(fmt::format("step {}:   {}: {:.4f}", done_, name, sets[i].loss));
      outputs_.record({{"type", "validation_set"},
                       {"step", done_},
                       {"set", name},
                       {"loss", sets[i].loss},
                       {"predictions", sets[i].predictions}});
    }
    last_validated_ = done_;
  }

  /// Rank 0 writes, the others go on to the next collective and wait there.
  void sample() {
    last_sampled_ = done_;
    InPhase const phase(outputs_, "sampling");
    if constexpr (writes_text)
      if ((root() || data_ranks() < ranks()) && setup_.tokenizer)
        with_agreed_model([&] {
          step_.show(root(), [&](graph::State& whole) {
            if (root()) write_sample(whole);
          });
        });
  }
  void write_sample(graph::State& whole) {
    std::string const text =
        sample_text(machine_.host(), step_.config(), whole, setup_.tokenizer->tokenizer, o().sample_prompt,
                    o().sample_tokens, static_cast<std::uint64_t>(o().seed) + static_cast<std::uint64_t>(done_));
    outputs_.line(fmt::format("step {}: sample\n{}", done_, text));
    outputs_.record({{"type", "sample"}, {"step", done_}, {"text", text}});
  }

  void checkpoint() {
    last_saved_ = done_;
    InPhase const phase(outputs_, "checkpoint");
    if (!o().out.empty()) with_agreed_model([&] { write_checkpoint(); });
  }
  void write_checkpoint() {
    std::string const when = "at the checkpoint of step " + std::to_string(done_);
    if (averages_gradients()) step_.require_equal(when);
    else parallel::require_equal(*port_, step_.state(), when);
    keep_product_choices(machine_, o().out, port_->rank());
    step_.show(root(), [&](graph::State& whole) { write_checkpoint(whole); });
  }
  void write_checkpoint(graph::State const& whole) {
    CheckpointContents contents = contents_of(whole, done_);
    std::visit([&](auto& algorithm) { algorithm.keep(contents, o().out); }, algorithm_);
    if (!root()) return;
    if (setup_.tokenizer) contents.tokenizer = setup_.tokenizer->text;
    contents.facts = checkpoint_facts(setup_, done_, data_ranks());
    saved_ = save_checkpoint(o().out, contents, o().keep).string();
    outputs_.line("step " + std::to_string(done_) + ": checkpoint " + saved_);
    outputs_.record({{"type", "checkpoint"}, {"step", done_}, {"path", saved_}});
  }

  void finish() {
    double const seconds = now() - started_;
    bool const stopped = stop_ != 0 && done_ < setup_.steps, converging = diverged_.empty();
    if (!stopped && converging) {
      if (setup_.validation && last_validated_ != done_) validate();
      if (o().sample_every > 0 && last_sampled_ != done_) sample();
    }
    std::int64_t const steps = done_ - setup_.first_step;
    bool const unsaved = last_saved_ != done_ && (steps > 0 || !setup_.same_run);
    if (converging && unsaved && (stopped || !o().no_final_checkpoint)) checkpoint();
    parallel::barrier(*port_);  // the files are complete before any rank leaves
    if (!converging) return end("diverged", diverged_);
    if (stopped)
      outputs_.line(fmt::format("stopped by {} after step {}{}", stop_ == SIGINT ? "SIGINT" : "SIGTERM", done_,
                                saved_.empty() && !setup_.same_run ? "" : "; go on with --resume latest"));
    else if (steps == 0)
      outputs_.line(fmt::format("done: the checkpoint is of step {} already. Ask for more --steps", done_));
    else
      outputs_.line(fmt::format("done: {} step{} in {}, {:.1f} ms a step, {:.0f} tok/s", steps, steps == 1 ? "" : "s",
                                human_time(seconds), 1e3 * step_seconds_ / static_cast<double>(steps),
                                static_cast<double>(steps * setup_.tokens_per_step()) / step_seconds_));
    if (o().profile && steps > 0)
      report_profile(outputs_.console(), step_.profiles(), machine_.measure_roofline(step_.options().compute),
                     port_->rank(), o().out);
    end(!stopped ? "done" : stop_ == SIGINT ? "SIGINT" : "SIGTERM");
  }

  /// The last line of metrics.jsonl: how far the run came, and why it ended.
  void end(char const* reason, std::string const& error = {}) {
    bool const stopped = stop_ != 0 && done_ < setup_.steps;
    RunOutputs::Json row{{"type", "end"}, {"step", done_}, {"reason", reason}, {"stopped", stopped}};
    row["seconds"] = now() - started_;
    if (!error.empty()) row["error"] = error;
    if (last_validated_ >= 0) row["validation_loss"] = validation_loss_;
    outputs_.record(row);
  }

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
  double waited_ms_ = 0, built_seconds_ = 0;
  SlowestRank slowest_;  // of the last step
  int stop_ = 0;
  bool paused_ = false, keep_now_ = false;
  std::int64_t done_ = 0, last_validated_ = -1, last_sampled_ = -1, last_saved_ = -1;
  std::string saved_, diverged_, origin_;
};

/// Trains a model and returns the exit code for main: 1 when options, files or the machine do not allow it, which the
/// lowest rank that finds it so says on the error stream, and when training diverges.
/// Ranks     all, with the same arguments but for `place`. Blocking. Errors: those of the training itself.
template <class Loss, class Device = Cpu>
int run_training(parallel::DataParallel const& ranks, NodePlace const& place, Setup setup,
                 typename Loss::Config const& config, std::function<void(graph::State&)> initial = {},
                 std::optional<optim::AnyOptimizer> const& optimizer = {}, Viewers const& viewers = {}) {
  comm::Port& port = *ranks.everyone();
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
