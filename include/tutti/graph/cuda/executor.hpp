// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a program on a CUDA device. Memory and kernel arguments are fixed when an executor is made; the first run
/// launches every kernel, so that products are planned and working memory has grown, and captures the same work; every
/// later run replays the capture: one launch for the whole program, collectives in it where the port has a queue on the
/// device, or one for each stretch between two that the host starts (executor_stretches.hpp, executor_collectives.hpp).

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/graph/cuda/calls.hpp>
#include <tutti/graph/cuda/state.hpp>
#include <tutti/graph/cuda/workspace.hpp>
#include <tutti/graph/ports.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/launch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>

namespace tutti::graph::cuda {

/// Where collectives of a program find their operands.
enum class Reach : std::uint8_t {
  host,    ///< ports take memory of the host: operands pass through pinned memory
  device,  ///< they take memory of this device, as comm::accelerator_port's do
};

struct ExecutorOptions {
  comm::Port* port = nullptr;     ///< of the data axis; null: one rank along it. Outlives the executor
  comm::Port* tensor = nullptr;   ///< likewise of the tensor axis
  Reach reach = Reach::host;      ///< of both
  comm::Port* pipeline = nullptr;  ///< likewise of the pipeline axis, which takes memory of the host
  comm::Port* beside = nullptr;    ///< operations of the caller's own, which move on while `finish` waits
  Shared<Workspace> workspace{};  ///< null: one of its own
  /// Whether a run that ends tells of mistakes and clears the word: of several programs that make one step the last.
  bool forgets_mistakes = true;
  bool capture = true;          ///< false: every run launches kernel by kernel
  bool poison = false;          ///< unwritten memory holds NaN: whatever reads it shows
  bool profile = false;         ///< measure every step, by events; nothing is captured then
  std::span<CustomBody const> bodies{};  ///< of operations from outside of the library
};

/// Bound to a context with its products, a program and a state, all of which must outlive it.
/// Blocking   `run` until results are there. `start` only enqueues: two runs may be under way, so that the device goes
///            from one to the next without waiting for the host; `finish` waits for the older one.
/// Determinism the same program and inputs give the same bits in every run of one device and library version, captured
///            or not.
class Executor : public Ports {
 public:
  /// Errors: invalid_argument (the state lacks a field; a program that was compiled for processors, or divided between
  /// ranks), shape, out_of_memory.
  Executor(Blas& blas, Program const& program, DeviceState& state, ExecutorOptions options = {},
           std::source_location where = std::source_location::current())
      : Ports(program.list),
        blas_(blas),
        program_(program),
        state_(state),
        options_(std::move(options)),
        ports_{options_.port, options_.tensor, options_.pipeline} {
    StepList const& list = program.list;
    for (comm::Port*& port : ports_)
      if (port != nullptr && port->size() == 1) port = nullptr;
    if (list.buffers.empty())
      throw Error(ErrorKind::invalid_argument, "graph::cuda::Executor",
                  "the program is empty: it was moved from, or never compiled. Use the one that it became", where);
    if (program.target != Target::cuda)
      throw Error(ErrorKind::invalid_argument, "graph::cuda::Executor",
                  "the program was compiled for processors. Set CompileOptions::target");
    if (!options_.workspace) {
      Program const* const one[] = {&program};
      options_.workspace = Workspace::of(stream(), one, device_port());
    }
    if (static_cast<std::int64_t>(options_.workspace->arena.bytes()) < program.plan.arena_bytes ||
        options_.workspace->communicator_bytes() < program.plan.communicator_bytes)
      throw Error(ErrorKind::invalid_argument, "graph::cuda::Executor",
                  "the workspace is smaller than the program's plan. Make it with Workspace::of");
    for (Step const& step : list.steps)
      if (step.mesh_axis > MeshAxis::pipeline || step.kind == StepKind::all_to_all ||
          step.kind == StepKind::send_receive)
        throw Error(ErrorKind::unavailable, "graph::cuda::Executor",
                    "the program crosses ranks along another axis than those of data, tensor and pipeline, or by "
                    "all_to_all or send_receive, for which devices have no port. Run it on processors",
                    where);
    for (Step const& step : list.steps)
      if (step.kind == StepKind::node_sum || step.kind == StepKind::node_barrier || step.scatter)
        throw Error(ErrorKind::invalid_argument, "graph::cuda::Executor",
                    "the program divides its updates between ranks, which devices do not. Compile it without a "
                    "Division");
    device_ports_ = tutti::cuda::DeviceMemory(stream(), static_cast<std::size_t>(port_bytes()));
    for (Slot& slot : slots_) {
      slot.memory = tutti::cuda::PinnedMemory(static_cast<std::size_t>(port_bytes()) + sizeof(kernel::cuda::ErrorWord));
      slot.done = tutti::cuda::Event(stream().device());
    }
    roots_.assign(list.buffers.size(), nullptr);
    for (auto const* entries : {&list.inputs, &list.outputs})
      for (Entry const& entry : *entries)
        roots_[lowering::at(entry.buffer)] = static_cast<std::byte*>(device_ports_.data()) + port_offset(entry);
    for (Entry const& entry : list.fields) {
      static_cast<void>(field_of(state.host(), entry));
      roots_[lowering::at(entry.buffer)] = state.data(entry.name);
    }
    for (Entry const& entry : list.copies) {
      DeviceState::Twin& twin = state.copied_twin(entry.name);
      roots_[lowering::at(entry.buffer)] = state.copied(entry.name);
      copied_.push_back(&twin);
    }
    find_writes();
    bind_steps();
    if (options_.profile) {
      profile_ = Profile(list);
      for (Slot& slot : slots_)
        for (std::size_t s = 0; s <= list.steps.size(); ++s)
          slot.marks.push_back(tutti::cuda::Event(stream().device(), tutti::cuda::Event::Timing::on));
    }
  }
  Executor(Blas&, Program&&, DeviceState&, ExecutorOptions = {}) = delete;  // the program would be gone
  Executor(Executor const&) = delete;
  Executor& operator=(Executor const&) = delete;
  /// Waits for runs under way: they use its memory. While an exception passes, other ranks may not come to them.
  ~Executor() {
    try {
      for (; started_ > finished_; ++finished_) {
        Slot& slot = slots_[finished_ % 2];
        if (slot.is_watched && std::uncaught_exceptions() > 0) data_port()->cancel(slot.ticket);
        else if (slot.is_watched) data_port()->wait(slot.ticket);
      }
    } catch (Error const&) {  // NCCL has left the device then, or something else is told elsewhere
    }
    try {
      if (started_ > 0) stream().wait();
    } catch (Error const&) {  // it was lost before
    }
  }

