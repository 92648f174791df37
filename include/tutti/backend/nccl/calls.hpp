// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective as calls of NCCL on a stream. Nothing here waits.

#include <tutti/backend/nccl/datatype.hpp>
#include <tutti/backend/nccl/error.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace tutti::nccl {

/// Calls of one group begin together when it ends. An error inside is told after the end, which must come in any case.
class GroupCalls {
 public:
  GroupCalls() { check(ncclGroupStart(), "ncclGroupStart"); }
  GroupCalls(GroupCalls const&) = delete;
  GroupCalls& operator=(GroupCalls const&) = delete;
  ~GroupCalls() {
    if (open_) static_cast<void>(ncclGroupEnd());
  }
  void add(ncclResult_t code, char const* call) {
    if (code_ != ncclSuccess || code == ncclSuccess || code == ncclInProgress) return;
    code_ = code;
    call_ = call;
  }
  void end() {
    open_ = false;
    ncclResult_t const code = ncclGroupEnd();
    check(code_, call_);
    check(code, "ncclGroupEnd");
  }

 private:
  bool open_ = true;
  ncclResult_t code_ = ncclSuccess;
  char const* call_ = "";
};

/// Enqueues one collective on `stream`, of a kind and type that `makes` grants. `scratch` is device memory of the size
/// of `from`, where all_to_all works in place.
class Calls {
 public:
  Calls(ncclComm_t comm, cuda::Stream const& stream, int rank, int size) noexcept
      : comm_(comm), stream_(stream.native()), copies_(&stream), rank_(rank), size_(size) {}

  void enqueue(comm::Collective const& call, void* scratch) {
    using comm::Kind;
    call_ = &call;
    from_ = static_cast<std::byte const*>(call.from);
    to_ = static_cast<std::byte*>(call.to);
    if (scratch != nullptr) {
      copy(scratch, from_, comm::contributed_bytes(call, size_));
      from_ = static_cast<std::byte const*>(scratch);
    }
    bool const root_here = rank_ == call.root;
    auto const bytes = static_cast<std::size_t>(call.block_bytes());
    auto const count = static_cast<std::size_t>(call.count);
    ncclDataType_t type = ncclUint8;
    ncclRedOp_t op = ncclSum;
    static_cast<void>(element_type(call.dtype, type));
    static_cast<void>(reduction_operator(call.reduction.op, op));
    switch (call.kind) {
      case Kind::broadcast:
        check(ncclBroadcast(root_here ? from_ : to_, to_, bytes, ncclUint8, call.root, comm_, stream_),
              "ncclBroadcast", comm_);
        break;
      case Kind::reduce:
        check(ncclReduce(from_, root_here ? to_ : nullptr, count, type, op, call.root, comm_, stream_), "ncclReduce",
              comm_);
        break;
      case Kind::all_reduce:
        check(ncclAllReduce(from_, to_, count, type, op, comm_, stream_), "ncclAllReduce", comm_);
        break;
      case Kind::reduce_scatter:
        check(ncclReduceScatter(from_, to_, count, type, op, comm_, stream_), "ncclReduceScatter", comm_);
        break;
      case Kind::all_gather:
        check(ncclAllGather(from_, to_, bytes, ncclUint8, comm_, stream_), "ncclAllGather", comm_);
        break;
      case Kind::reduce_scatter_v: reduce_blocks(type, op); break;
      case Kind::all_gather_v: broadcast_blocks(); break;
      case Kind::gather:
      case Kind::gather_v: exchange(root_here ? none : call.root, root_here ? everybody : none); break;
      case Kind::scatter: case Kind::scatter_v:
        exchange(root_here ? everybody : none, root_here ? none : call.root);
        break;
      default: exchange(everybody, everybody);
    }
  }

 private:
  static constexpr int none = -1;
  static constexpr int everybody = -2;

  struct Part {
    std::int64_t at;
    std::int64_t bytes;
  };
  /// Block r of a buffer that holds one for each rank, or all of one that holds a single block.
  Part part(PerRank counts, bool blocked, int r) const noexcept {
    std::int64_t const element = call_->element_bytes();
    if (counts.empty()) return {blocked ? r * call_->block_bytes() : 0, call_->block_bytes()};
    std::int64_t before = 0;
    for (int other = 0; other < r; ++other) before += counts[other];
    return {before * element, counts[r] * element};
  }
  Part of_from(int r) const noexcept {
    return part(call_->from_counts, comm::gives_blocks(call_->kind), r);
  }
  Part of_to(int r) const noexcept { return part(call_->to_counts, comm::takes_blocks(call_->kind), r); }

  void copy(void* to, void const* from, std::int64_t bytes) {
    if (to != from) cuda::copy_on_device(*copies_, to, from, static_cast<std::size_t>(bytes));
  }
  /// Blocks to one rank, to all, or to none, and from as many; this rank's own is copied.
  void exchange(int to, int from) {
    bool const own = to == everybody || from == everybody;
    if (own) copy(to_ + of_to(rank_).at, from_ + of_from(rank_).at, of_to(rank_).bytes);
    GroupCalls group;
    for (int step = 1; step < size_; ++step) {  // each rank begins with another peer
      int const next = (rank_ + step) % size_;
      int const last = (rank_ + size_ - step) % size_;
      Part const out = of_from(next);
      Part const in = of_to(last);
      if ((to == everybody || to == next) && out.bytes != 0)
        group.add(ncclSend(from_ + out.at, static_cast<std::size_t>(out.bytes), ncclUint8, next, comm_, stream_),
                  "ncclSend");
      if ((from == everybody || from == last) && in.bytes != 0)
        group.add(ncclRecv(to_ + in.at, static_cast<std::size_t>(in.bytes), ncclUint8, last, comm_, stream_),
                  "ncclRecv");
    }
    group.end();
  }
  void broadcast_blocks() {
    GroupCalls group;
    for (int r = 0; r < size_; ++r) {
      Part const block = of_to(r);
      if (block.bytes == 0) continue;
      std::byte* const to = to_ + block.at;
      group.add(ncclBroadcast(r == rank_ ? from_ : to, to, static_cast<std::size_t>(block.bytes), ncclUint8, r, comm_,
                              stream_),
                "ncclBroadcast");
    }
    group.end();
  }
  void reduce_blocks(ncclDataType_t type, ncclRedOp_t op) {
    GroupCalls group;
    for (int r = 0; r < size_; ++r) {
      Part const block = of_from(r);
      if (block.bytes == 0) continue;
      group.add(ncclReduce(from_ + block.at, r == rank_ ? to_ : nullptr,
                           static_cast<std::size_t>(block.bytes / call_->element_bytes()), type, op, r, comm_, stream_),
                "ncclReduce");
    }
    group.end();
  }

  ncclComm_t comm_;
  cudaStream_t stream_;
  cuda::Stream const* copies_;
  int rank_;
  int size_;
  comm::Collective const* call_ = nullptr;
  std::byte const* from_ = nullptr;
  std::byte* to_ = nullptr;
};

}  // namespace tutti::nccl
