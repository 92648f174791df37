// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How several ranks train one model: what a run does at its beginning, after every step and around what it shows.

#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/diloco.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/pipeline_choice.hpp>
#include <tutti/train/replica_files.hpp>
#include <tutti/train/state_files.hpp>
#include <tutti/train/train_step.hpp>

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// Over a TrainStep. All calls on all ranks, at the same steps.
template <class A>
concept TrainingAlgorithm = requires(A& a, A const& constant, parallel::DataParallel const& ranks, StepResult& result,
                                     Checkpoint const* resumed, std::int64_t step, Options const& options,
                                     CheckpointContents& contents, double seconds) {
  { A::one_model } -> std::convertible_to<bool>;  ///< the state is the same on all ranks after every step
  { A::waits } -> std::convertible_to<bool>;      ///< a step must be done before the next one begins
  a.connect(ranks);                               ///< from now on ranks train together
  a.begin(resumed);                               ///< parameters are restored and the same on all ranks
  a.finish_step(step, result);                    ///< so many steps are done; makes losses and times those of the job
  a.exchange();                                   ///< shows the model that all agree on; a second call hides it again
  a.keep(contents, options.out);                  ///< adds to a checkpoint what is beyond the state, while it is shown
  { constant.bytes() } -> std::same_as<std::int64_t>;  ///< of memory beyond the step's
  { constant.describe() } -> std::same_as<std::string>;
  { constant.describe_traffic(step) } -> std::same_as<std::string>;  ///< of so many parameters
};

inline parallel::DilocoOptions diloco_options(Options const& o, double weight) {
  double const usual = o.fragments > 1 ? 0.4 : parallel::OuterOptions{}.learning_rate;  // arXiv 2501.18512, 2311.08105
  return {.inner_steps = o.inner_steps,
          .outer = {o.outer_learning_rate > 0 ? o.outer_learning_rate : usual, o.outer_momentum},
          .fragments = static_cast<int>(o.fragments),
          .bits = o.outer_bits,
          .overlap = o.outer_overlap,
          .mix = o.outer_mix,
          .weight = weight};
}

/// Gradients are averaged within every step. A checkpoint holds the per-rank states of a model's own for every rank;
/// on another number of ranks, rank r goes on with those of rank r modulo the number that was saved, and with the mean
/// of what compressors had not sent.
template <class Step>
class DataParallelTraining {
 public:
  static constexpr bool one_model = true, waits = false;

  DataParallelTraining(Step& step, int ranks) : step_(step), ranks_(ranks) {}

  void connect(parallel::DataParallel const& ranks) {
    port_ = ranks.port;
    tensor_ = ranks.tensor;
    pipeline_ = ranks.pipeline;
    if (ranks_ > 1 || tensor_ || pipeline_) step_.connect(ranks);
  }
  void begin(Checkpoint const* resumed) {
    if (resumed == nullptr || resumed->replicas() == 0 || own(step_.state()).empty()) return;
    int const rank = port_ ? port_->rank() : 0;
    graph::State saved;
    copy_into(saved, resumed->replica(rank % resumed->replicas()), "");
    if (resumed->replicas() != ranks_) share_unsent(saved, *resumed);
    step_.own_fields(true, [&](graph::State& state) { take_back(state, saved); });
  }
  void finish_step(std::int64_t, StepResult&) {}
  void exchange() {}
  void keep(CheckpointContents& contents, std::string const& out) {
    if (ranks_ == 1) return;
    double any = own(step_.state()).empty() ? 0 : 1;
    if (pipeline_) any = parallel::largest(*pipeline_, any);  // what one stage has, all of them gather
    if (any == 0) return;
    step_.own_fields(false, [&](graph::State& state) {
      std::vector<io::NamedTensor> const mine = own(state);
      if (tensor_ && tensor_->rank() > 0) return;  // ranks that have one model together have the same of these
      if (!pipeline_ || pipeline_->rank() == 0) save_replicas(*port_, out, mine, contents);
    });
  }
  std::int64_t bytes() const noexcept { return 0; }
  std::string describe() const {
    optim::AnyCompressor const& compress = step_.options().compress;
    parallel::PipelineLayout const& pipeline = step_.options().pipeline;
    if (pipeline.stages > 1)
      return describe_pipeline(pipeline, step_.options().micro_steps, ranks_) +
             (compress && ranks_ > 1 ? ", sent " + compress.describe() : "") + undivided();
    std::string const averaged = "gradients averaged every step";
    if (step_.options().state_ranks > 1)
      return averaged + ", of which each rank has a part, as of parameters and moments" +
             (step_.options().gather_again ? "" : " between steps") + undivided();
    return compress ? averaged + ", sent " + compress.describe() : averaged;
  }
  std::string describe_traffic(std::int64_t parameters) const {
    std::string text;
    auto const bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(n)); };
    bool const grouped = tensor_ || pipeline_, in_parts = step_.options().state_ranks > 1;
    if (ranks_ > 1)
      text = fmt::format("{} of gradients averaged{} over {} {}",
                         bytes(grouped || step_.options().compress || in_parts
                                   ? step_.sent_bytes(graph::MeshAxis::data)
                                   : 4 * parameters),
                         in_parts ? ", and parameters gathered," : "", ranks_, grouped ? "groups" : "ranks");
    if (pipeline_)
      text += fmt::format("{}{} of activations, and as many of their gradients, between two stages",
                          text.empty() ? "" : ", ", bytes(step_.sent_bytes(graph::MeshAxis::pipeline)));
    if (tensor_)
      text += fmt::format("{}{} of activations added up over the {} ranks of a group", text.empty() ? "" : ", ",
                          bytes(step_.sent_bytes(graph::MeshAxis::tensor)), tensor_->size());
    return text.empty() ? "none" : text + " each step";
  }

 private:
  static std::vector<io::NamedTensor> own(graph::State const& state) {
    std::vector<io::NamedTensor> fields;
    for (graph::Field const& field : state.fields())
      if (field.per_rank && !optim::is_accumulator(field.name)) fields.push_back(named_tensor(field));
    return fields;
  }

  /// Of parameters of which ranks are to have parts, how many they have whole.
  std::string undivided() const {
    int const ranks = step_.options().state_ranks;
    if (ranks < 2) return "";
    double all = 0, whole = 0;
    graph::State const fields = step_.whole_fields();
    for (graph::Field const& field : fields.fields()) {
      if (!field.parameter) continue;
      all += static_cast<double>(field.shape.size());
      if (!step_.parts().along(graph::MeshAxis::data).of(field.name).divided())
        whole += static_cast<double>(field.shape.size());
    }
    if (whole < 0.05 * all) return "";
    return fmt::format("; {:.0f} % of the parameters are whole on every rank, since {} ranks do not divide their rows",
                       100 * whole / all, ranks);
  }

  Step& step_;
  int ranks_;
  Shared<comm::Port> port_, tensor_, pipeline_;
};