  Program const& program() const noexcept { return program_; }
  /// Whether the host starts its collectives, and `start` therefore waits for them.
  bool led_by_host() const noexcept { return led_by_host_; }

  /// One run. Inputs keep their values between runs; each must have been set once.
  /// Ranks      all ranks run the same program in the same order.
  /// Errors     of kernels (a token outside the vocabulary: nothing is updated then), of the device and of the
  ///            communicator; what is in flight is cancelled.
  void run(std::source_location where = std::source_location::current()) {
    start(where);
    while (started_ > finished_) finish(where);
  }
  /// Enqueues a run with the inputs as they are now. Blocks only for collectives that the host starts, and where two
  /// runs are under way already: until the older one is done, whose outputs are lost if nobody finished it before.
  void start(std::source_location where = std::source_location::current()) {
    require_given(where);
    while (started_ - finished_ >= 2) finish(where);
    tutti::cuda::CurrentDevice const current(stream().device(), where);
    Slot& slot = newest();
    auto* const pinned = static_cast<std::byte*>(slot.memory.data());
    std::memcpy(pinned, port_data(), static_cast<std::size_t>(input_bytes()));
    state_.to_device(where);
    if (writes_state_) state_.device_writes();
    for (DeviceState::Twin* const twin : copied_) renew_copy(*twin);
    tutti::cuda::copy_to_device(stream(), device_ports_.data(), pinned, static_cast<std::size_t>(input_bytes()), where);
    next_wait_ = begun_ = 0;
    sent_.clear();
    if (options_.poison) poison();
    try {
      enqueue_steps(where);
    } catch (...) {
      for (Flight& flight : flights_) {
        if (flight.started) flight.port->cancel(flight.ticket);
        flight = {};
      }
      throw;
    }
    for (DeviceState::Twin* const twin : left_) twin->copy_is_old = true;
    auto const outputs = static_cast<std::size_t>(port_bytes() - input_bytes());
    tutti::cuda::copy_to_host(stream(), pinned + input_bytes(),
                              static_cast<std::byte*>(device_ports_.data()) + input_bytes(), outputs, where);
    tutti::cuda::copy_to_host(stream(), pinned + port_bytes(), context().error_word(), sizeof(kernel::cuda::ErrorWord),
                              where);
    if (options_.forgets_mistakes) context().forget_mistakes(where);
    slot.done.record(stream(), where);
    slot.is_watched = replays_collectives();
    if (slot.is_watched) slot.ticket = queue_->end(total_.dtype, total_.count, slot.done.native(), where);
    ++started_;
  }
  /// Waits for the oldest run under way and makes its outputs those that are read; nothing where there is none.
  /// Errors     what that run met.
  void finish(std::source_location where = std::source_location::current()) {
    if (started_ == finished_) return;
    Slot& slot = slots_[finished_++ % 2];
    if (std::exchange(slot.is_watched, false)) data_port()->wait(slot.ticket);  // within the deadline
    if (options_.beside != nullptr)
      while (!slot.done.done(where)) options_.beside->progress();
    slot.done.wait(where);
    auto const* const pinned = static_cast<std::byte const*>(slot.memory.data());
    std::memcpy(port_data() + input_bytes(), pinned + input_bytes(),
                static_cast<std::size_t>(port_bytes() - input_bytes()));
    kernel::cuda::ErrorWord word;
    std::memcpy(&word, pinned + port_bytes(), sizeof word);
    if (profile_.measures()) add_profile(slot);
    std::array<double, mesh_axes> milliseconds{};
    for (Wait const& wait : slot.waits)
      milliseconds[static_cast<std::size_t>(wait.axis)] +=
          double{tutti::cuda::milliseconds_between(wait.begin, wait.end)};
    for (std::size_t axis = 0; axis < milliseconds.size(); ++axis)
      waits_[axis] = static_cast<std::int64_t>(1e6 * milliseconds[axis]);
    ++runs_;
    if (options_.forgets_mistakes) kernel::cuda::throw_reported(word);
  }

