// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A training step as a function: batch and learning rate in, loss out. Model, gradient, reduction, clipping and update
/// are one program for each part of the step, planned once.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/sections.hpp>
#include <tutti/parallel/stage_balance.hpp>
#include <tutti/train/execution.hpp>
#include <tutti/train/gradient_statistics.hpp>
#include <tutti/train/initialisation.hpp>
#include <tutti/train/inputs.hpp>
#include <tutti/train/own_updates.hpp>
#include <tutti/train/pipelined_step.hpp>
#include <tutti/train/step_graph.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/step_programs.hpp>
#include <tutti/train/whole_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::train {

/// `Loss` is a function object over a parameter struct: Loss::Config, make_parameters(Config), and
/// loss(parameters, tokens, targets) -> scalar Var, or loss(parameters, inputs), where Loss::inputs(Config) declares
/// others (train/inputs.hpp). One that takes a LossContext as its last argument knows whether it trains, the seed and
/// the step. It may drop elements (nn::StepRandom), but in `evaluate`. It may make states (`builder.state`) and update
/// them; on several ranks they are what the state's StateUpdate says: checked to be the same on all, averaged (ranks
/// count alike, whatever their weight), or each rank's own. A step's micro-steps update them one after another,
/// `evaluate` never.
/// Ranks        may have batches of different sizes; their weights make the average over ranks that over sequences.
/// Determinism  same layout, same batches: bitwise the same. Another number of ranks or micro-steps changes the order
/// of sums alone.
/// Devices      `Cpu`, with <tutti/train/cuda/execution.hpp> `Cuda`, with <tutti/train/iree/execution.hpp> `Iree`: what
/// it runs in is that device's Context.
template <class Loss, class Device = Cpu>
class TrainStep {
 public:
  using Config = typename Loss::Config;
  using Context = typename Execution<Device>::Context;

  /// Any optimizer (optim/optimizer.hpp); members in braces are AdamW's. Errors: configuration, shape, unavailable.
  /// Memory for parameters and moments is taken here, for activations at the first run.
  template <optim::Optimizer O = optim::AdamW>
  TrainStep(Context& context, Config const& config, O const& optimizer, TrainStepOptions const& options,
            std::source_location where = std::source_location::current())
      : TrainStep(context, config, optim::AnyOptimizer(optimizer), options, where) {}
  TrainStep(Context& context, Config const& config, optim::AnyOptimizer optimizer, TrainStepOptions const& options,
            std::source_location where = std::source_location::current())
      : config_(config),
        optimizer_(std::move(optimizer)),
        options_(options),
        inputs_(inputs_of<Loss>(config, options.sequence)),
        execution_(context, state_),
        programs_(options.micro_steps), measures_(options.micro_steps) {
    if (options_.evaluation_batch == 0) options_.evaluation_batch = options.batch;
    require_sound(options_, where);
    state_.offload_states(options_.offload_optimizer);
    graph::Graph const model = loss_graph<Loss>(config_, options_, false, where);
    graph::Graph const evaluated = loss_graph<Loss>(config_, options_, true, where);
    require_sound_updates(model, where);
    parts_ = parts_of(config_, model, options_, where);
    require_possible(options, Execution<Device>::target == graph::Target::cpu, Execution<Device>::averages,
                     Execution<Device>::pipelines, where);
    if (options.pipeline.stages != 1) {
      auto const part = [&](graph::Graph const& whole) { return part_graph(whole, options, parts_); };
      options_.pipeline = parallel::balanced(options.pipeline, part(evaluated));
      pipeline_.emplace(part(model), part(evaluated), optimizer_, options_, state_, where);
      moments_ = pipeline_->moments();
      return;
    }
    graph::Graph step;
    try {
      state_.add(parts_.empty() ? evaluated : traced(std::nullopt));
      step = traced(options.micro_steps == 1 ? optim::Pass::whole : optim::Pass::last);
    } catch (Error const& error) { throw error.at(where); }  // of the options: the loss was traced above
    state_.add(step);
    for (graph::Update const& update : step.updates)
      if (!graph::is_divisible(step, update)) updated_.emplace_back(step.name(update.target));
      else if (step.op(update.target) == graph::Op::state) moments_.emplace_back(step.name(update.target));
  }
  TrainStep(TrainStep const&) = delete;
  TrainStep& operator=(TrainStep const&) = delete;

