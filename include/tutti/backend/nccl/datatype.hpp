// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which collectives NCCL makes, and its names for their element types and operators.

#include <tutti/comm/collective.hpp>

#include <nccl.h>

#include <cstdint>

namespace tutti::nccl {

/// Of elements that are reduced. False where NCCL has no such type.
inline bool element_type(DType dtype, ncclDataType_t& type) noexcept {
  switch (dtype) {
    case DType::int8: type = ncclInt8; return true;
    case DType::uint8: type = ncclUint8; return true;
    case DType::int32: type = ncclInt32; return true;
    case DType::uint32: type = ncclUint32; return true;
    case DType::int64: type = ncclInt64; return true;
    case DType::uint64: type = ncclUint64; return true;
    case DType::float16: type = ncclFloat16; return true;
    case DType::bfloat16: type = ncclBfloat16; return true;
    case DType::float32: type = ncclFloat32; return true;
    case DType::float64: type = ncclFloat64; return true;
    default: return false;
  }
}

inline bool reduction_operator(Operator op, ncclRedOp_t& native) noexcept {
  switch (op) {
    case Operator::sum: native = ncclSum; return true;
    case Operator::prod: native = ncclProd; return true;
    case Operator::min: native = ncclMin; return true;
    case Operator::max: native = ncclMax; return true;
    case Operator::avg: native = ncclAvg; return true;
    default: return false;
  }
}

/// Whether NCCL makes the call: the same answer on all ranks that make the same one. Movement is of bytes, so of every
/// type. Not reduced there: types and operators that it lacks; averages of integers, which it rounds otherwise than
/// `avg`; and, unless `narrow` says so, sums, products and averages of 16-bit floats, which it rounds at every step.
inline bool makes(comm::Collective const& call, bool narrow) noexcept {
  using comm::Kind;
  switch (call.kind) {
    case Kind::broadcast: case Kind::gather: case Kind::all_gather: case Kind::scatter: case Kind::all_to_all:
    case Kind::gather_v: case Kind::all_gather_v: case Kind::scatter_v: case Kind::all_to_all_v: return true;
    case Kind::reduce: case Kind::all_reduce: case Kind::reduce_scatter: case Kind::reduce_scatter_v: break;
    default: return false;
  }
  ncclDataType_t type{};
  ncclRedOp_t native{};
  Operator const op = call.reduction.op;
  if (call.compound_bytes != 0 || !element_type(call.dtype, type) || !reduction_operator(op, native)) return false;
  if (op == Operator::min || op == Operator::max) return true;
  bool const is_narrow = call.dtype == DType::float16 || call.dtype == DType::bfloat16;
  return is_narrow ? narrow : op != Operator::avg || is_floating(call.dtype);
}

}  // namespace tutti::nccl
