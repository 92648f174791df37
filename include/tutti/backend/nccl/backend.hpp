// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `NcclOn<Host>`: collectives between GPUs by NCCL, beside a backend of the host that does everything else.
///
/// NCCL moves and reduces device memory. It compares no calls, knows no tags, probes, callables, scans or deadlines,
/// and cannot tell who is missing. All that the ranks need a transport of the host's memory for, which `Host` is: Mpi,
/// or Threads with one thread for each GPU. It carries the id by which NCCL's communicators find each other, compares
/// the calls, carries the revoke word and the places where ranks wait, and makes what NCCL lacks, through pinned
/// memory.

#include <tutti/backend/nccl/config.hpp>
#include <tutti/backend/nccl/datatype.hpp>
#include <tutti/backend/nccl/engine.hpp>
#include <tutti/comm/communicator.hpp>
#include <tutti/comm/decorator.hpp>
#include <tutti/comm/device_choice.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/exec/wait.hpp>

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// Ranks      of a communicator on `Host` with as many GPUs; several on one where NCCL allows it.
/// By NCCL    broadcast, gather, all_gather, scatter, all_to_all with their _v forms, of every type; reduce,
///            all_reduce, reduce_scatter and reduce_scatter_v by sum, prod, min, max of 8-, 32- and 64-bit integers and
///            of floats, and avg of floats; of 16-bit floats sums, products and averages only with
///            `NcclConfig::narrow_sums`.
/// By the host   messages, scans, callables, logical and bitwise operators, other types, all_reduce_contributions, _v
///            collectives whose counts are found out; and everything on host memory.
/// Determinism   NCCL's sums have the same bits on all ranks and in every run of one layout. They are not in rank
///            order, and its averages multiply by 1 / P beforehand.
template <Backend Host>
class NcclOn : public comm::Decorator<Host> {
  using Base = comm::Decorator<Host>;
  using Base::inner_;

 public:
  using Accelerator = Cuda;

  class Operation {
   public:
    Operation() = default;
    Operation(Operation&& other) noexcept
        : host_(std::move(other.host_)), call_(std::exchange(other.call_, nullptr)) {}
    Operation& operator=(Operation&& other) noexcept {
      host_ = std::move(other.host_);
      call_ = std::exchange(other.call_, nullptr);
      return *this;
    }

   private:
    friend NcclOn;
    explicit Operation(typename Host::Operation host) noexcept : host_(std::move(host)) {}
    explicit Operation(nccl::Engine::Call* call) noexcept : call_(call) {}
    typename Host::Operation host_;
    nccl::Engine::Call* call_ = nullptr;
  };

  /// Ranks      all of `host`, which nobody else uses, each with its device. Blocks, at most `start_seconds`.
  /// Errors     unavailable: NCCL is older than its header. communication: what NCCL says; several ranks on one device,
  ///            where it does not allow that. timeout: a rank does not come.
  explicit NcclOn(Host host, Cuda device, NcclConfig config = {})
      : Base(std::move(host)), config_(config), version_(nccl::library_version()) {
    engine_ = make_owner<nccl::Engine>(device, config_, exchange_id(), this->rank(), this->size(), Patience(*this));
  }

  /// Of this rank.
  Cuda accelerator() const noexcept { return engine_->device(); }
  /// Whether `start` makes this call on memory of the accelerator: the same answer on all ranks.
  bool accelerates(comm::Collective const& call) const noexcept { return nccl::makes(call, config_.narrow_sums); }
  /// 22809 for 2.28.9.
  int nccl_version() const noexcept { return version_; }
  /// Collectives that are started from now on begin after what this stream, which outlives them, holds then.
  void begin_after(cuda::Stream const& stream) noexcept {
    config_.after = &stream;
    engine_->begin_after(&stream);
  }
  /// Of the collectives.
  cuda::Stream const& stream() const noexcept { return engine_->stream(); }