  Config const& config() const noexcept { return config_; }
  TrainStepOptions const& options() const noexcept { return options_; }
  optim::AnyOptimizer const& optimizer() const noexcept { return optimizer_; }
  /// Parameters and moments; valid as long as this object. On a device a copy as of this call, which the next step
  /// reads back: ask again after steps.
  graph::State& state() { return execution_.state(), state_; }
  /// Of parameters and moments that are in memory.
  std::int64_t state_bytes() const noexcept {
    return state_.bytes() - std::max(state_.offloaded_bytes(), sections_.others_bytes(state_));
  }
  /// Of moments, where ranks share them out: who looks at whole ones gathers them first.
  parallel::StateSections const& sections() const noexcept { return sections_; }
  std::int64_t parameter_count() const {
    return pipeline_ ? pipeline_->parameter_count(parts_) : parameters_of_whole(state_, parts_);
  }

  /// Ranks: all, once connected. Parameters as the model says (a free `initialise_parameters(config, state, seed)`
  /// found by its arguments, else each by its Init), moments zero; the same whatever ranks share out.
  void initialise(std::uint64_t seed) {
    bool const parts = pipeline_ || !parts_.empty();  // of which nobody has room for all
    if (initialises_one_by_one<Config> && parts) initialise_each(seed);
    else fill([&](graph::State& whole) { initialise_state<Loss>(config_, whole, seed); });
    updates_ = 0;
    if (divided()) parallel::barrier(*parallel_.node);
  }
  /// Updates done so far: decides what the optimizer's scalars are. A resumed run sets it.
  std::int64_t updates() const noexcept { return updates_; }
  void set_updates(std::int64_t updates) noexcept { updates_ = updates; }

  /// f(state) writes the state, whole tensors also where the ranks of a tensor or pipeline axis have parts, of which
  /// each then takes its own.
  /// Errors: invalid_argument, where this is to be a rank of a tensor axis and is not connected.
  template <class F>
  void fill(F&& f, std::source_location where = std::source_location::current());
  /// The same where f does not mind to see one tensor at a time, in a state of its own: where ranks have parts, memory
  /// of one whole tensor is taken, and not that of all of them.
  template <class F>
  void fill_each(F&& f, std::source_location where = std::source_location::current());
  /// f(state) sees whole tensors on the ranks of the first model that want them; others that have parts see an empty
  /// state. Ranks: all. Blocking where there is a tensor or pipeline axis.
  template <class F>
  void show(bool wanted, F&& f, std::source_location where = std::source_location::current());
  /// Whether ranks have parts of tensors, each of which `collect` puts together.
  bool in_parts() const noexcept { return pipeline_ || !parts_.empty() || parallel_.sharded; }
  parallel::RankParts const& parts() const noexcept { return parts_; }
  /// The fields of the whole model, without contents: their memory is taken when they get some.
  graph::State whole_fields() {
    execution_.state();
    return pipeline_ ? parts_.whole_fields(pipeline_->list()) : parts_.whole_fields(state_);
  }
  /// A field of `whole_fields()` gets its contents, as of then, on the rank of the first model that wants them.
  /// `whole.memory.clear` gives the memory back. Ranks: all. Of a pipeline a rank of the first stage may want them.
  /// Blocking.
  void collect(graph::Field& whole, bool wanted, std::source_location where = std::source_location::current());
  /// f(at, data, bytes) for the runs of a field of `whole_fields()` that this rank has and no rank before it: together
  /// ranks have each byte once. `at` in bytes; data as `collect` finds them.
  template <class F>
  void each_run(graph::Field const& whole, F&& f);
  /// f(state) sees what this rank of the data axis alone knows, of the whole model; of stages the first one does. With
  /// `writes` it gives that anew. Ranks: all. Blocking.
  template <class F>
  void own_fields(bool writes, F&& f, std::source_location where = std::source_location::current());
  /// Errors: communication, where ranks differ in what they must have alike. Ranks: all.
  void require_equal(std::string const& when, std::source_location where = std::source_location::current()) {
    require_equal_ranks(state(), pipeline_ ? pipeline_->on_stage(parts_) : parts_, parallel_, when, where);
    if (pipeline_) pipeline_->require_equal(when, where);
  }

