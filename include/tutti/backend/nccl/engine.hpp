// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One rank's end of an NCCL communicator, non-blocking: collectives are started and asked for. NCCL itself knows no
/// deadline; whoever waits does, and gives up by aborting the communicator.

#include <tutti/backend/nccl/calls.hpp>
#include <tutti/backend/nccl/config.hpp>
#include <tutti/backend/nccl/error.hpp>
#include <tutti/backend/nccl/memory.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/tally.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/exec/wait.hpp>

#include <nccl.h>

#include <cstdint>
#include <ctime>
#include <exception>
#include <string>
#include <utility>

namespace tutti::nccl {

class Engine {
 public:
  /// A collective in flight.
  struct Call {
    enum Stage : std::uint8_t { waiting, issued, enqueued, complete };
    explicit Call(Cuda device) : event(device.index()) {}
    Stage stage = waiting;
    comm::Collective call;
    cuda::Event event;
    cuda::DeviceMemory scratch;
  };

  /// Ranks      all, with rank 0's id. Returns when all have come; `poll` is called until then and may throw.
  template <class Poll>
  Engine(Cuda device, NcclConfig const& config, ncclUniqueId const& id, int rank, int size, Poll&& poll)
      : device_(device),
        config_(config),
        rank_(rank),
        size_(size),
        stream_(device.index(), cuda::Stream::Priority::high) {
    cuda::CurrentDevice const current(device_.index());
    ncclConfig_t options = NCCL_CONFIG_INITIALIZER;
    options.blocking = 0;
    try {
      check(ncclCommInitRankConfig(&comm_, size, id, rank, &options), "ncclCommInitRankConfig", comm_);
      settle("ncclCommInitRankConfig", poll);
      registry_ = make_shared_owner<Registry>(comm_);
    } catch (...) {
      static_cast<void>(abort());
      throw;
    }
  }
  Engine(Engine const&) = delete;
  Engine& operator=(Engine const&) = delete;
  /// Lets what is enqueued run to its end, for some seconds at most. Where something was given up, or is while an
  /// exception passes, nothing is waited for.
  ~Engine() {
    if (comm_ == nullptr) return;
    try {
      cuda::CurrentDevice const current(device_.index());
      if (calls_.empty() && std::uncaught_exceptions() == 0) {
        registry_->close();
        check(ncclCommFinalize(comm_), "ncclCommFinalize", comm_);
        std::int64_t const end = exec::now_ns() + closing_ns;
        settle("ncclCommFinalize", [&] {
          if (exec::now_ns() > end) throw Error(ErrorKind::timeout, "Nccl", "another rank does not close");
          relax();
        });
        static_cast<void>(ncclCommDestroy(comm_));
        comm_ = nullptr;
        return;
      }
    } catch (...) {  // of a communicator that nobody uses any more
    }
    static_cast<void>(abort());
  }

  Cuda device() const noexcept { return device_; }
  Shared<Registry> const& registry() const noexcept { return registry_; }
  /// Stream of the collectives, for programs that order work of their own behind them.
  cuda::Stream const& stream() const noexcept { return stream_; }
  void begin_after(cuda::Stream const* stream) noexcept { config_.after = stream; }

