// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `comm::port`: a communicator with its type erased, for graphs.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/enqueued.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/port.hpp>
#include <tutti/comm/port_collective.hpp>
#include <tutti/comm/staged.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::comm {
namespace detail {

/// `Place` is where the buffers are: the backend's device or its accelerator.
template <Backend B, Device Place>
class CommunicatorPort final : public Port, private PortQueue {
  static constexpr bool reached = !std::is_same_v<Place, typename B::Device>;
  static constexpr bool enqueues = reached && Enqueues<B>;

 public:
  explicit CommunicatorPort(Shared<Core<B>> core) noexcept : core_(std::move(core)) {}
  ~CommunicatorPort() override {
    while (!jobs_.empty()) cancel(jobs_.back().ticket);
    core_->drain();  // what was cancelled may still use the blocks
  }

  int rank() const noexcept override { return core_->backend.rank(); }
  int size() const noexcept override { return core_->backend.size(); }

  Ticket start_all_reduce(void* data, std::int64_t count, DType dtype, PortOp op, std::source_location where) override {
    return start(port_collective(Kind::all_reduce, data, data, count, dtype, -1, where), op);
  }
  Ticket start_broadcast(void* data, std::int64_t count, DType dtype, int root, std::source_location where) override {
    check_port_rank("broadcast", "root", root, *core_, where);
    return start(port_collective(Kind::broadcast, rank() == root ? data : nullptr, data, count, dtype, root, where));
  }
  Ticket start_all_gather(void const* from, void* to, std::int64_t count, DType dtype,
                          std::source_location where) override {
    return start(port_collective(Kind::all_gather, from, to, count, dtype, -1, where));
  }
  Ticket start_reduce_scatter(void const* from, void* to, std::int64_t count, DType dtype, PortOp op,
                              std::source_location where) override {
    Collective call = port_collective(Kind::reduce_scatter, from, to, count, dtype, -1, where);
    call.consumes = true;
    return start(call, op);
  }
  Ticket start_all_to_all(void const* from, void* to, std::int64_t count, DType dtype,
                          std::source_location where) override {
    return start(port_collective(Kind::all_to_all, from, to, count, dtype, -1, where));
  }

  Ticket start_send(void const* data, std::int64_t bytes, int to, int tag, std::source_location where) override {
    return exchange("send", to, where,
                    [&](TransferJob<B>& job) { job.send(data, bytes, DType::byte, to, tag, where); });
  }
  Ticket start_receive(void* data, std::int64_t bytes, int from, int tag, std::source_location where) override {
    return exchange("recv", from, where,
                    [&](TransferJob<B>& job) { job.receive(data, bytes, DType::byte, from, tag, where); });
  }

  PortQueue* queue() noexcept override { return enqueues ? this : nullptr; }

  bool test(Ticket ticket) override {
    Entry& entry = find(ticket);
    if (!core_->test(*entry.job, entry.where)) return false;
    finish(entry);
    return true;
  }
  void progress() override {
    if (jobs_.empty()) return;
    auto const stay = core_->visit();
    core_->progress();
  }
  void wait(Ticket ticket) override {
    Entry& entry = find(ticket);
    core_->wait(*entry.job, entry.where);
    finish(entry);
  }
  void cancel(Ticket ticket) noexcept override {
    for (auto& entry : jobs_)
      if (entry.ticket == ticket) {
        core_->dismiss(*entry.job);
        core_->adopt(std::move(entry.job));
        return remove(ticket);
      }
  }

  void* allocate(std::size_t bytes) override {
    if constexpr (reached) blocks_.push_back(core_->backend.allocate_registered(bytes));
    else blocks_.push_back(Heap<B>(core_).allocate(bytes));
    return blocks_.back().data();
  }
  void barrier(std::source_location where) override {
    if constexpr (!reached) return Port::barrier(where);
    Collective const call = port_collective(Kind::barrier, nullptr, nullptr, 0, DType::byte, -1, where);
    wait(enlist(make_owner<CollectiveJob<B>>(*core_, call), where));
  }
  void* share([[maybe_unused]] std::size_t bytes, [[maybe_unused]] std::source_location where) override {
    if constexpr (SharesBlocks<B> && !reached) {
      constexpr std::uint64_t none = ~std::uint64_t{0};
      std::uint64_t told[2] = {none, bytes};
      Storage<typename B::Device> block;
      if (rank() == 0) block = core_->backend.share(bytes, told[0]);
      wait(start_broadcast(told, 2, DType::uint64, 0, where));
      if (told[1] != bytes)
        throw Error(ErrorKind::communication, "share",
                    "rank 0 shares " + std::to_string(told[1]) + " bytes, and this rank asks for " +
                        std::to_string(bytes) + ". All ranks must ask for as many",
                    where)
            .with_rank(rank());
      if (told[0] == none) return nullptr;
      if (rank() != 0) block = core_->backend.adopt(told[0], bytes);
      blocks_.push_back(std::move(block));
      return blocks_.back().data();
    } else {
      return nullptr;
    }
  }
  void release(void* memory) noexcept override {
    blocks_.erase_if([&](auto const& block) { return block.data() == memory; });
  }