  /// From now on gradients are averaged over ranks. Where a node's ranks share memory, parameters and moments move into
  /// one copy for all of them, with the contents of the node's first rank, and each updates its part of it; from then
  /// on that rank alone writes the state from outside.
  /// Ranks     all. Blocking. Pointers into the state are invalid afterwards.
  /// Errors    invalid_argument, where the tensor axis has other than TrainStepOptions::tensor ranks, or the pipeline
  ///           another place for this one than TrainStepOptions::pipeline.
  void connect(parallel::DataParallel data_parallel, std::source_location where = std::source_location::current()) {
    require_ranks(data_parallel, options_, Execution<Device>::averages, where);
    sections_.require_possible(data_parallel, Execution<Device>::target == graph::Target::cpu, where);
    if (pipeline_) pipeline_->connect(data_parallel, where);
    programs_.clear();
    measures_.clear();
    execution_.close();
    execution_.state();
    state_.unshare();
    parallel_ = std::move(data_parallel);
    if (options_.state_ranks > 1) parallel_.node = nullptr;  // there is nothing that they have all of
    compared_ = false;
    if (divisible()) execution_.share(parallel_.node, [this](graph::Field const& field) { return may_share(field); });
    if (parallel_.sharded) plan();
  }
  /// The caller has compared the state on all ranks since `connect`: the first step does not do it again.
  void mark_compared() noexcept { compared_ = true; }
  /// Whether ranks could have fields of the state together: AdamW's, and parameters that are frozen.
  bool divisible() const {
    return state_.offloaded_bytes() == 0 && std::any_of(state_.fields().begin(), state_.fields().end(),
                                                        [this](auto const& field) { return may_share(field); });
  }
  /// Whether a node's ranks have one copy of such fields, and share out their updates.
  bool divided() const noexcept { return state_.shared_bytes() > 0; }
  /// Of the fields that a node's ranks have together.
  std::int64_t shared_bytes() const { return state_.shared_bytes(); }

  /// One update. The batch: values for all inputs, {{"x", x}, {"y", y}}, with micro-steps * batch rows, or tokens and
  /// targets of a loss that reads these. Ranks: all, each with its own share of the batch.
  /// Errors: of the batch, naming the input: invalid_argument, dtype, shape; out_of_range for a token;
  /// invalid_argument where the parameters were never initialised; those of the communicator.
  StepResult operator()(InputBatch const& batch, double learning_rate,
                        std::source_location where = std::source_location::current()) {
    start(batch, learning_rate, where);
    while (pending_.size() > 1) static_cast<void>(finish());
    return finish();
  }
  /// The same in two halves: a device goes from one step to the next without waiting for the host where the next is
  /// started before this one is finished. Two at most are under way. On processors a step ends in `start`.
  void start(InputBatch const& batch, double learning_rate,
             std::source_location where = std::source_location::current()) {
    auto const weights = begin(batch, false, where);
    StepResult result;
    auto const feed = [&](auto& run, std::int64_t micro) { give(run, batch, micro, weights, where); };
    if (pipeline_) result = pipeline_->step(feed, learning_rate, updates_ + 1, where);
    for (std::int64_t micro = 0; micro < options_.micro_steps && !pipeline_; ++micro) {
      Ready& run = programs_[micro];
      give(run, batch, micro, weights, where);
      if (micro + 1 == options_.micro_steps) optim::set_step(run, optimizer_, learning_rate, updates_ + 1);
      Execution<Device>::step(run, where);
      if constexpr (!Execution<Device>::asynchronous) result.add(run.waits());
    }
    ++updates_;
    if constexpr (!Execution<Device>::asynchronous) read(result);
    pending_.push_back(result);
  }
  /// Whether `start` returned before the step was over. Not where the host leads its collectives, or runs a stage.
  bool asynchronous() const;
  /// The result of the oldest step under way. Errors: those of that step; invalid_argument where there is none.
  StepResult finish() {
    if (pending_.empty())
      throw Error(ErrorKind::invalid_argument, "TrainStep", "no step is under way. Start one first");
    StepResult result = pending_[0];
    pending_.erase(pending_.begin());
    if constexpr (Execution<Device>::asynchronous)
      if (!pipeline_) programs_.last().finish(), result.add(programs_.last().waits()), read(result);
    return result;
  }

