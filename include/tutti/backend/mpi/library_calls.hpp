// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective by the library's own non-blocking calls.

#include <tutti/backend/mpi/calls.hpp>
#include <tutti/backend/mpi/operations.hpp>
#include <tutti/comm/collective.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::mpi {

struct LibraryCalls {
  MPI_Comm comm;
  int rank;
  int size;
  std::int64_t limit;  ///< counts above it take the path for large counts

  /// `first` becomes the request, or `parts` those of a reduction in several parts.
  void start(tutti::comm::Collective const& call, MPI_Request& first, std::vector<MPI_Request>& parts) const {
    if (call.wire != nullptr) count(call);
    if (tutti::comm::reduces(call.kind)) return reduce(call, first, parts);
    MPI_Request* const request = &first;
    std::int64_t const block = call.block_bytes();
    bool const root = rank == call.root;
    mpi::Bytes const b(block, limit);
    void const* const own_in_to = static_cast<std::byte*>(call.to) + block * rank;
    void* const own_in_from = static_cast<std::byte*>(const_cast<void*>(call.from)) + block * rank;
    bool const nothing = block == 0;
    switch (call.kind) {
      case tutti::comm::Kind::barrier: check(MPI_Ibarrier(comm, request), "MPI_Ibarrier"); break;
      case tutti::comm::Kind::broadcast:
        check(mpi::ibcast(call.to, b.count(), b.type(), call.root, comm, request), "MPI_Ibcast");
        break;
      case tutti::comm::Kind::gather: {
        void const* const from = root && !nothing && call.from == own_in_to ? MPI_IN_PLACE : call.from;
        check(mpi::igather(from, call.to, b.count(), b.type(), call.root, comm, request), "MPI_Igather");
        break;
      }
      case tutti::comm::Kind::all_gather: {
        void const* const from = !nothing && call.from == own_in_to ? MPI_IN_PLACE : call.from;
        check(mpi::iallgather(from, call.to, b.count(), b.type(), comm, request), "MPI_Iallgather");
        break;
      }
      case tutti::comm::Kind::scatter: {
        void* const to = root && !nothing && call.to == own_in_from ? MPI_IN_PLACE : call.to;
        check(mpi::iscatter(call.from, to, b.count(), b.type(), call.root, comm, request), "MPI_Iscatter");
        break;
      }
      case tutti::comm::Kind::all_to_all:
        check(mpi::ialltoall(call.from, call.to, b.count(), b.type(), comm, request), "MPI_Ialltoall");
        break;
      case tutti::comm::Kind::reduce: case tutti::comm::Kind::all_reduce: case tutti::comm::Kind::reduce_scatter: break;
      case tutti::comm::Kind::scan:
      case tutti::comm::Kind::exscan:
      case tutti::comm::Kind::gather_v:
      case tutti::comm::Kind::all_gather_v:
      case tutti::comm::Kind::scatter_v: case tutti::comm::Kind::reduce_scatter_v: case tutti::comm::Kind::all_to_all_v:
      case tutti::comm::Kind::all_reduce_contributions:
        break;  // derived
    }
  }

 private:
  void count(tutti::comm::Collective const& call) const noexcept {
    using tutti::comm::Kind;
    bool const receives = call.to != nullptr && !(call.kind == Kind::broadcast && rank == call.root);
    bool const blocks =
        call.kind == Kind::gather || call.kind == Kind::all_gather || call.kind == Kind::all_to_all;
    bool const gives = rank == call.root || (call.kind != Kind::broadcast && call.kind != Kind::scatter);
    call.wire[static_cast<int>(tutti::comm::Algorithm::library)].add(
        gives ? contributed_bytes(call, size) : 0, receives ? call.block_bytes() * (blocks ? size : 1) : 0);
  }

  /// In parts of at most the limit. A reduce-scatter above it is a reduction to each rank in turn.
  void reduce(tutti::comm::Collective const& call, MPI_Request& first, std::vector<MPI_Request>& parts) const {
    MPI_Datatype const type = mpi::reduction_type(call.dtype);
    MPI_Op const op = mpi::reduction_op(call.reduction.op, call.dtype);
    auto const element = static_cast<std::int64_t>(size_of(call.dtype));
    auto const* const from = static_cast<std::byte const*>(call.from);
    auto* const to = static_cast<std::byte*>(call.to);
    if (call.kind == tutti::comm::Kind::reduce_scatter && call.count <= limit) {
      bool const to_front = from == to && call.count > 0;
      check(mpi::ireduce_scatter(to_front ? MPI_IN_PLACE : from, to, static_cast<MPI_Count>(call.count), type, op, comm,
                                 &first),
            "MPI_Ireduce_scatter_block");
      return;
    }
    auto const part = [&](std::byte const* in, std::byte* out, std::int64_t n, int root) {
      MPI_Request* const request =
          call.count <= limit ? &first : &parts.emplace_back(MPI_REQUEST_NULL);
      auto const count = static_cast<MPI_Count>(n);
      bool const in_place = in == out && n != 0;
      if (root < 0)
        check(mpi::iallreduce(in_place ? MPI_IN_PLACE : in, out, count, type, op, comm, request), "MPI_Iallreduce");
      else
        check(mpi::ireduce(in_place && rank == root ? MPI_IN_PLACE : in, out, count, type, op, root, comm, request),
              "MPI_Ireduce");
    };
    int const roots = call.kind == tutti::comm::Kind::reduce_scatter ? size : 1;
    for (int r = 0; r < roots; ++r)
      for (std::int64_t at = 0; at == 0 || at < call.count; at += limit) {
        std::int64_t const n = call.count - at < limit ? call.count - at : limit;
        if (call.kind == tutti::comm::Kind::reduce_scatter)
          part(from + (r * call.count + at) * element, r == rank ? to + at * element : nullptr, n, r);
        else
          part(from + at * element, to == nullptr ? nullptr : to + at * element, n,
               call.kind == tutti::comm::Kind::reduce ? call.root : -1);
      }
  }
};

}  // namespace tutti::mpi
