// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A rank's work as a stage of a pipeline: forward and backward passes in the order of a schedule, and the messages
/// between neighbours, which travel while stages compute.

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/graph/ports.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/pipeline_programs.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Messages under way to or from one neighbour, each of several parts. What is given up when this goes is cancelled.
class StageMessages {
 public:
  StageMessages() = default;
  explicit StageMessages(comm::Port& port) : port_(&port) {}
  StageMessages(StageMessages&& other) noexcept
      : port_(other.port_), tickets_(std::exchange(other.tickets_, {})) {}
  StageMessages& operator=(StageMessages&&) = delete;
  ~StageMessages() {
    for (comm::Port::Ticket ticket : tickets_) port_->cancel(ticket);
  }

  void send(void const* data, std::int64_t bytes, int to, int tag, std::source_location where) {
    if (bytes > 0) tickets_.push_back(port_->start_send(data, bytes, to, tag, where));
  }
  void receive(void* data, std::int64_t bytes, int from, int tag, std::source_location where) {
    if (bytes > 0) tickets_.push_back(port_->start_receive(data, bytes, from, tag, where));
  }
  /// Until all are complete; returns the nanoseconds that it took.
  std::int64_t wait() {
    std::int64_t const begin = exec::now_ns();
    while (!tickets_.empty()) {
      comm::Port::Ticket const ticket = tickets_.back();
      tickets_.pop_back();
      port_->wait(ticket);
    }
    return exec::now_ns() - begin;
  }

 private:
  comm::Port* port_ = nullptr;
  List<comm::Port::Ticket> tickets_;
};

/// What comes from one neighbour, in order: the next message is received while the stage computes.
class StageInbox {
 public:
  /// Of a message: the bytes of its parts. Part i has the tag first_tag + 2 i.
  StageInbox(comm::Port& port, int from, int first_tag, List<std::int64_t> bytes)
      : from_(from), first_tag_(first_tag), bytes_(std::move(bytes)), under_way_(port) {
    for (std::int64_t part : bytes_) parts_.emplace_back(static_cast<std::size_t>(part));
  }
  StageInbox(StageInbox const&) = delete;
  StageInbox& operator=(StageInbox const&) = delete;

  /// So many messages come from now on.
  void expect(std::int64_t messages, std::source_location where) {
    expected_ = messages;
    post(where);
  }
  /// The next one: f(i, data) takes part i away; returns the nanoseconds of waiting.
  template <class F>
  std::int64_t take(F const& f, std::source_location where) {
    std::int64_t const waited = under_way_.wait();
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (!parts_[i].empty()) f(i, parts_[i].data());
    post(where);
    return waited;
  }

 private:
  void post(std::source_location where) {
    if (expected_ == 0) return;
    --expected_;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      under_way_.receive(parts_[i].data(), bytes_[i], from_, first_tag_ + 2 * static_cast<int>(i), where);
  }

  int from_, first_tag_;
  List<std::int64_t> bytes_;
  std::vector<std::vector<std::byte>> parts_;  // before what is received into them
  StageMessages under_way_;
  std::int64_t expected_ = 0;
};

/// The programs of a stage's part of the model, compiled from StageGraphs.
struct StagePrograms {
  graph::Program forward, first_backward, backward, inputs;
  List<graph::Graph> graphs;  ///< of these, for the states that they need
  bool splits = false;        ///< `inputs` is there, and `backward` the other half of a backward pass

  std::vector<graph::Program const*> all() const {
    std::vector<graph::Program const*> all{&forward, &first_backward, &backward};
    if (splits) all.push_back(&inputs);
    return all;
  }
};
/// The parts of a stage, the one that comes first in the model first.
struct StageParts {
  std::vector<StagePrograms> programs;
  int carried = 1;  ///< values that pass from a part to the next
};
using ReferPart = FunctionRef<void(graph::State&, int part)>;  ///< gives a State what a part has of the stage's one

/// A gradient of which several stages have addends: that of a parameter which each of them has.
struct StageSum {
  std::string field;
  List<int> stages;  ///< in ascending order
};