  /// Mean loss of this rank's evaluation_batch rows alone; nothing is updated, and nothing is communicated but between
  /// ranks of a tensor or pipeline axis, which all evaluate the same, and those with parts of parameters, which all
  /// evaluate something. Errors: those of a step.
  double evaluate(InputBatch const& batch, std::source_location where = std::source_location::current()) {
    prepare();
    inputs_.require(batch, options_.evaluation_batch, "TrainStep::evaluate", where);
    require_begun(where);
    auto const feed = [&](auto& run) {
      inputs_.hand_out(run, batch, 0, options_.evaluation_batch, where);
      nn::StepRandom::set(run, options_.seed, updates_, 0);
    };
    if (pipeline_) return pipeline_->evaluate(feed, where);
    Ready& run = programs_.evaluation();
    feed(run);
    run.run(where);
    return run.value("loss");
  }
  double evaluate(TensorView<std::int32_t const> tokens, TensorView<std::int32_t const> targets,
                  std::source_location where = std::source_location::current()) {
    return evaluate(InputBatch(tokens, targets), where);
  }
  /// What the loss gave by LossContext::output in the last evaluation, valid until the next one.
  /// Errors: invalid_argument, dtype.
  template <class T>
  TensorView<T const> output(std::string_view name, std::source_location where = std::source_location::current()) {
    refuse_stages(options_, "give no outputs beside the loss", where);
    prepare();
    return programs_.evaluation().template output<T>(name, where);
  }

  /// What the gradients of a batch are like that a step would take now, not compressed. Nothing is updated: the step
  /// comes out the same bit for bit. Where something is not finite, the batch is run once more on processors, operation
  /// by operation. Ranks: all, each with its own share of the batch; the same result on all. Errors: those of a step.
  /// Cost  a step; at the first call its programs are planned, and memory is taken anew
  GradientStatistics gradient_statistics(InputBatch const& batch,
                                         std::source_location where = std::source_location::current());
  /// From now on there is memory for gradient_statistics.
  void plan_measures();

  /// Compiles every program, as the first step does otherwise. Errors: unavailable, for a device that is not here.
  void compile() { plan(), execution_.require_runnable(); }
  /// Bytes of activations, gradients, temporaries and packed weights. Plans, and allocates none of them.
  std::int64_t workspace_bytes() {
    if (pipeline_) return pipeline_->workspace_bytes();
    return memory_of(planned()) + (keeps_packed() ? programs_.packed_bytes() : 0);
  }
  /// The part of it that a stage of a pipeline keeps for backward passes to come; 0 without one.
  std::int64_t activation_bytes() { return pipeline_ ? pipeline_->activation_bytes() : 0; }
  /// Of what a step gives to collectives along an axis, or sends there as one of `ring_ranks`: graph::ring_bytes.
  std::int64_t sent_bytes(graph::MeshAxis axis, int ring_ranks = 0) {
    plan();
    return pipeline_ ? pipeline_->sent_bytes(axis, ring_ranks) : programs_.sent_bytes(axis, ring_ranks);
  }
  /// The step table of the program that updates; of a stage those of all its programs.
  std::string table() { return prepare(), pipeline_ ? pipeline_->table() : programs_.table(); }
  /// Times of the programs of a step in order: of a stage, of one, or of the first, the middle ones and the last of its
  /// micro-steps. Needs TrainStepOptions::profile. Valid until the next `connect`.
  std::vector<ProfiledPass> profiles() {
    return prepare(), pipeline_ ? pipeline_->profiles() : programs_.profiles();
  }

 private:
  using Ready = typename Execution<Device>::Ready;
  using Stage = PipelinedStep<std::conditional_t<Execution<Device>::pipelines, Execution<Device>, Execution<Cpu>>>;