  /// Device memory that NCCL knows (`ncclMemAlloc`, `ncclCommRegister`). It may outlive the communicator. Local, but
  /// collectives that this rank has started are enqueued first; blocks, at most `start_seconds`.
  /// Errors     out_of_memory; communication of what NCCL says; timeout.
  Storage<Cuda> allocate_registered(std::size_t bytes) {
    return engine_->allocate_registered(bytes, Patience(*this));
  }
  /// Device memory at which all ranks' kernels look directly, where the links allow it.
  /// Ranks      all, with the same size. Blocks, at most `start_seconds`.
  /// Errors     unavailable: the header is older than NCCL 2.27.3.
  Storage<Cuda> allocate_symmetric([[maybe_unused]] std::size_t bytes) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    return engine_->allocate_symmetric(bytes, Patience(*this));
#else
    throw Error(ErrorKind::unavailable, "allocate_symmetric",
                concat("symmetric memory needs NCCL 2.27.3 or later, and this program was built with the header of ",
                       nccl::version_text(NCCL_VERSION_CODE), ". Use allocate_registered"));
#endif
  }

  Operation start(comm::Collective const& call) {
    if (call.purpose == comm::Purpose::reached) {
      check_alive(comm::name(call.kind).data());
      return Operation(engine_->start(call));
    }
    return Operation(inner_.start(call));
  }
  /// See comm/enqueued.hpp. Of a captured collective NCCL keeps its plan as long as the capture lives.
  bool enqueues(comm::Collective const& call) const noexcept { return config_.captures && accelerates(call); }
  bool settled() {
    check_alive("Nccl");
    return engine_->settled();
  }
  void begin_enqueued(void* stream) { engine_->begin_enqueued(static_cast<cudaStream_t>(stream)); }
  void enqueue(comm::Collective const& call, void* after, void* done) {
    engine_->enqueue(call, static_cast<cudaEvent_t>(after), static_cast<cudaEvent_t>(done), Patience(*this));
  }
  void end_enqueued(void* done) { engine_->end_enqueued(static_cast<cudaEvent_t>(done)); }
  bool enqueued_done(void* done) {
    if (engine_->enqueued_done(static_cast<cudaEvent_t>(done))) return true;
    check_alive("Nccl");
    return false;
  }
  bool abandon_enqueued() noexcept { return engine_->abandon_enqueued(); }
  Operation start_comparison(comm::Collective const& call)
    requires comm::ComparesCalls<Host>
  {
    return Operation(inner_.start_comparison(call));
  }
  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    return Operation(inner_.start_send(from, bytes, dtype, to, tag, channel));
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    return Operation(inner_.start_recv(to, bytes, dtype, from, tag, channel));
  }
  Operation start_recv(typename Host::Match& match, void* to, std::int64_t bytes) {
    return Operation(inner_.start_recv(match, to, bytes));
  }
  bool test(Operation& operation) {
    if (operation.call_ == nullptr) return inner_.test(operation.host_);
    if (engine_->test(operation.call_)) {
      operation.call_ = nullptr;
      return true;
    }
    check_alive("test");
    return false;
  }
  MessageInfo received(Operation const& operation) const noexcept { return inner_.received(operation.host_); }
  bool abandon(Operation& operation) noexcept {
    if (operation.call_ == nullptr) return inner_.abandon(operation.host_);
    return engine_->abandon(std::exchange(operation.call_, nullptr));
  }
  bool cancel(Operation& operation) noexcept
    requires comm::CancelsReceives<Host>
  {
    return operation.call_ == nullptr && inner_.cancel(operation.host_);
  }
  std::string awaiting(Operation const& operation) const {
    return operation.call_ == nullptr ? inner_.awaiting(operation.host_) : engine_->awaiting(operation.call_);
  }

  /// Not by ncclCommSplit, which no rank may call while collectives of the parent are under way, as they may be here.
  NcclOn split(int color, int key, List<int> const& members) {
    return NcclOn(inner_.split(color, key, members), accelerator(), config_);
  }

  static constexpr std::string_view name = "nccl";
  /// What "auto" makes of it: before its host's backend where a launcher started processes that have a device each, and
  /// never elsewhere, since more ranks than devices may fail.
  static int priority(comm::BackendInfo const& host, int devices) {
    int const ranks = host.processes ? comm::announced_ranks_on_node() : 0;
    return ranks > 0 && ranks <= devices ? host.priority + 1 : -1;
  }
  /// See comm/factory.hpp.
  static comm::BackendInfo info() {
    comm::BackendInfo const host = Host::info();
    comm::BackendInfo result{.name = std::string(name), .processes = host.processes};
    int devices = 0;
    std::string reason = "the machine has no GPU that CUDA can use, or CUDA_VISIBLE_DEVICES hides it";
    try {
      devices = cuda::device_count();
      if (devices != 0) static_cast<void>(nccl::library_version());
    } catch (Error const& error) {
      devices = 0;
      reason = error.message();
    }
    result.priority = priority(host, devices);
    result.available = devices != 0 && host.available;
    result.text = !host.available ? concat("its ranks are those of ", host.name, ": ", host.text)
                  : devices == 0
                      ? reason
                      : concat("ranks are GPUs, of which this machine has ", devices, ", by way of ", host.name);
    return result;
  }
  /// See tutti::launch. Each rank takes the device of its number on its node.
  template <class F>
  static int launch(int argc, char** argv, F& f, std::source_location where = std::source_location::current()) {
    auto body = [&](Communicator<Host>& outer) {
      Cuda const device(device_of(outer, cuda::device_count()).device);
      auto communicator = decorated<tutti::NcclOn>(outer, device);
      return comm::invoke_main(f, communicator);
    };
    return comm::launch_at<Host>(argc, argv, body, where);
  }

 private:
  /// A wait within the time for making a communicator, which ends when another rank gives up.
  class Patience {
   public:
    explicit Patience(NcclOn& backend) noexcept
        : backend_(&backend),
          backoff_(backend.wait_policy()),
          end_(exec::now_ns() + static_cast<std::int64_t>(backend.config_.start_seconds * 1e9)) {}
    void operator()() {
      backend_->check_alive("Nccl");
      if (exec::now_ns() > end_)
        throw Error(ErrorKind::timeout, "Nccl",
                    concat("the ", backend_->size(), " ranks have not met in NCCL after ",
                           backend_->config_.start_seconds,
                           " s. Look at what the others do and at NCCL_DEBUG=INFO, or raise NcclConfig::start_seconds"))
            .with_rank(backend_->rank());
      backoff_.step();
    }

   private:
    NcclOn* backend_;
    exec::Backoff backoff_;
    std::int64_t end_;
  };

  void check_alive(char const* operation) {
    comm::capability::check_alive(inner_, operation);
  }
  void finish(typename Host::Operation& operation) {
    Patience patience(*this);
    try {
      while (!inner_.test(operation)) patience();
    } catch (...) {
      static_cast<void>(inner_.abandon(operation));
      throw;
    }
  }
  /// Rank 0's id. Nothing else has used these channels yet. A failure of rank 0 travels in its place.
  ncclUniqueId exchange_id() {
    struct Letter {
      ncclUniqueId id{};
      int code = ncclSuccess;
    } letter;
    auto const bytes = static_cast<std::int64_t>(sizeof letter);
    if (this->rank() != 0) {
      auto receive = inner_.start_recv(&letter, bytes, DType::byte, 0, 0, comm::Channel::internal);
      finish(receive);
    } else {
      letter.code = ncclGetUniqueId(&letter.id);
      for (int r = 1; r < this->size(); ++r) {
        auto send = inner_.start_send(&letter, bytes, DType::byte, r, 0, comm::Channel::internal);
        finish(send);
      }
    }
    nccl::check(static_cast<ncclResult_t>(letter.code), "ncclGetUniqueId");
    return letter.id;
  }

  NcclConfig config_;
  int version_;
  Owner<nccl::Engine> engine_;
};

/// Tensors on the device of this rank, in memory that NCCL knows: its collectives need no copies then. Local.
template <Storable T, Backend Host>
Tensor<T, Cuda> registered_tensor(Communicator<NcclOn<Host>>& comm, Shape shape,
                                  std::source_location where = std::source_location::current()) {
  auto const bytes = checked_multiply(shape.size(), sizeof(T), where);
  return Tensor<T, Cuda>(shape, comm.backend().allocate_registered(static_cast<std::size_t>(bytes)));
}
/// The same in a window of all ranks. Ranks: all, with the same shape.
template <Storable T, Backend Host>
Tensor<T, Cuda> symmetric_tensor(Communicator<NcclOn<Host>>& comm, Shape shape,
                                 std::source_location where = std::source_location::current()) {
  auto const bytes = checked_multiply(shape.size(), sizeof(T), where);
  return Tensor<T, Cuda>(shape, comm.backend().allocate_symmetric(static_cast<std::size_t>(bytes)));
}

}  // namespace tutti