/// Of one of the programs of a part in a step; over all micro-batches.
struct MeasuredProgram {
  std::string what;  ///< "forward", "gradients of inputs", "first backward", "backward", "gradients of weights"
  int part = 0;
  std::int64_t runs = 1;
  graph::Profile profile;
};

/// What stages run their programs in, train::Execution<Device>: as train::Executor, and
///   E::Part(e)                                  what programs of one part run on: a state of its own
///   part.state()                                -> graph::State&: refers to fields of the stage's, and has others
///   e.ready(program, ranks, settings, &part)    -> std::unique_ptr<E::Ready>, whose runs are over when `run` returns
///   part.read(field, where), e.read(...)        -> void*: contents of a field of the part, or of the stage, in memory
///                                               of the host, until it is read again
///   part.place(field, where)                    that memory alone
///   part.write(field, from, where), e.write(...)  gives it these, which may be there; not again before a program ran
template <class E>
concept StageExecution = requires(E& e, typename E::Part& part, graph::Program const& program,
                                  DataParallel const& ranks, graph::Field& field, void const* from,
                                  std::source_location where) {
  requires std::constructible_from<typename E::Part, E&>;
  { part.state() } -> std::same_as<graph::State&>;
  { e.ready(program, ranks, {false, false, true}, &part) } -> std::same_as<std::unique_ptr<typename E::Ready>>;
  { part.read(field, where) } -> std::same_as<void*>;
  { part.place(field, where) } -> std::same_as<void*>;
  { e.read(field, where) } -> std::same_as<void*>;
  part.write(field, from, where);
  e.write(field, from, where);
};

/// Runs the passes of a step. Every micro-batch that is under way has a slot in each part of the stage, with the
/// activations that its backward pass reads; parameters and sums of gradients are those of the caller's state.
/// Ranks         all stages of the pipeline, the same calls in the same order. Blocking.
/// Determinism   micro-batches add their gradients in ascending order, stages theirs to a shared one likewise
template <StageExecution E>
class StageRun {
 public:
  using Ready = typename E::Ready;
  /// Gives a program its inputs, of micro-batch `micro`.
  using Give = FunctionRef<void(Ready&, std::int64_t)>;

  /// All of these outlive it, but for `refer`. `state` has the parameters and the sums, whose memory stays where it is.
  StageRun(E& execution, graph::State& state, StageParts const& parts, ReferPart refer, PipelineLayout const& layout,
           std::int64_t micro_batches, DataParallel const& ranks, bool profile = false)
      : execution_(execution),
        state_(state),
        layout_(layout),
        ranks_(ranks),
        port_(*ranks.pipeline),
        tasks_(pipeline_tasks(layout, micro_batches)),
        slots_(parts.programs.size()),
        micro_batches_(micro_batches) {
    auto const make_inbox = [&](std::unique_ptr<StageInbox>& inbox, int from, int tag, auto const& fields) {
      if (!inbox) inbox = std::make_unique<StageInbox>(port_, from, tag, bytes_of(fields));
    };
    for (int part = 0; part < layout.virtual_stages; ++part) {
      auto& slots = slots_[static_cast<std::size_t>(part)];
      for (std::int64_t i = kept_micro_batches(tasks_, part); i > 0; --i) {
        slots.push_back(std::make_unique<Slot>(execution, port_));
        refer(slots.back()->part.state(), part);
        prepare(*slots.back(), parts, part, slots.size() == 1, profile);
      }
      if (!first(part)) {
        make_inbox(activations_, before(), 0, slots[0]->inputs);
        received_forward_ += micro_batches;
      }
      if (!last(part)) {
        make_inbox(gradients_, behind(), 1, slots[0]->gradients);
        received_backward_ += micro_batches;
      }
    }
  }

