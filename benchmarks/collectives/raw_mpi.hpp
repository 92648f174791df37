// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The contender `raw`: the blocking call of MPI on MPI_COMM_WORLD, on the same buffers.

#include "halo.hpp"
#include "round.hpp"

#include <mpi.h>

#include <climits>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::bench {

inline void must(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(call) + ": " + text);
}

/// 16-bit floats move as integers and have no reduction.
inline MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::int8: return MPI_INT8_T;
    case DType::uint8: return MPI_UINT8_T;
    case DType::int32: return MPI_INT32_T;
    case DType::uint32: return MPI_UINT32_T;
    case DType::int64: return MPI_INT64_T;
    case DType::uint64: return MPI_UINT64_T;
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    default: return MPI_UINT16_T;
  }
}
inline MPI_Op mpi_op(Op op) {
  switch (op) {
    case Op::sum: return MPI_SUM;
    case Op::prod: return MPI_PROD;
    case Op::min: return MPI_MIN;
    case Op::max: return MPI_MAX;
    case Op::avg:
    case Op::callable: break;
  }
  return MPI_OP_NULL;
}
/// What MPI_Op_create makes of the sum that the caller wrote, for as long as a copy of this is left.
inline std::shared_ptr<MPI_Op> mpi_callable(DType dtype) {
  std::shared_ptr<MPI_Op> const made(new MPI_Op(MPI_OP_NULL), [](MPI_Op* op) {
    if (*op != MPI_OP_NULL) MPI_Op_free(op);
    delete op;
  });
  MPI_User_function* const function = with_type(dtype, [](auto zero) -> MPI_User_function* {
    using T = decltype(zero);
    return [](void* from, void* to, int* count, MPI_Datatype*) {
      auto const plus = [](T a, T b) { return static_cast<T>(a + b); };
      T const* const in = static_cast<T const*>(from);
      T* const out = static_cast<T*>(to);
      for (int i = 0; i < *count; ++i) out[i] = plus(in[i], out[i]);
    };
  });
  must(MPI_Op_create(function, 1, made.get()), "MPI_Op_create");
  return made;
}

