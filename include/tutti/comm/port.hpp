// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A communicator without its type: what a graph needs of one. `comm::port(communicator)` makes it, for buffers in host
/// memory, and `comm::accelerator_port(communicator)` for those on its device; the graph layer sees only this.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace tutti::comm {

/// Reductions that graphs and trainers need; each one more is compiled into every program that has a port.
enum class PortOp : std::uint8_t { sum, min, max, avg };

/// A collective as a value; counts as those of Port.
struct PortCall {
  enum class Kind : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter };
  Kind kind{};
  DType dtype{};
  std::int64_t count = 0;
  void const* from = nullptr;
  void* to = nullptr;  ///< of all_reduce and broadcast the same as `from`
  PortOp op = PortOp::sum;
  int root = 0;
};

/// Collectives that the device itself starts and waits for, between events, so that they can be part of captured work:
/// the host takes no part from `begin` to the completion of what `end` returned. Streams and events are those of the
/// device's own runtime (cudaStream_t, cudaEvent_t).
///
/// A run is `begin`, work of one stream with `enqueue` among it or a replay of such work that was captured, `end`. What
/// `enqueue` captures is not compared between ranks: the same program has run before with calls of Port, which are.
/// Ranks      all, the same calls in the same order, in runs that begin in the same order.
class PortQueue {
 public:
  virtual bool takes(PortCall const& call) const noexcept = 0;
  /// Returns when what was started before has been handed to the device, within the communicator's deadline;
  /// `stream` goes on after it.
  virtual void begin(void* stream, std::source_location where) = 0;
  /// The call begins behind `after`, which was recorded, and `done` is recorded behind it. Blocks as long as the
  /// library needs to take it, not for the device.
  virtual void enqueue(PortCall const& call, void* after, void* done, std::source_location where) = 0;
  /// Of `total` elements in all: a ticket of the port, complete when the device has passed `done` and every rank is
  /// known to have made the same run. What is started from now on begins behind `done`, which outlives the ticket.
  virtual std::uint64_t end(DType dtype, std::int64_t total, void* done, std::source_location where) = 0;

 protected:
  ~PortQueue() = default;
};

/// Operations are started in the same order on every rank; several may be in flight. A ticket is valid until `test`
/// returned true for it or it was cancelled.
/// Ranks      every rank starts the same collectives in the same order; of a message two take part.
/// Blocking   `start_*` and `test` do not block; `wait` does, within the communicator's deadline.
/// Errors     everything throws `Error` as the communicator does.
class Port {
 public:
  using Ticket = std::uint64_t;

  virtual ~Port() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// In place on `count` elements of a floating type or a 32- or 64-bit signed integer. The memory belongs to the
  /// operation until it is done.
  virtual Ticket start_all_reduce(void* data, std::int64_t count, DType dtype, PortOp op,
                                  std::source_location where) = 0;
  virtual Ticket start_broadcast(void* data, std::int64_t count, DType dtype, int root, std::source_location where) = 0;
  /// `from` has `count` elements, `to` count * size().
  virtual Ticket start_all_gather(void const* from, void* to, std::int64_t count, DType dtype,
                                  std::source_location where) = 0;
  /// `from` has count * size() elements, `to` `count`. Where `to` is part rank() of `from`, as on all ranks then,
  /// what the other parts hold afterwards is not known.
  virtual Ticket start_reduce_scatter(void const* from, void* to, std::int64_t count, DType dtype, PortOp op,
                                      std::source_location where) = 0;

  /// `from` and `to` have count * size() elements: part r of `from` becomes part rank() of rank r's `to`.
  virtual Ticket start_all_to_all(void const* from, void* to, std::int64_t count, DType dtype,
                                  std::source_location where) = 0;

  /// A message of `bytes` bytes to or from another rank; those of one pair and tag (0 to 32767) arrive in order.
  /// Errors: shape, where a message of another size comes.
  virtual Ticket start_send(void const* data, std::int64_t bytes, int to, int tag, std::source_location where) = 0;
  virtual Ticket start_receive(void* data, std::int64_t bytes, int from, int tag, std::source_location where) = 0;

  /// Null where only the host starts collectives.
  virtual PortQueue* queue() noexcept { return nullptr; }

  /// True once the operation is complete; also gives every operation in flight a chance to progress.
  virtual bool test(Ticket ticket) = 0;
  /// Gives operations in flight a chance to progress.
  virtual void progress() {}
  /// Returns when it is complete.
  virtual void wait(Ticket ticket) = 0;
  /// Returns when every rank has called it.
  virtual void barrier(std::source_location where) {
    double nothing = 0;
    wait(start_all_reduce(&nothing, 1, DType::float64, PortOp::sum, where));
  }
  /// Gives up an operation: the memory stays valid for the communicator until it is drained.
  virtual void cancel(Ticket ticket) noexcept = 0;

  /// Memory that all ranks of the node can reach, or private memory where there is none; freed with `release`.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// One block that all ranks have together, each at an address of its own; 64-byte aligned, contents indeterminate;
  /// every rank releases it. Null on all ranks where they share no memory, or too little.
  /// Ranks all, with the same size. Blocking.
  virtual void* share(std::size_t, std::source_location) { return nullptr; }
};

}  // namespace tutti::comm