  /// The sum of micro-batches' losses on the stage that has the last part, 0 on others; gradients are in the state.
  double passes(Give give, std::source_location where) {
    waited_ns_ = 0;
    waits_ = {};
    double loss = 0;
    if (activations_) activations_->expect(received_forward_, where);
    if (gradients_) gradients_->expect(received_backward_, where);
    for (PipelineTask const& task : tasks_) {
      auto& slots = slots_[static_cast<std::size_t>(task.part)];
      Slot& slot = *slots[static_cast<std::size_t>(task.micro_batch) % slots.size()];
      if (task.work == PipelineWork::forward) loss += forward(slot, task, give, where);
      else if (task.work == PipelineWork::backward) backward(slot, task, give, where);
      else add_gradients(slot, task, give, where);
    }
    for (auto& slots : slots_)
      for (auto& slot : slots) waited_ns_ += slot->forward_sent.wait() + slot->backward_sent.wait();
    return loss;
  }
  /// Each of the stages that have one of these gets the sum of their addends, made in the order of stages.
  void add_up(List<StageSum> const& sums, std::source_location where) {
    for (StageSum const& sum : sums) {
      graph::Field* const field = state_.find(sum.field);
      int const home = sum.stages[0], stage = layout_.stage;
      if (!graph::detail::contains(sum.stages, stage)) continue;
      StageMessages messages(port_);
      void* const mine = execution_.read(*field, where);
      if (stage != home) {
        messages.send(mine, field->bytes(), home, sum_tag, where);
        waited_ns_ += messages.wait();
        messages.receive(mine, field->bytes(), home, sum_tag, where);
        waited_ns_ += messages.wait();
        execution_.write(*field, mine, where);
        continue;
      }
      std::span const total(static_cast<float*>(mine), static_cast<std::size_t>(field->shape.size()));
      if (addend_.size() < total.size()) addend_.resize(total.size());
      for (std::size_t i = 1; i < sum.stages.size(); ++i) {
        messages.receive(addend_.data(), field->bytes(), sum.stages[i], sum_tag, where);
        waited_ns_ += messages.wait();
        for (std::size_t k = 0; k < total.size(); ++k) total[k] += addend_[k];
      }
      for (std::size_t i = 1; i < sum.stages.size(); ++i)
        messages.send(mine, field->bytes(), sum.stages[i], sum_tag, where);
      waited_ns_ += messages.wait();
      execution_.write(*field, mine, where);
    }
  }

  /// Needs `profile`.
  std::vector<MeasuredProgram> profiles() const {
    std::vector<MeasuredProgram> all;
    for (std::size_t part = 0; part < slots_.size(); ++part) {
      auto const add = [&](char const* what, std::int64_t runs, auto member) {
        MeasuredProgram found{what, static_cast<int>(part), runs, {}};
        for (auto const& slot : slots_[part])
          if (Ready const* const run = ((*slot).*member).get()) {
            if (!found.profile.measures()) found.profile = run->profile();
            else found.profile.add(run->profile());
          }
        if (found.profile.measures() && runs > 0) all.push_back(std::move(found));
      };
      bool const splits = splits_backward(layout_.schedule);
      add("forward", micro_batches_, &Slot::forward);
      add("gradients of inputs", micro_batches_, &Slot::inputs_only);
      add(splits ? "first gradients of weights" : "first backward", 1, &Slot::first_backward);
      add(splits ? "gradients of weights" : "backward", micro_batches_ - 1, &Slot::backward);
    }
    return all;
  }
  /// Nanoseconds of the last step in which this rank only waited, by axis: for collectives of its programs, and for
  /// messages of the pipeline, its bubble among them.
  graph::AxisWaits waits() const noexcept {
    graph::AxisWaits all = waits_;
    all[static_cast<std::size_t>(graph::MeshAxis::pipeline)] += waited_ns_;
    return all;
  }

 private:
  struct Slot {
    typename E::Part part;
    List<graph::Field*> inputs, outputs, gradients, input_gradients;  // null: an integer, which has no gradient
    std::unique_ptr<Ready> forward, first_backward, backward, inputs_only;
    StageMessages forward_sent, backward_sent;
    Slot(E& execution, comm::Port& port) : part(execution), forward_sent(port), backward_sent(port) {}
  };
  static constexpr int sum_tag = 32767;

  bool first(int part) const noexcept { return layout_.part(part) == 0; }
  bool last(int part) const noexcept { return layout_.part(part) + 1 == layout_.parts(); }
  /// The ranks whose parts come before and behind this one's: behind the last stage the next part of the first one.
  int before() const noexcept { return (layout_.stage + layout_.stages - 1) % layout_.stages; }
  int behind() const noexcept { return (layout_.stage + 1) % layout_.stages; }