inline Call raw_call(Case const& c, int rank) {
  bool const narrow = c.dtype == DType::float16 || c.dtype == DType::bfloat16;
  if (reduces(c.collective) && (narrow || c.op == Op::avg)) return {};
  if (c.op == Op::callable && reduces(c.collective) && c.collective != Collective::all_reduce) return {};
  if (c.count() > INT_MAX) return {};
#ifdef MPICH_VERSION
  // The blocking in-place reduce of MPICH 4.0.2 ends in a segmentation fault above 2 KiB where the root is not rank 0.
  if (c.collective == Collective::reduce && c.in_place && c.root != 0 && c.bytes() > 2048) return {};
#endif
  MPI_Datatype const type = mpi_type(c.dtype);
  MPI_Op const op = mpi_op(c.op);
  int const count = static_cast<int>(c.block), root = c.root;
  bool const in_place = c.in_place, at_root = rank == root;
  auto const in = [c, rank](Slot const& s) { return operands(c, s, rank); };
  MPI_Comm const world = MPI_COMM_WORLD;
  std::vector<int> counts, displacements;
  for (int r = 0; r < c.ranks && is_ragged(c.collective); ++r) {
    bool const exchanges = c.collective == Collective::all_to_all_v;
    counts.push_back(static_cast<int>(exchanges ? c.exchanged(rank, r) : c.rows(r)));
    displacements.push_back(static_cast<int>(exchanges ? c.exchanged_before(rank, r) : c.before(r)));
  }
  int const own = is_ragged(c.collective) ? static_cast<int>(c.rows(rank)) : 0;
  switch (c.collective) {
    case Collective::all_reduce_contributions: return {};  // MPI has none
    case Collective::scan:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Scan(in_place ? MPI_IN_PLACE : o.from, o.to, count, type, op, world), "MPI_Scan");
      };
    case Collective::exscan:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Exscan(in_place ? MPI_IN_PLACE : o.from, o.to, count, type, op, world), "MPI_Exscan");
      };
    case Collective::gather_v:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void const* const from = in_place && at_root ? MPI_IN_PLACE : o.from;
        must(MPI_Gatherv(from, own, type, o.to, counts.data(), displacements.data(), type, root, world), "MPI_Gatherv");
      };
    case Collective::all_gather_v:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void const* const from = in_place ? MPI_IN_PLACE : o.from;
        must(MPI_Allgatherv(from, own, type, o.to, counts.data(), displacements.data(), type, world), "MPI_Allgatherv");
      };
    case Collective::scatter_v:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void* const to = in_place && at_root ? MPI_IN_PLACE : o.to;
        must(MPI_Scatterv(o.from, counts.data(), displacements.data(), type, to, own, type, root, world),
             "MPI_Scatterv");
      };
    case Collective::reduce_scatter_v:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(in_place ? MPI_Reduce_scatter(MPI_IN_PLACE, o.from, counts.data(), type, op, world)
                      : MPI_Reduce_scatter(o.from, o.to, counts.data(), type, op, world),
             "MPI_Reduce_scatter");
      };
    case Collective::all_to_all_v:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Alltoallv(in_place ? MPI_IN_PLACE : o.from, counts.data(), displacements.data(), type, o.to,
                           counts.data(), displacements.data(), type, world),
             "MPI_Alltoallv");
      };
    case Collective::barrier: return [=](Slot const&) { must(MPI_Barrier(world), "MPI_Barrier"); };
    case Collective::broadcast:
      return [=](Slot const& s) { must(MPI_Bcast(in(s).to, count, type, root, world), "MPI_Bcast"); };
    case Collective::reduce:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void const* const from = in_place && at_root ? MPI_IN_PLACE : o.from;
        must(MPI_Reduce(from, o.to, count, type, op, root, world), "MPI_Reduce");
      };
    case Collective::all_reduce:
      if (c.op == Op::callable)
        return [=, own_op = mpi_callable(c.dtype)](Slot const& s) {
          Operands const o = in(s);
          must(MPI_Allreduce(in_place ? MPI_IN_PLACE : o.from, o.to, count, type, *own_op, world), "MPI_Allreduce");
        };
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Allreduce(in_place ? MPI_IN_PLACE : o.from, o.to, count, type, op, world), "MPI_Allreduce");
      };
    case Collective::gather:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void const* const from = in_place && at_root ? MPI_IN_PLACE : o.from;
        must(MPI_Gather(from, count, type, o.to, count, type, root, world), "MPI_Gather");
      };
    case Collective::all_gather:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Allgather(in_place ? MPI_IN_PLACE : o.from, count, type, o.to, count, type, world), "MPI_Allgather");
      };
    case Collective::scatter:
      return [=](Slot const& s) {
        Operands const o = in(s);
        void* const to = in_place && at_root ? MPI_IN_PLACE : o.to;
        must(MPI_Scatter(o.from, count, type, to, count, type, root, world), "MPI_Scatter");
      };
    case Collective::reduce_scatter:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(in_place ? MPI_Reduce_scatter_block(MPI_IN_PLACE, o.from, count, type, op, world)
                      : MPI_Reduce_scatter_block(o.from, o.to, count, type, op, world),
             "MPI_Reduce_scatter_block");
      };
    case Collective::all_to_all:
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Alltoall(in_place ? MPI_IN_PLACE : o.from, count, type, o.to, count, type, world), "MPI_Alltoall");
      };
    case Collective::ping_pong: {
      int const partner = rank ^ 1;
      if (partner >= c.ranks) return [](Slot const&) {};
      if (rank < partner)
        return [=](Slot const& s) {
          Operands const o = in(s);
          must(MPI_Send(o.from, count, type, partner, 0, world), "MPI_Send");
          must(MPI_Recv(o.to, count, type, partner, 0, world, MPI_STATUS_IGNORE), "MPI_Recv");
        };
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Recv(o.to, count, type, partner, 0, world, MPI_STATUS_IGNORE), "MPI_Recv");
        must(MPI_Send(o.to, count, type, partner, 0, world), "MPI_Send");
      };
    }
    case Collective::put: {
      std::shared_ptr<MPI_Win> const window(new MPI_Win(MPI_WIN_NULL), [](MPI_Win* win) {
        if (*win != MPI_WIN_NULL) MPI_Win_free(win);
        delete win;
      });
      void* part = nullptr;
      // Of whole lines: in others that end anywhere MPICH 4.0.2 puts elsewhere than the target reads.
      MPI_Aint const bytes = (c.bytes() + 63) / 64 * 64;
      must(MPI_Win_allocate(bytes, static_cast<int>(c.element()), MPI_INFO_NULL, world, &part, window.get()),
           "MPI_Win_allocate");
      must(MPI_Win_fence(0, *window), "MPI_Win_fence");
      int const next = (rank + 1) % c.ranks;
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Put(o.from, count, type, next, 0, count, type, *window), "MPI_Put");
        must(MPI_Win_fence(0, *window), "MPI_Win_fence");
        std::memcpy(o.to, part, static_cast<std::size_t>(c.bytes()));
      };
    }
    case Collective::halo: {
      if (!has_halo(c.dtype)) return {};
      std::int64_t const row = c.block * c.element(), rows = c.grid_rows() * row;
      return [=](Slot const& s) {
        Operands const o = in(s);
        if (rank > 0)
          must(MPI_Sendrecv(o.from, count, type, rank - 1, 0, o.from - row, count, type, rank - 1, 0, world,
                            MPI_STATUS_IGNORE),
               "MPI_Sendrecv");
        if (rank < c.ranks - 1)
          must(MPI_Sendrecv(o.from + rows - row, count, type, rank + 1, 0, o.from + rows, count, type, rank + 1, 0,
                            world, MPI_STATUS_IGNORE),
               "MPI_Sendrecv");
        if (c.dtype == DType::float64) step_of_heat<double>(c, o, rank);
        else step_of_heat<float>(c, o, rank);
      };
    }
    case Collective::send_recv: {
      int const next = (rank + 1) % c.ranks, previous = (rank + c.ranks - 1) % c.ranks;
      return [=](Slot const& s) {
        Operands const o = in(s);
        must(MPI_Sendrecv(o.from, count, type, next, 0, o.to, count, type, previous, 0, world, MPI_STATUS_IGNORE),
             "MPI_Sendrecv");
      };
    }
  }
  return {};
}
/// With MPI's own sum where the operator is a callable.
inline Call raw_call(Contender contender, Case c, int rank) {
  if (contender == Contender::raw_sum) c.op = Op::sum;
  return raw_call(c, rank);
}

}  // namespace tutti::bench
