// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a program on processors. All memory and all kernel arguments are fixed when an executor is made; a run only
/// calls kernels, starts and awaits collectives, and gives those in flight a chance to progress between two steps.

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/graph/calls.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/graph/packed.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::graph {

/// The memory that programs need while they run. Programs that never run at the same time may share one.
struct Workspace {
  Memory arena, communicator;

  Workspace(std::int64_t arena_bytes, std::int64_t communicator_bytes, comm::Port* port = nullptr)
      : arena(arena_bytes), communicator(communicator_bytes, port) {}
  /// Large enough for each of the programs.
  static Shared<Workspace> of(std::span<Program const* const> programs, comm::Port* port = nullptr) {
    std::int64_t arena_bytes = 0, communicator_bytes = 0;
    for (Program const* program : programs) {
      arena_bytes = std::max(arena_bytes, program->plan.arena_bytes);
      communicator_bytes = std::max(communicator_bytes, program->plan.communicator_bytes);
    }
    return make_shared_owner<Workspace>(arena_bytes, communicator_bytes, port);
  }
};

struct ExecutorOptions {
  comm::Port* port = nullptr;            ///< null: this rank is alone. Outlives the executor
  comm::Port* node = nullptr;            ///< of the ranks of the program's Division. Outlives the executor
  Shared<Workspace> workspace;  ///< null: one of its own
  PackedOperands* packed = nullptr;      ///< keeps what products read of the state. Who writes a field lets it expire
  bool poison = false;                   ///< dead and unwritten memory holds NaN: whatever reads it shows
  bool profile = false;                  ///< measure every step
};

/// Bound to a context, a program and a state, all of which must outlive it. One run at a time.
class Executor {
 public:
  /// Errors: invalid_argument (the state lacks a field), shape, out_of_memory.
  Executor(exec::Context& context, Program const& program, State& state, ExecutorOptions options = {})
      : context_(context),
        program_(program),
        options_(std::move(options)),
        port_(options_.port != nullptr && options_.port->size() > 1 ? options_.port : nullptr) {
    StepList const& list = program.list;
    if (!options_.workspace) {
      Program const* const one[] = {&program};
      options_.workspace = Workspace::of(one, options_.port);
    }
    if (options_.workspace->arena.bytes() < program.plan.arena_bytes ||
        options_.workspace->communicator.bytes() < program.plan.communicator_bytes)
      throw Error(ErrorKind::invalid_argument, "graph::Executor",
                  "the workspace is smaller than the program's plan. Make it with Workspace::of");
    for (Step const& step : list.steps)
      if ((step.kind == StepKind::node_sum || step.kind == StepKind::node_barrier) && options_.node == nullptr)
        throw Error(ErrorKind::invalid_argument, "graph::Executor",
                    "the program divides its updates between ranks, and there is no port of these. Set "
                    "ExecutorOptions::node");
    std::int64_t bytes = 0;
    for (auto const* entries : {&list.inputs, &list.outputs})
      for (Entry const& entry : *entries) bytes += align_up(std::max<std::int64_t>(list[entry.buffer].bytes, 1));
    ports_ = Memory(bytes);
    std::byte* next = ports_.data();
    roots_.assign(list.buffers.size(), nullptr);
    for (auto const* entries : {&list.inputs, &list.outputs})
      for (Entry const& entry : *entries) {
        roots_[lowering::at(entry.buffer)] = next;
        next += align_up(std::max<std::int64_t>(list[entry.buffer].bytes, 1));
      }
    for (Entry const& entry : list.fields) {
      Field& field = state.at(entry.name);
      if (field.dtype != entry.dtype || !(field.shape == entry.shape))
        throw Error(ErrorKind::shape, "graph::Executor",
                    "field '" + entry.name + "' has shape " + to_string(field.shape) + " in the state and " +
                        to_string(entry.shape) + " in the program");
      roots_[lowering::at(entry.buffer)] = static_cast<std::byte*>(field.data());
    }
    given_.assign(list.inputs.size(), false);
    std::int32_t slots = 0;
    for (Step const& step : list.steps) slots = std::max(slots, step.slot + 1);
    flights_.assign(lowering::at(slots), {});
    calls_.resize(list.steps.size());
    for (std::size_t s = 0; s < list.steps.size(); ++s) {
      calls::Operands operands{
          list.steps[s], {}, {}, reads_kept_operand(list, list.steps[s]) ? options_.packed : nullptr};
      for (Ref const& ref : operands.step.reads) operands.reads.push_back(pointer(ref));
      for (Ref const& ref : operands.step.writes) operands.writes.push_back(pointer(ref));
      calls_[s] = calls::bind(operands);
    }
    if (options_.profile) profile_ = Profile(list);
    if (options_.poison) plan_poison();
  }
  Executor(exec::Context&, Program&&, State&, ExecutorOptions = {}) = delete;  // the program would be gone
  Executor(Executor const&) = delete;
  Executor& operator=(Executor const&) = delete;

  Program const& program() const noexcept { return program_; }

  /// Copies an input in. Errors: invalid_argument (no such input), shape, dtype.
  template <class T>
  void set(std::string_view name, TensorView<T> values, std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    if (dtype_of<std::remove_const_t<T>> != entry.dtype)
      throw Error(ErrorKind::dtype, "Executor::set",
                  concat("input '", entry.name, "' is ", tutti::name(entry.dtype), ", and it was given ",
                         tutti::name(dtype_of<std::remove_const_t<T>>)), where);
    if (!(values.shape() == entry.shape))
      throw Error(ErrorKind::shape, "Executor::set",
                  concat("input '", entry.name, "' has shape ", to_string(entry.shape), ", and it was given ",
                         to_string(values.shape())), where);
    auto const elements = values.elements(where);
    std::byte* const to = given(entry);
    if (!elements.empty()) std::memcpy(to, elements.data(), elements.size_bytes());
  }
  /// Sets every element of an input: for scalars. Errors: invalid_argument, dtype (the type has no such number).
  void set(std::string_view name, double value, std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    std::byte* const to = checked(entry, holds(entry.dtype, value), value, where);
    for (std::int64_t i = 0; i < entry.shape.size(); ++i) generic::store_number(entry.dtype, to, i, value);
  }
  template <std::integral T>
  void set(std::string_view name, T value, std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    if (entry.dtype == DType::float64) return set(name, static_cast<double>(value), where);
    if (is_floating(entry.dtype)) return set(name, double{static_cast<float>(value)}, where);  // rounded once
    bool const held = with_dtype(entry.dtype, [&](auto zero) {
      using E = std::conditional_t<std::is_integral_v<decltype(zero)>, decltype(zero), unsigned char>;
      return std::cmp_equal(+static_cast<E>(value), +value);
    });
    std::byte* const to = checked(entry, held, value, where);
    for (std::int64_t i = 0; i < entry.shape.size(); ++i)
      generic::store_integer(entry.dtype, to, i, static_cast<std::int64_t>(value));
  }

  /// An output of the last run, valid until the next one. Errors: invalid_argument, dtype.
  template <class T>
  TensorView<T const> output(std::string_view name,
                             std::source_location where = std::source_location::current()) const {
    Entry const& entry = output_entry(name, where);
    if (dtype_of<T> != entry.dtype)
      throw Error(ErrorKind::dtype, "Executor::output",
                  "output '" + entry.name + "' is " + std::string(tutti::name(entry.dtype)) + ", not " +
                      std::string(tutti::name(dtype_of<T>)),
                  where);
    return {reinterpret_cast<T const*>(roots_[lowering::at(entry.buffer)]), entry.shape};
  }
  /// The first element of an output of any type: losses, norms.
  double value(std::string_view name, std::source_location where = std::source_location::current()) const {
    Entry const& entry = output_entry(name, where);
    return entry.shape.size() == 0 ? 0 : generic::number_at(entry.dtype, roots_[lowering::at(entry.buffer)], 0);
  }

  /// One run. Inputs keep their values between runs; each must have been set once.
  /// Ranks      all ranks run the same program in the same order.
  /// Blocking   until everything is done, collectives included. No memory is allocated but, once, for packed operands.
  /// Errors     of kernels (a token outside the vocabulary) and of the communicator; what is in flight is cancelled.
  void run(std::source_location where = std::source_location::current()) {
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (!given_[i])
        throw Error(ErrorKind::invalid_argument, "Executor::run",
                    "input '" + program_.list.inputs[i].name + "' was never set", where);
    waited_ns_ = 0;
    oldest_ = 0;
    started_ = 0;
    if (options_.poison) poison_all();
    if (profile_.measures()) profile_.begin_run(exec::now_ns());
    try {
      for (std::size_t s = 0; s < calls_.size(); ++s) {
        if (profile_.measures()) {
          std::int64_t const begin = exec::now_ns();
          execute(s);
          profile_.add(s, begin, exec::now_ns());
        } else {
          execute(s);
        }
        if (options_.poison)
          for (Dead const& dead : dead_after_[s]) std::memset(dead.memory, 0xff, dead.bytes);
        if (oldest_ < started_) progress();
      }
    } catch (...) {
      for (Flight& flight : flights_)
        if (flight.active) {
          port_->cancel(flight.ticket);
          flight.active = false;
        }
      throw;
    }
    ++runs_;
  }

  /// Nanoseconds that the last run was blocked in waits for other ranks: communication that computation did not hide.
  std::int64_t waited_ns() const noexcept { return waited_ns_; }
  std::int64_t runs() const noexcept { return runs_; }
  /// Empty without ExecutorOptions::profile.
  Profile const& profile() const noexcept { return profile_; }

 private:
  struct Flight {
    comm::Port::Ticket ticket = 0;
    bool active = false;
  };
  struct Dead {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  Entry const& input(std::string_view name, std::source_location where) const {
    int const i = Program::find(program_.list.inputs, name);
    if (i < 0) fail_name("input", name, program_.list.inputs, where);
    return program_.list.inputs[lowering::at(i)];
  }
  /// The memory of an input that is written now.
  std::byte* given(Entry const& entry) {
    given_[static_cast<std::size_t>(&entry - program_.list.inputs.data())] = true;
    return roots_[lowering::at(entry.buffer)];
  }
  template <class T>
  std::byte* checked(Entry const& entry, bool holds, T value, std::source_location where) {
    if (holds) return given(entry);
    throw Error(ErrorKind::dtype, "Executor::set",
                concat("input '", entry.name, "' is ", tutti::name(entry.dtype), ", and none is ",
                       std::to_string(value)), where);
  }
  Entry const& output_entry(std::string_view name, std::source_location where) const {
    int const i = Program::find(program_.list.outputs, name);
    if (i < 0) fail_name("output", name, program_.list.outputs, where);
    return program_.list.outputs[lowering::at(i)];
  }
  [[noreturn]] static void fail_name(char const* what, std::string_view name, List<Entry> const& entries,
                                     std::source_location where) {
    std::string known;
    for (Entry const& entry : entries) known += (known.empty() ? "" : ", ") + entry.name;
    throw Error(ErrorKind::invalid_argument, "graph::Executor",
                "the program has no " + std::string(what) + " '" + std::string(name) +
                    "'. It has: " + (known.empty() ? "none" : known),
                where);
  }

  std::byte* pointer(Ref const& ref) const {
    if (!ref) return nullptr;
    BufferId const root = program_.list.home(ref.buffer).root;
    Pool const pool = program_.list[root].pool;
    std::byte* const base = pool == Pool::arena          ? options_.workspace->arena.data()
                            : pool == Pool::communicator ? options_.workspace->communicator.data()
                                                         : roots_[lowering::at(root)];
    return base + program_.plan.offset[lowering::at(ref.buffer)] + ref.offset;
  }

  void execute(std::size_t s) {
    if (calls_[s]) return calls_[s]->run(context_);
    Step const& step = program_.list.steps[s];
    switch (step.kind) {
      case StepKind::all_reduce_start:
        if (port_ == nullptr) break;
        flights_[lowering::at(step.slot)] = {step.scatter ? start_scatter(step) : start_all_reduce(step), true};
        started_ = step.slot + 1;
        break;
      case StepKind::all_reduce_wait: {
        if (port_ == nullptr) break;
        Flight& flight = flights_[lowering::at(step.slot)];
        if (flight.active) wait(*port_, flight.ticket);
        flight.active = false;
        break;
      }
      case StepKind::all_reduce:
        throw Error(ErrorKind::internal, "graph::Executor", "a reduction was left without a bucket");
      case StepKind::rank:
        generic::store_number(step.writes[0].dtype, pointer(step.writes[0]), 0, port_ == nullptr ? 0 : port_->rank());
        break;
      case StepKind::node_sum: case StepKind::node_barrier: {
        double nothing = 0;
        void* const sum = step.kind == StepKind::node_sum ? static_cast<void*>(pointer(step.writes[0])) : &nothing;
        wait(*options_.node, options_.node->start_all_reduce(sum, 1, DType::float64, comm::PortOp::sum,
                                                             std::source_location::current()));
        break;
      }
      case StepKind::broadcast: case StepKind::all_gather: case StepKind::reduce_scatter: collective(step); break;
      default: throw Error(ErrorKind::internal, "graph::Executor", "a step has no call");
    }
  }
  comm::Port::Ticket start_all_reduce(Step const& step) {
    return port_->start_all_reduce(pointer(step.reads[0]), sent_elements(step), step.reads[0].dtype,
                                   static_cast<comm::PortOp>(step.operation), std::source_location::current());
  }
  /// In place: of the bucket's memory only this rank's section is written.
  comm::Port::Ticket start_scatter(Step const& step) {
    Ref const& first = step.reads[0];
    BufferId const root = program_.list.home(first.buffer).root;
    auto const size = static_cast<std::int64_t>(size_of(first.dtype));
    std::int64_t const count = program_.list[root].bytes / size / port_->size();
    std::byte* const bucket = pointer(first);
    return port_->start_reduce_scatter(bucket, bucket + count * size * port_->rank(), count, first.dtype,
                                       static_cast<comm::PortOp>(step.operation), std::source_location::current());
  }
  void collective(Step const& step) {
    auto const here = std::source_location::current();
    Ref const &x = step.reads[0], &y = step.writes[0];
    std::byte *const from = pointer(x), *const to = pointer(y);
    int const ranks = port_ == nullptr ? 1 : port_->size();
    if (step.kind != StepKind::broadcast && step.root != ranks)
      throw Error(ErrorKind::communication, "graph::Executor",
                  "the program was traced for " + std::to_string(step.root) + " ranks and runs on " +
                      std::to_string(ranks) + ". Trace it again");
    if (port_ == nullptr) {
      if (x.bytes() > 0) std::memcpy(to, from, static_cast<std::size_t>(x.bytes()));
      return;
    }
    comm::Port::Ticket ticket = 0;
    if (step.kind == StepKind::broadcast) {
      std::memcpy(to, from, static_cast<std::size_t>(x.bytes()));
      ticket = port_->start_broadcast(to, y.shape.size(), y.dtype, step.root, here);
    } else if (step.kind == StepKind::all_gather) {
      ticket = port_->start_all_gather(from, to, x.shape.size(), x.dtype, here);
    } else {
      ticket = port_->start_reduce_scatter(from, to, y.shape.size(), y.dtype,
                                           static_cast<comm::PortOp>(step.operation), here);
    }
    wait(*port_, ticket);
  }
  void wait(comm::Port& port, comm::Port::Ticket ticket) {
    std::int64_t const begin = exec::now_ns();
    port.wait(ticket);
    waited_ns_ += exec::now_ns() - begin;
  }
  /// One look at the oldest collective in flight lets all of them progress.
  void progress() {
    while (oldest_ < started_ && !flights_[lowering::at(oldest_)].active) ++oldest_;
    if (oldest_ == started_) return;
    Flight& flight = flights_[lowering::at(oldest_)];
    if (port_->test(flight.ticket)) flight.active = false;
  }

  void plan_poison() {
    dead_after_.resize(calls_.size());
    for (std::size_t id = 0; id < program_.list.buffers.size(); ++id) {
      Buffer const& buffer = program_.list.buffers[id];
      auto const life = program_.plan.life[id];
      if (buffer.bytes == 0 || life.last < 0 || !is_planned(buffer.pool) ||
          program_.list.home(static_cast<BufferId>(id)).root != static_cast<BufferId>(id))
        continue;
      std::byte* const base =
          buffer.pool == Pool::arena ? options_.workspace->arena.data() : options_.workspace->communicator.data();
      dead_after_[lowering::at(life.last)].push_back(
          {base + program_.plan.offset[id], static_cast<std::size_t>(buffer.bytes)});
    }
  }
  void poison_all() {
    auto const poison = [](std::byte* memory, std::int64_t bytes) {
      if (bytes > 0) std::memset(memory, 0xff, static_cast<std::size_t>(bytes));
    };
    poison(options_.workspace->arena.data(), program_.plan.arena_bytes);
    poison(options_.workspace->communicator.data(), program_.plan.communicator_bytes);
    for (Entry const& entry : program_.list.outputs)
      poison(roots_[lowering::at(entry.buffer)], program_.list[entry.buffer].bytes);
  }

  exec::Context& context_;
  Program const& program_;
  ExecutorOptions options_;
  comm::Port* port_;
  Memory ports_;                    // inputs and outputs
  List<std::byte*> roots_;   // of fields, inputs and outputs, by buffer
  List<Owner<calls::Call>> calls_;  // null for collectives
  List<Flight> flights_;
  std::int32_t oldest_ = 0, started_ = 0;
  List<bool> given_;
  Profile profile_;
  List<List<Dead>> dead_after_;
  std::int64_t waited_ns_ = 0;
  std::int64_t runs_ = 0;
};

}  // namespace tutti::graph