 private:
  struct Entry {
    Ticket ticket = 0;
    Owner<Job> job;
    std::source_location where;
  };

  bool takes(PortCall const& call) const noexcept override {
    if constexpr (enqueues) {
      try {
        return core_->backend.enqueues(port_collective(call, std::source_location::current()));
      } catch (...) {  // of a type that no port reduces
      }
    }
    return false;
  }
  void begin([[maybe_unused]] void* stream, [[maybe_unused]] std::source_location where) override {
    if constexpr (enqueues) {
      auto const stay = core_->visit("enqueue", where);
      wait(enlist(make_owner<EnqueuedTurn<B>>(*core_), where));
      core_->backend.begin_enqueued(stream);
    }
  }
  void enqueue([[maybe_unused]] PortCall const& call, [[maybe_unused]] void* after, [[maybe_unused]] void* done,
               [[maybe_unused]] std::source_location where) override {
    if constexpr (enqueues) {
      auto const stay = core_->visit("enqueue", where);
      core_->backend.enqueue(port_collective(call, where), after, done);
    }
  }
  std::uint64_t end([[maybe_unused]] DType dtype, [[maybe_unused]] std::int64_t total, [[maybe_unused]] void* done,
                    [[maybe_unused]] std::source_location where) override {
    if constexpr (enqueues) {
      auto const stay = core_->visit("enqueue", where);
      core_->backend.end_enqueued(done);
      PortCall const all{.dtype = dtype, .count = total};
      enlist(make_owner<EnqueuedRun<B>>(*core_, port_collective(all, where), done), where);
    }
    return last_;
  }
  template <class F>
  Ticket exchange(char const* operation, int peer, std::source_location where, F&& begin) {
    if constexpr (reached) {
      throw Error(ErrorKind::unavailable, operation, "messages of a port are of the host's memory", where);
    } else {
      check_port_rank(operation, "rank", peer, *core_, where);
      auto const stay = core_->visit(operation, where);
      Owner<TransferJob<B>> job = make_owner<TransferJob<B>>(*core_, operation);
      try {
        begin(*job);
      } catch (...) {
        job->postpone();  // who waits for it is told
      }
      return enlist(std::move(job), where);
    }
  }
  Ticket start(Collective call, PortOp op) {
    call.reduction = port_reduction(call.dtype, op, call.where);
    return start(call);
  }
  Ticket start(Collective const& call) {
    auto const stay = core_->visit(name(call.kind).data(), call.where);
    return enlist(job_of(call), call.where);
  }
  Ticket enlist(Owner<Job> job, std::source_location where) {
    jobs_.push_back({++last_, std::move(job), where});
    core_->enlist(*jobs_.back().job);
    return last_;
  }
  Owner<Job> job_of(Collective call) {
    if constexpr (reached) {
      Place const device = core_->backend.accelerator();
      if (!core_->backend.accelerates(call))
        return make_owner<StagedJob<B, Place, Place>>(*core_, name(call.kind).data(), device, device,
                                                      [&] { return Call{call, {}}; });
      call.purpose = Purpose::reached;
    }
    return make_owner<CollectiveJob<B>>(*core_, call);
  }
  Entry& find(Ticket ticket) {
    for (auto& entry : jobs_)
      if (entry.ticket == ticket) return entry;
    throw Error(ErrorKind::invalid_argument, "Port",
                "ticket " + std::to_string(ticket) + " is not in flight: it was completed or cancelled before");
  }
  void finish(Entry& entry) noexcept {
    core_->dismiss(*entry.job);
    remove(entry.ticket);
  }
  void remove(Ticket ticket) noexcept {
    jobs_.erase_if([&](Entry const& entry) { return entry.ticket == ticket; });
  }
  Shared<Core<B>> core_;
  Ticket last_ = 0;
  List<Entry> jobs_;
  List<Storage<Place>> blocks_;
};

}  // namespace detail

/// The port may outlive the communicator object; it uses the same operations in flight and the same deadline.
template <Backend B>
Shared<Port> port(Communicator<B>& communicator, std::source_location where = std::source_location::current()) {
  static_assert(B::Device::host_accessible,
                "tutti: graphs run collectives on host memory; this communicator works on another device");
  return make_shared_owner<detail::CommunicatorPort<B, typename B::Device>>(communicator.core(where));
}
/// The same for buffers on the accelerator, of this rank's device; `allocate` gives memory that the backend has
/// registered. What the backend does not make there passes through the host.
template <Backend B>
  requires DeviceDirect<B>
Shared<Port> accelerator_port(Communicator<B>& communicator,
                              std::source_location where = std::source_location::current()) {
  return make_shared_owner<detail::CommunicatorPort<B, typename B::Accelerator>>(communicator.core(where));
}

}  // namespace tutti::comm