  /// Before programs of a step run, or those that measure; gives the weights of its micro-steps.
  List<double> begin(InputBatch const& batch, bool measures, std::source_location where) {
    if (pending_.size() >= (measures ? 1u : 2u))
      throw Error(ErrorKind::invalid_argument, "TrainStep",
                  concat(measures ? "a step is" : "two steps are", " under way. Finish one first"), where);
    if (measures) plan_measures();
    prepare();
    inputs_.require(batch, options_.micro_steps * options_.batch, "TrainStep", where);
    if (divided()) parallel::barrier(*parallel_.node);  // what was written since the last step, from outside
    require_begun(where, true);
    execution_.begin_step();
    return target_weights(batch, options_, parallel_.port, where);
  }
  /// `together`: all ranks are here. Replicas that start apart would stay so, and every loss be the same.
  void require_begun(std::source_location where, bool together = false);
  /// A micro-step's part of a batch, and its factor where there is one.
  template <class Run>
  void give(Run& run, InputBatch const& batch, std::int64_t micro, List<double> const& weights,
            std::source_location where) const {
    inputs_.hand_out(run, batch, micro * options_.batch, options_.batch, where);
    nn::StepRandom::set(run, options_.seed, updates_, options_.first_row + micro * options_.batch);
    if (options_.weigh_targets && run.takes(target_weight_name))  // the last stage of a pipeline alone
      run.set(target_weight_name, weights[static_cast<std::size_t>(micro)]);
  }
  bool may_share(graph::Field const& field) const {
    return !parallel::is_own(field) && std::find(updated_.begin(), updated_.end(), field.name) == updated_.end();
  }
  void read(StepResult& result) const {
    if (pipeline_) return;  // which gave it
    result.loss = static_cast<float>(programs_.last().value("loss"));
    result.grad_norm = static_cast<float>(programs_.last().value("grad_norm"));
  }
  bool keeps_packed() const noexcept { return options_.keep_packed && options_.micro_steps > 1; }
  graph::Graph traced(std::optional<optim::Pass> pass, StepWork work = StepWork::updates) const {
    return step_graph<Loss>(config_, options_, optimizer_, parts_, pass, parallel_.port ? parallel_.port->size() : 1,
                            work);
  }
  void plan() {
    if (pipeline_ ? pipeline_->planned() : programs_.planned()) return;
    if (pipeline_) pipeline_->plan();
    else programs_.plan(true, [&](std::optional<optim::Pass> pass) { return compiled(traced(pass), true); });
    if (!parallel_.sharded) return;
    sections_ = parallel::StateSections(moments_, pipeline_ ? pipeline_->update_list() : programs_.last_list(), state_);
  }
  typename Execution<Device>::Program compiled(graph::Graph const& graph, bool updates) {
    state_.add(graph);
    graph::CompileOptions options;
    options.target = Execution<Device>::target;
    options.bucket_bytes = options_.bucket_bytes;
    if (updates) options.division = parallel::division_of(parallel_, divided());
    return execution_.compile(graph, options);
  }
  std::vector<graph::Program const*> planned() {
    plan();
    return measures_.list(programs_.list());
  }
  void prepare() {
    compile();
    if constexpr (Execution<Device>::pipelines)
      if (pipeline_) return pipeline_->prepare(execution_, std::source_location::current());
    if (execution_.prepared()) return;
    execution_.prepare(planned(), parallel_);
    programs_.prepare(execution_, parallel_, keeps_packed(), options_.profile);
    measures_.prepare(execution_, parallel_, keeps_packed(), false);
  }

  void initialise_each(std::uint64_t seed);
  Config config_;
  optim::AnyOptimizer optimizer_;
  TrainStepOptions options_;
  InputList inputs_;
  graph::State state_;
  parallel::RankParts parts_;         // of the model's tensors that are here
  std::vector<std::string> updated_;  // fields that every rank updates whole: no rank's part of them is another's
  std::vector<std::string> moments_;  // of updates that ranks can share out
  parallel::StateSections sections_;  // of those, where they do, and each has its own
  std::int64_t updates_ = 0;
  bool begun_ = false;     // a step or an evaluation has found initialised parameters
  bool compared_ = false;  // with those of the other ranks, since they were connected
  parallel::DataParallel parallel_;  // before what uses its memory
  Execution<Device> execution_;
  std::optional<Stage> pipeline_;  // where this rank is a stage: in the place of the programs below
  StepPrograms<Device> programs_, measures_;
  std::vector<StepResult> pending_;  // of steps under way, the oldest first
};

}  // namespace tutti::train

// What follows belongs to the class.
#include <tutti/train/train_step_fields.hpp>
#include <tutti/train/train_step_statistics.hpp>