  /// All ranks start the same calls in the same order.
  Call* start(comm::Collective const& call) {
    check_open();
    if (free_.empty()) {
      calls_.reserve(storage_.size() + 1);
      free_.reserve(storage_.size() + 1);
      storage_.push_back(make_owner<Call>(device_));
      free_.push_back(storage_.back().get());
    }
    Call* const started = free_.back();
    free_.pop_back();
    started->call = call;
    started->stage = Call::waiting;
    calls_.push_back(started);
    try {
      progress();
    } catch (...) {
      static_cast<void>(abort());  // the other ranks may have started it
      remove(started);
      throw;
    }
    return started;
  }
  /// True once it is complete, and the call is given back. Throws what NCCL says of the communicator.
  bool test(Call* call) {
    if (call->stage != Call::complete) progress();
    if (call->stage != Call::complete) return false;
    remove(call);
    return true;
  }
  /// Gives up a call, and with it the communicator: the ranks no longer agree on what was started. True when nothing
  /// runs on the device any more.
  bool abandon(Call* call) noexcept {
    bool const safe = call->stage == Call::complete || abort();
    remove(call);
    return safe;
  }
  /// Whether all that was started has been handed to the device.
  bool settled() {
    progress();
    for (Call const* call : calls_)
      if (call->stage < Call::enqueued) return false;
    return true;
  }
  /// Once that is so: `stream` goes on after it.
  void begin_enqueued(cudaStream_t stream) {
    check_open();
    cuda::CurrentDevice const current(device_.index());
    if (handed_.native() == nullptr) handed_ = cuda::Event(device_.index());
    handed_.record(stream_);
    cuda::check(cudaStreamWaitEvent(stream, handed_.native(), 0), "cudaStreamWaitEvent");
  }
  /// Puts the call between two events, which may belong to a capture: then it is captured. NCCL takes it beside its
  /// caller, and nothing else until it has.
  template <class Poll>
  void enqueue(comm::Collective const& call, cudaEvent_t after, cudaEvent_t done, Poll&& poll) {
    check_open();
    cuda::CurrentDevice const current(device_.index());
    try {
      cuda::check(cudaStreamWaitEvent(stream_.native(), after, 0), "cudaStreamWaitEvent");
      if (call.count != 0) Calls(comm_, stream_, rank_, size_).enqueue(call, nullptr);
      settle("Nccl", poll);
      cuda::check(cudaEventRecord(done, stream_.native()), "cudaEventRecord");
    } catch (...) {
      static_cast<void>(abort());  // the other ranks may have taken it
      throw;
    }
  }
  /// What is started from now on begins behind `done`.
  void end_enqueued(cudaEvent_t done) {
    check_open();
    cuda::check(cudaStreamWaitEvent(stream_.native(), done, 0), "cudaStreamWaitEvent");
  }
  /// Whether the device has passed it.
  bool enqueued_done(cudaEvent_t done) {
    progress();
    cudaError_t const state = cudaEventQuery(done);
    if (state == cudaErrorNotReady) return false;
    cuda::check(state, "cudaEventQuery");
    return true;
  }
  /// Gives up what was enqueued, and the communicator with it; true when the device has left all of it.
  bool abandon_enqueued() noexcept { return abort(); }
  std::string awaiting(Call const* call) const {
    return concat("NCCL has not completed ", comm::describe(call->call), call->stage == Call::enqueued
                      ? ", which all ranks have made, on this rank's device"
                      : ", which waits for earlier ones");
  }

  /// Memory that this rank has registered. What was started before is enqueued first: NCCL takes no other calls until
  /// then.
  template <class Poll>
  Storage<Cuda> allocate_registered(std::size_t bytes, Poll&& poll) {
    check_open();
    settle("Nccl", poll);
    return Registry::allocate(registry_, device_, bytes);
  }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  /// Ranks      all. Where it fails the communicator is aborted: other ranks may be further.
  template <class Poll>
  Storage<Cuda> allocate_symmetric(std::size_t bytes, Poll&& poll) {
    check_open();
    settle("Nccl", poll);
    Storage<Cuda> memory = Registry::unregistered(registry_, device_, bytes);
    try {
      Registry::make_window(registry_, memory, bytes, [&] { settle("ncclCommWindowRegister", poll); });
    } catch (...) {
      if (!abort())
        static_cast<void>(new Storage<Cuda>(std::move(memory)));  // never freed: the device may still use it
      throw;
    }
    return memory;
  }
#endif

