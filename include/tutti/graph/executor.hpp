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
#include <tutti/graph/bind.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/graph/not_finite.hpp>
#include <tutti/graph/packed.hpp>
#include <tutti/graph/ports.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
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
  comm::Port* port = nullptr;            ///< of the data axis; null: one rank along it. Outlives the executor
  comm::Port* tensor = nullptr;          ///< likewise of the other axes of the mesh
  comm::Port* pipeline = nullptr;
  comm::Port* sequence = nullptr;
  comm::Port* node = nullptr;            ///< of the ranks of the program's Division. Outlives the executor
  comm::Port* beside = nullptr;          ///< what is in flight there moves on between two steps. Outlives the executor
  Shared<Workspace> workspace{};         ///< null: one of its own
  PackedOperands* packed = nullptr;      ///< keeps what products read of the state. Who writes a field lets it expire
  bool poison = false;                   ///< dead and unwritten memory holds NaN: whatever reads it shows
  bool profile = false;                  ///< measure every step
  NotFinite* not_finite = nullptr;       ///< finds the first step that gives what is not finite. Outlives the executor
};

/// Bound to a context, a program and a state, all of which must outlive it. One run at a time.
class Executor : public Ports {
 public:
  /// Errors: invalid_argument (the state lacks a field), shape, out_of_memory.
  Executor(exec::Context& context, Program const& program, State& state, ExecutorOptions options = {},
           std::source_location where = std::source_location::current())
      : Ports(program.list),
        context_(context),
        program_(program),
        state_(state),
        options_(std::move(options)) {
    StepList const& list = program.list;
    ports_ = {options_.port, options_.tensor, options_.pipeline, options_.sequence};
    for (comm::Port*& port : ports_)
      if (port != nullptr && port->size() == 1) port = nullptr;
    if (list.buffers.empty())
      throw Error(ErrorKind::invalid_argument, "graph::Executor",
                  "the program is empty: it was moved from, or never compiled. Use the one that it became", where);
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
    roots_.assign(list.buffers.size(), nullptr);
    for (auto const* entries : {&list.inputs, &list.outputs})
      for (Entry const& entry : *entries) roots_[lowering::at(entry.buffer)] = port_data() + port_offset(entry);
    for (Entry const& entry : list.fields)
      roots_[lowering::at(entry.buffer)] = static_cast<std::byte*>(field_of(state, entry).data());
    std::int32_t slots = 0;
    for (Step const& step : list.steps) slots = std::max(slots, step.slot + 1);
    flights_.assign(lowering::at(slots), {});
    calls_.resize(list.steps.size());
    for (std::size_t s = 0; s < list.steps.size(); ++s) {
      Operands operands{list.steps[s]};
      for (Ref const& ref : operands.step.reads) operands.reads.push_back(pointer(ref));
      for (Ref const& ref : operands.step.writes) operands.writes.push_back(pointer(ref));
      calls_[s] = calls::bind(operands, reads_kept_operand(list, list.steps[s]) ? options_.packed : nullptr);
    }
    if (options_.profile) profile_ = Profile(list);
    if (options_.poison) plan_poison();
  }
  Executor(exec::Context&, Program&&, State&, ExecutorOptions = {}) = delete;  // the program would be gone
  Executor(Executor const&) = delete;
  Executor& operator=(Executor const&) = delete;

  Program const& program() const noexcept { return program_; }

  /// One run. Inputs keep their values between runs; each must have been set once.
  /// Ranks      all ranks run the same program in the same order.
  /// Blocking   until everything is done, collectives included. No memory is allocated but, once, for packed operands.
  /// Errors     of kernels (a token outside the vocabulary) and of the communicator; what is in flight is cancelled;
  ///            invalid_argument, at the first run, for parameters that were never initialised.
  void run(std::source_location where = std::source_location::current()) {
    require_given(where);
    if (runs_ == 0)
      state_.require_initialised(
          "Executor::run", [&](Field const& field) { return Program::find(program_.list.fields, field.name) >= 0; },
          where);
    waits_ = {};
    oldest_ = 0;
    started_ = 0;
    if (options_.poison) poison_all();
    if (profile_.measures()) profile_.begin_run(exec::now_ns());
    try {
      for (std::size_t s = 0; s < calls_.size(); ++s) {
        if (profile_.measures()) {
          std::int64_t const begin = exec::now_ns();
          execute(s, where);
          profile_.add(s, begin, exec::now_ns());
        } else {
          execute(s, where);
        }
        if (options_.not_finite != nullptr) look(s);
        if (options_.poison)
          for (Dead const& dead : dead_after_[s]) std::memset(dead.memory, 0xff, dead.bytes);
        if (oldest_ < started_) progress();
        if (options_.beside != nullptr) options_.beside->progress();
      }
    } catch (...) {
      for (Flight& flight : flights_)
        if (flight.active) {
          flight.port->cancel(flight.ticket);
          flight.active = false;
        }
      throw;
    }
    ++runs_;
  }