/// Every rank trains a replica, with moments of its own; parallel::Diloco brings them together.
template <class Step>
class DilocoTraining {
 public:
  static constexpr bool one_model = false, waits = true;

  DilocoTraining(Step& step, exec::Context& host, Shared<comm::Port> port, parallel::DilocoOptions const& options)
      : step_(step), port_(std::move(port)), weight_(options.weight), diloco_(host, port_, step.state(), options) {
    for (graph::Field& field : step_.state().fields())
      if (!field.parameter) field.per_rank = true;
  }

  void connect(parallel::DataParallel const&) {}
  void begin(Checkpoint const* resumed) {
    graph::State& state = step_.state();
    diloco_.begin();
    if (resumed == nullptr || resumed->replicas() == 0) return;  // moments are what the checkpoint's model had
    graph::State agreed, own;
    copy_into(agreed, resumed->optimizer(), "outer.");
    if (agreed.fields().empty()) return;  // another algorithm's, with states of each rank's own
    io::Safetensors const replica = resumed->replica(port_->rank() % resumed->replicas());
    copy_into(own, replica, "");
    take_back(state, own);
    diloco_.resume(agreed, own);
  }
  void finish_step(std::int64_t done, StepResult& result) {
    kept_ = {};
    double values[2] = {weight_ * static_cast<double>(result.loss), static_cast<double>(result.grad_norm)};
    parallel::all_reduce(*port_, values, comm::PortOp::avg);
    result.loss = static_cast<float>(values[0]);
    result.grad_norm = static_cast<float>(values[1]);
    static_cast<void>(step_.state());
    result.add(graph::MeshAxis::data, diloco_.after_step(done));
  }
  void exchange() {
    static_cast<void>(step_.state());
    diloco_.exchange();
  }
  void keep(CheckpointContents& contents, std::string const& out) {
    kept_ = diloco_.keep();
    std::vector<io::NamedTensor> own;
    for (graph::Field const& field : kept_.own.fields()) own.push_back(named_tensor(field));
    for (graph::Field const& field : step_.state().fields())
      if (!field.parameter && !optim::is_accumulator(field.name)) own.push_back(named_tensor(field));
    save_replicas(*port_, out, std::move(own), contents);
    for (graph::Field const& field : kept_.agreed.fields()) contents.optimizer.push_back(named_tensor(field));
    sort_by_name(contents.optimizer);
  }
  std::int64_t bytes() const noexcept { return diloco_.bytes(); }
  std::string describe() const {
    parallel::DilocoOptions const& o = diloco_.options();
    std::string text = fmt::format("DiLoCo: {} inner step{}, outer rate {:.3g}, momentum {:.3g}", o.inner_steps,
                                   o.inner_steps == 1 ? "" : "s", o.outer.learning_rate, o.outer.momentum);
    if (o.fragments > 1) text += fmt::format(", {} fragments", o.fragments);
    if (o.overlap > 0) text += fmt::format(", {} steps of overlap, mix {:.3g}", o.overlap, o.mix);
    return text;
  }
  std::string describe_traffic(std::int64_t) const {
    parallel::DilocoOptions const& o = diloco_.options();
    auto const bits = setting::spelling<parallel::OuterBits>[static_cast<std::size_t>(o.bits)];
    return port_->size() == 1 ? std::string("none")
                              : fmt::format("{} sent by each of {} ranks every {} steps, as {}",
                                            human_bytes(static_cast<double>(diloco_.bytes_per_round())), port_->size(),
                                            o.inner_steps, bits);
  }

 private:

  Step& step_;
  Shared<comm::Port> port_;
  double weight_;
  parallel::Diloco diloco_;
  parallel::Diloco::Kept kept_;  // while a checkpoint is written
};

}  // namespace tutti::train