  /// Nanoseconds, by the device's events, between its coming to the results of collectives and its going on, in the
  /// last run that was finished: what it stood still for, and copied.
  AxisWaits const& waits() const noexcept { return waits_; }
  std::int64_t runs() const noexcept { return runs_; }
  /// Empty without ExecutorOptions::profile.
  Profile const& profile() const noexcept { return profile_; }
  /// Kernels, copies and fills that a replayed run launches; 0 before anything was captured.
  std::size_t captured() const noexcept {
    std::size_t total = 0;
    for (Stretch const& stretch : stretches_) total += stretch.graphs[0].size();
    return total;
  }

 private:
  /// Of one collective: the device has come to where its result is needed; the result is there.
  struct Wait {
    tutti::cuda::Event begin, end;
    MeshAxis axis;
  };
  /// A run under way: its inputs, its outputs, its mistake; what it waited for, in the order of the steps.
  struct Slot {
    tutti::cuda::PinnedMemory memory;
    tutti::cuda::Event done;
    List<Wait> waits{};
    List<tutti::cuda::Event> marks{};  ///< between steps, where they are measured
    bool is_watched = false;           ///< its collectives are the device's; their ticket
    comm::Port::Ticket ticket = 0;
  };
  /// Steps between two that the host takes part in. With collectives in it there is a graph for each slot, whose events
  /// it records.
  struct Stretch {
    std::size_t first = 0, last = 0;  // last is not of it
    std::array<tutti::cuda::Graph, 2> graphs;
  };
  /// One that another step waits for: its operand is complete on the device, then on its way, then back.
  struct Flight {
    bool pending = false, started = false;
    std::size_t step = 0;
    comm::Port* port = nullptr;
    comm::Port::Ticket ticket = 0;
  };