  void prepare(Slot& slot, StageParts const& parts, int part, bool begins, bool profile) {
    StagePrograms const& programs = parts.programs[static_cast<std::size_t>(part)];
    graph::State& state = slot.part.state();
    for (graph::Graph const& graph : programs.graphs) state.add(graph);
    for (int i = 0; i < parts.carried; ++i) {
      auto const find = [&](char const* what, List<graph::Field*>& list) {
        if (graph::Field* const field = state.find(pipeline_name(what, static_cast<std::size_t>(i))))
          list.push_back(field);
      };
      find("input", slot.inputs), find("output", slot.outputs);
      find("gradient", slot.gradients), find("input_gradient", slot.input_gradients);
    }
    auto const ready = [&](graph::Program const& program) {
      return execution_.ready(program, ranks_, {false, profile, true}, &slot.part);
    };
    slot.forward = ready(programs.forward);
    slot.backward = ready(programs.backward);
    if (begins) slot.first_backward = ready(programs.first_backward);
    if (programs.splits) slot.inputs_only = ready(programs.inputs);
  }
  static List<std::int64_t> bytes_of(List<graph::Field*> const& fields) {
    List<std::int64_t> bytes;
    for (graph::Field const* field : fields) bytes.push_back(field->bytes());
    return bytes;
  }
  void take(StageInbox& inbox, Slot& slot, List<graph::Field*> const& fields, std::source_location where) {
    waited_ns_ += inbox.take([&](std::size_t i, void const* from) { slot.part.write(*fields[i], from, where); }, where);
  }
  static void send(Slot& slot, StageMessages& messages, List<graph::Field*> const& fields, int to, int tag,
                   std::source_location where) {
    for (std::size_t i = 0; i < fields.size(); ++i)
      messages.send(slot.part.read(*fields[i], where), fields[i]->bytes(), to, tag + 2 * static_cast<int>(i), where);
  }

  double forward(Slot& slot, PipelineTask const& task, Give give, std::source_location where) {
    if (!first(task.part)) take(*activations_, slot, slot.inputs, where);
    waited_ns_ += slot.forward_sent.wait();  // what went from here before
    give(*slot.forward, task.micro_batch);
    run(*slot.forward, where);
    if (last(task.part)) return slot.forward->value("loss");
    send(slot, slot.forward_sent, slot.outputs, behind(), 0, where);
    return 0;
  }
  void backward(Slot& slot, PipelineTask const& task, Give give, std::source_location where) {
    if (!last(task.part)) take(*gradients_, slot, slot.gradients, where);
    waited_ns_ += slot.backward_sent.wait();
    if (!splits_backward(layout_.schedule)) {
      add_gradients(slot, task, give, where);
    } else if (slot.inputs_only) {
      give(*slot.inputs_only, task.micro_batch);
      run(*slot.inputs_only, where);
    }
    if (!first(task.part)) send(slot, slot.backward_sent, slot.input_gradients, before(), 1, where);
  }
  /// The backward pass, or what is left of it.
  void add_gradients(Slot& slot, PipelineTask const& task, Give give, std::source_location where) {
    Ready& program = task.micro_batch == 0 ? *slot.first_backward : *slot.backward;
    give(program, task.micro_batch);
    run(program, where);
  }
  void run(Ready& program, std::source_location where) {
    program.run(where);
    for (std::size_t axis = 0; axis < waits_.size(); ++axis) waits_[axis] += program.waits()[axis];
  }

  E& execution_;
  graph::State& state_;
  PipelineLayout layout_;
  DataParallel const& ranks_;
  comm::Port& port_;
  List<PipelineTask> tasks_;
  std::vector<std::vector<std::unique_ptr<Slot>>> slots_;  // by part
  std::vector<float> addend_;                              // of a sum over stages
  std::unique_ptr<StageInbox> activations_, gradients_;
  std::int64_t micro_batches_, received_forward_ = 0, received_backward_ = 0;  // messages of a step
  std::int64_t waited_ns_ = 0;                                                 // for messages
  graph::AxisWaits waits_{};                                                   // in programs
};

}  // namespace tutti::parallel