  /// Nanoseconds that the last run was blocked in waits for other ranks: communication that computation did not hide.
  std::int64_t waited_ns() const noexcept { return std::accumulate(waits_.begin(), waits_.end(), std::int64_t{0}); }
  AxisWaits const& waits() const noexcept { return waits_; }
  std::int64_t runs() const noexcept { return runs_; }
  /// Empty without ExecutorOptions::profile.
  Profile const& profile() const noexcept { return profile_; }

 private:
  struct Flight {
    comm::Port::Ticket ticket = 0;
    bool active = false;
    comm::Port* port = nullptr;
  };
  struct Dead {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  std::byte* pointer(Ref const& ref) const {
    if (!ref) return nullptr;
    BufferId const root = program_.list.home(ref.buffer).root;
    Pool const pool = program_.list[root].pool;
    std::byte* const base = pool == Pool::arena          ? options_.workspace->arena.data()
                            : pool == Pool::communicator ? options_.workspace->communicator.data()
                                                         : roots_[lowering::at(root)];
    return base + program_.plan.offset[lowering::at(ref.buffer)] + ref.offset;
  }

  /// What a kernel refuses is told as of who called `run`, beside the line of the model that it belongs to.
  void execute(std::size_t s, std::source_location where) {
    Step const& step = program_.list.steps[s];
    if (calls_[s]) try {
        return calls_[s]->run(context_);
      } catch (Error const& error) {
        Error told = error.at(where);
        if (!step.where.empty() && told.native().empty()) told.with_native(concat("traced at ", step.where));
        throw told;
      }
    comm::Port* const port = ports_[static_cast<std::size_t>(step.mesh_axis)];
    switch (step.kind) {
      case StepKind::all_reduce_start:
        if (port == nullptr) break;
        flights_[lowering::at(step.slot)] = {
            step.scatter ? start_scatter(*port, step) : start_all_reduce(*port, step), true, port};
        started_ = step.slot + 1;
        break;
      case StepKind::all_reduce_wait:
      case StepKind::all_gather_wait:
      case StepKind::reduce_scatter_wait: {
        if (port == nullptr) break;
        Flight& flight = flights_[lowering::at(step.slot)];
        if (flight.active) wait(*port, flight.ticket, step.mesh_axis);
        flight.active = false;
        break;
      }
      case StepKind::all_reduce:
        throw Error(ErrorKind::internal, "graph::Executor", "a reduction was left without a bucket");
      case StepKind::rank:
        generic::store_number(step.writes[0].dtype, pointer(step.writes[0]), 0, port == nullptr ? 0 : port->rank());
        break;
      case StepKind::node_sum: case StepKind::node_barrier: {
        double nothing = 0;
        void* const sum = step.kind == StepKind::node_sum ? static_cast<void*>(pointer(step.writes[0])) : &nothing;
        wait(*options_.node, options_.node->start_all_reduce(sum, 1, DType::float64, comm::PortOp::sum,
                                                             std::source_location::current()),
             MeshAxis::data);
        break;
      }
      default:
        if (is_collective(step.kind)) return collective(port, step);
        throw Error(ErrorKind::internal, "graph::Executor", "a step has no call");
    }
  }
  comm::Port::Ticket start_all_reduce(comm::Port& port, Step const& step) {
    return port.start_all_reduce(pointer(step.reads[0]), sent_elements(step), step.reads[0].dtype,
                                 static_cast<comm::PortOp>(step.operation), std::source_location::current());
  }
  /// In place: of the bucket only this rank's section has a meaning afterwards.
  comm::Port::Ticket start_scatter(comm::Port& port, Step const& step) {
    Ref const& first = step.reads[0];
    BufferId const root = program_.list.home(first.buffer).root;
    auto const size = static_cast<std::int64_t>(size_of(first.dtype));
    std::int64_t const count = program_.list[root].bytes / size / port.size();
    std::byte* const bucket = pointer(first);
    return port.start_reduce_scatter(bucket, bucket + count * size * port.rank(), count, first.dtype,
                                     static_cast<comm::PortOp>(step.operation), std::source_location::current());
  }
  void collective(comm::Port* port, Step const& step) {
    auto const here = std::source_location::current();
    Ref const &x = step.reads[0], &y = step.writes[0];
    std::byte *const from = pointer(x), *const to = pointer(y);
    int const ranks = port == nullptr ? 1 : port->size();
    if (step.kind != StepKind::broadcast && step.root != ranks)
      throw Error(ErrorKind::communication, "graph::Executor",
                  "the program was traced for " + std::to_string(step.root) + " ranks and runs on " +
                      std::to_string(ranks) + ". Trace it again");
    if (port == nullptr) {
      auto const bytes = static_cast<std::size_t>(x.bytes());
      bool const nobody = step.kind == StepKind::send_receive && neighbour(0, -step.by, step.wraps, 1) < 0;
      if (bytes > 0) nobody ? std::memset(to, 0, bytes) : std::memcpy(to, from, bytes);
      return;
    }
    comm::Port::Ticket ticket = 0;
    if (step.kind == StepKind::broadcast) {
      std::memcpy(to, from, static_cast<std::size_t>(x.bytes()));
      ticket = port->start_broadcast(to, y.shape.size(), y.dtype, step.root, here);
    } else if (step.kind == StepKind::all_gather) {
      ticket = port->start_all_gather(from, to, x.shape.size(), x.dtype, here);
    } else if (step.kind == StepKind::all_to_all) {
      ticket = port->start_all_to_all(from, to, x.shape.size() / ranks, x.dtype, here);
    } else if (step.kind == StepKind::send_receive) {
      return send_receive(*port, step, from, to);
    } else {
      ticket = port->start_reduce_scatter(from, to, y.shape.size(), y.dtype,
                                          static_cast<comm::PortOp>(step.operation), here);
    }
    if (step.slot < 0) return wait(*port, ticket, step.mesh_axis);
    flights_[lowering::at(step.slot)] = {ticket, true, port};
    started_ = step.slot + 1;
  }
  void send_receive(comm::Port& port, Step const& step, std::byte* from, std::byte* to) {
    auto const here = std::source_location::current();
    constexpr int tag = 32'766;
    std::int64_t const bytes = step.reads[0].bytes();
    auto const target = static_cast<int>(neighbour(port.rank(), step.by, step.wraps, port.size())),
               source = static_cast<int>(neighbour(port.rank(), -step.by, step.wraps, port.size()));
    if (target == port.rank()) return std::memcpy(to, from, static_cast<std::size_t>(bytes)), void();
    if (source < 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
    std::optional<comm::Port::Ticket> received, sent;
    if (source >= 0 && bytes > 0) received = port.start_receive(to, bytes, source, tag, here);
    if (target >= 0 && bytes > 0) sent = port.start_send(from, bytes, target, tag, here);
    for (auto const& ticket : {received, sent})
      if (ticket) wait(port, *ticket, step.mesh_axis);
  }
  /// What is in flight is not there yet.
  void look(std::size_t s) {
    Step const& step = program_.list.steps[s];
    for (Ref const& result : results_of(step))
      options_.not_finite->look(static_cast<std::int32_t>(s), result, pointer(result));
  }
  void wait(comm::Port& port, comm::Port::Ticket ticket, MeshAxis axis) {
    std::int64_t const begin = exec::now_ns();
    port.wait(ticket);
    waits_[static_cast<std::size_t>(axis)] += exec::now_ns() - begin;
  }
  /// One look at the oldest collective in flight lets all of them progress.
  void progress() {
    while (oldest_ < started_ && !flights_[lowering::at(oldest_)].active) ++oldest_;
    if (oldest_ == started_) return;
    Flight& flight = flights_[lowering::at(oldest_)];
    if (flight.port->test(flight.ticket)) flight.active = false;
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
  State const& state_;
  ExecutorOptions options_;
  std::array<comm::Port*, mesh_axes> ports_{};  // by axis of the mesh; null: one rank along it
  List<std::byte*> roots_;   // of fields, inputs and outputs, by buffer
  List<Owner<calls::Call>> calls_;  // null for collectives
  List<Flight> flights_;
  std::int32_t oldest_ = 0, started_ = 0;
  Profile profile_;
  List<List<Dead>> dead_after_;
  AxisWaits waits_{};
  std::int64_t runs_ = 0;
};

}  // namespace tutti::graph