  kernel::cuda::Context& context() const noexcept { return blas_.context(); }
  tutti::cuda::Stream const& stream() const noexcept { return context().stream(); }
  /// Of the ranks along an axis; null: one.
  comm::Port* port_of(Step const& step) const noexcept { return ports_[static_cast<std::size_t>(step.mesh_axis)]; }
  comm::Port* data_port() const noexcept { return ports_[static_cast<std::size_t>(MeshAxis::data)]; }
  /// The one whose memory the device reaches, and which it may reach.
  comm::Port* device_port() const noexcept {
    if (options_.reach == Reach::host) return nullptr;
    return data_port() != nullptr ? data_port() : ports_[static_cast<std::size_t>(MeshAxis::tensor)];
  }
  bool reaches_device(Step const& step) const noexcept {
    return options_.reach == Reach::device && step.mesh_axis != MeshAxis::pipeline;
  }

  std::byte* pointer(Ref const& ref) const {
    if (!ref) return nullptr;
    BufferId const root = program_.list.home(ref.buffer).root;
    Pool const pool = program_.list[root].pool;
    std::byte* const base = pool == Pool::arena          ? static_cast<std::byte*>(options_.workspace->arena.data())
                            : pool == Pool::communicator ? options_.workspace->communicator_data()
                                                         : roots_[lowering::at(root)];
    return base + program_.plan.offset[lowering::at(ref.buffer)] + ref.offset;
  }

  /// Fields that the program writes: of those that it leaves a copy of behind, the copy is old afterwards.
  void find_writes();
  void renew_copy(DeviceState::Twin& twin) {
    if (!std::exchange(twin.copy_is_old, false)) return;
    auto const count = static_cast<std::int64_t>(twin.copy.bytes() / sizeof(bfloat16));
    namespace device = kernel::cuda::detail;
    device::RetypeArguments const arguments{1, count, count, count, twin.memory.data(), twin.copy.data()};
    kernel::cuda::launch_own(stream(), {.grid = dim3(device::blocks_of(count, 256)), .block = dim3(256)},
                             device::retype<float, bfloat16>, arguments);
  }

  /// Calls, and the stretches between those that the host makes.
  void bind_steps();
  bool is_of_host(std::size_t s) const noexcept { return !calls_[s] && queue_ == nullptr; }
  /// The device starts collectives by itself if it can start all of the program, once they are captured.
  void find_queue();
  comm::PortCall port_call(Step const& step) const;
  static comm::Port::Ticket start_call(comm::Port& port, comm::PortCall const& call, std::source_location where);
  Owner<Call> copy_of(Step const& step, Operands const& operands) const;
  [[noreturn]] static void refuse_ranks(Step const& step, int ranks) {
    throw Error(ErrorKind::communication, "graph::cuda::Executor",
                concat("the program was traced for ", step.root, " ranks and runs on ", ranks, ". Trace it again"));
  }