  /// Polls until NCCL has done what it does beside its callers.
  template <class Poll>
  void settle(char const* call, Poll&& poll) {
    for (;;) {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
      check(state, call, comm_);
      if (state != ncclInProgress) return;
      poll();
    }
  }
  void check_open() const {
    if (comm_ == nullptr)
      throw Error(ErrorKind::revoked, "Nccl",
                  "the NCCL communicator was aborted when an operation failed. Make a new communicator");
  }

 private:
  static constexpr std::int64_t closing_ns = 10'000'000'000;
  static constexpr std::int64_t aborting_ns = 5'000'000'000;

  static void relax() noexcept {
    timespec const time{0, 50'000};
    ::nanosleep(&time, nullptr);
  }

  void progress() {
    check_open();
    cuda::CurrentDevice const current(device_.index());
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    check(state, "Nccl", comm_);
    for (Call* call : calls_) {
      if (state == ncclInProgress) break;  // nothing may be called before NCCL has enqueued the last call
      if (call->stage == Call::waiting) {
        issue(*call);
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        check(state, "Nccl", comm_);
      }
      if (call->stage == Call::issued && state == ncclSuccess) {
        call->event.record(stream_);
        call->stage = Call::enqueued;
      }
    }
    for (Call* call : calls_) {
      if (call->stage == Call::complete) continue;
      if (call->stage != Call::enqueued || !call->event.done()) break;
      call->scratch = cuda::DeviceMemory();
      call->stage = Call::complete;
    }
  }
  void issue(Call& call) {
    comm::Collective const& made = call.call;
    bool const exchange = made.kind == comm::Kind::all_to_all || made.kind == comm::Kind::all_to_all_v;
    std::int64_t const bytes = comm::contributed_bytes(made, size_);
    if (exchange && made.from == made.to && bytes != 0)
      call.scratch = cuda::DeviceMemory(stream_, static_cast<std::size_t>(bytes));
    begin_after_producer();
    call.stage = Call::issued;
    if (comm::has_counts(made.kind) || made.count != 0)
      Calls(comm_, stream_, rank_, size_).enqueue(made, call.scratch.data());
    comm::Tally::count(made.wire, comm::Algorithm::library, bytes, received_bytes(made));
  }
  /// What the program has put on its stream, which may write what is sent.
  void begin_after_producer() {
    if (config_.after == nullptr) return;
    if (produced_.native() == nullptr) produced_ = cuda::Event(device_.index());
    produced_.record(*config_.after);
    stream_.wait_for(produced_);
  }
  std::int64_t received_bytes(comm::Collective const& call) const noexcept {
    std::int64_t elements = call.count * (comm::takes_blocks(call.kind) ? size_ : 1);
    for (std::int64_t const count : call.to_counts) elements += count;
    return call.to == nullptr ? 0 : elements * call.element_bytes();
  }

  /// True when the device has left all that was enqueued.
  bool abort() noexcept {
    if (comm_ == nullptr) return aborted_;
    try {
      cuda::CurrentDevice const current(device_.index());
      static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
      if (registry_ != nullptr) registry_->lose();
      std::int64_t const end = exec::now_ns() + aborting_ns;
      while (!(aborted_ = stream_.idle()) && exec::now_ns() < end) relax();
    } catch (...) {  // a device that has failed works no more
      aborted_ = true;
    }
    return aborted_;
  }
  void remove(Call* call) noexcept {
    calls_.erase_if([&](Call const* other) { return other == call; });
    call->scratch = cuda::DeviceMemory();
    free_.push_back(call);
  }

  Cuda device_;
  NcclConfig config_;
  int rank_;
  int size_;
  cuda::Stream stream_;
  ncclComm_t comm_ = nullptr;
  bool aborted_ = true;
  Shared<Registry> registry_;
  cuda::Event produced_, handed_;
  List<Owner<Call>> storage_;
  List<Call*> free_;
  List<Call*> calls_;  // in flight, in the order in which they were started
};

}  // namespace tutti::nccl