  void enqueue_steps(std::source_location where);
  void launch(std::size_t s, std::source_location where) {
    if (calls_[s]) {
      calls_[s]->run(blas_);
      if (profile_.measures()) newest().marks[s + 1].record(stream(), where);
    } else {
      take_part(s, where);
      progress();
    }
  }
  bool replays_collectives() const noexcept { return queue_ != nullptr && captured_with_.has_value(); }
  void capture(std::source_location where);
  /// A collective that the device starts, into the capture: beside what follows it up to its wait.
  void enqueue(std::size_t s, Slot& slot, std::source_location where);

  /// A step of the host, in the order of the steps.
  void take_part(std::size_t s, std::source_location where);
  /// Bytes from the start of the communicator's pool to the end of what is sent.
  std::int64_t end_of_bucket(Step const& step) const {
    return bucket_offset(step) + static_cast<std::int64_t>(operand_bytes(step));
  }
  std::int64_t bucket_offset(Step const& step) const {
    return pointer(step.reads[0]) - options_.workspace->communicator_data();
  }
  /// The operand's place in pinned memory: of a bucket that in the pool.
  std::byte* staged(Step const& step) const;
  /// The result's: behind the operand, but for buckets.
  std::byte* staged_result(Step const& step) const;
  static std::size_t operand_bytes(Step const& step);
  /// Places in pinned memory from `first` on for collectives that other steps wait for; those that are not on their way
  /// at the same time may have the same. Returns where they end.
  std::int64_t place_staged(std::int64_t first);
  void send(std::size_t s, std::source_location where);
  /// Starts the first that was sent and not begun. Every rank starts those of both axes in the order of the steps:
  /// devices may make one after the other, and ranks of different orders would wait for each other.
  void begin_next();
  void begin_all(std::source_location where);
  /// Starts what has come.
  void progress();
  void await(Step const& step, std::source_location where);
  /// Of the run that is being started.
  Slot& newest() noexcept { return slots_[started_ % 2]; }
  Wait const& next_wait() { return newest().waits[next_wait_++]; }
  void collective(Step const& step, std::source_location where);

  void poison();
  void add_profile(Slot const& slot);

  Blas& blas_;
  Program const& program_;
  DeviceState& state_;
  ExecutorOptions options_;
  std::array<comm::Port*, mesh_axes> ports_;  // by axis of the mesh; null: one rank along it
  tutti::cuda::DeviceMemory device_ports_;
  std::array<Slot, 2> slots_;
  List<std::byte*> roots_;          // of fields, inputs and outputs, by buffer
  List<DeviceState::Twin*> copied_, left_;  // whose copy is read; whose field is written without it
  List<Owner<Call>> calls_;         // null for what the host takes part in
  List<Stretch> stretches_;
  List<Flight> flights_;                        // by slot
  List<std::size_t> sent_;                      // their slots, in the order of the steps, of this run
  std::size_t begun_ = 0;                       // of these
  List<tutti::cuda::Event> events_, arrivals_;  // of flights: the operand is complete; of the device's own, the result
  comm::PortQueue* queue_ = nullptr;            // of collectives that are captured
  comm::PortCall total_;                        // what stands for all of them
  tutti::cuda::Stream copies_;
  tutti::cuda::PinnedMemory staged_;  // of buckets, and behind them of what else other steps wait for
  List<std::int64_t> staged_at_;      // where in it, by slot
  Memory staging_;                    // of other collectives: operand, result
  std::int64_t staging_bytes_ = 0;
  Profile profile_;
  std::uint64_t started_ = 0, finished_ = 0, enqueued_ = 0;
  std::optional<std::uint64_t> captured_with_;  // the version of working memory
  std::size_t next_wait_ = 0;  // of the run that is being started
  bool writes_state_ = false, led_by_host_ = false;
  std::int64_t runs_ = 0;
  AxisWaits waits_{};
};

}  // namespace tutti::graph::cuda

// What follows belongs to the class.
#include <tutti/graph/cuda/executor_collectives.hpp>
#include <tutti/graph/cuda/executor_stretches.hpp>
