// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The operations of MPI's own reductions: those that it has, and two of ours in place of what it gets wrong. MPICH
/// compares unsigned integers as signed ones in MPI_MIN and MPI_MAX (seen in 4.0.2: the larger of 0 and 4294947905 is
/// 0), so for these every library is given functions.

#include <tutti/backend/mpi/at_finalize.hpp>
#include <tutti/backend/mpi/calls.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>

namespace tutti::mpi {

namespace detail {

template <class T, bool greatest>
void take_extremes(void const* given, void* result, std::int64_t count) noexcept {
  auto const* const in = static_cast<T const*>(given);
  auto* const out = static_cast<T*>(result);
  for (std::int64_t i = 0; i < count; ++i) out[i] = (in[i] > out[i]) == greatest ? in[i] : out[i];
}
template <bool greatest>
void unsigned_extremes(void const* given, void* result, std::int64_t count, MPI_Datatype type) noexcept {
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  switch (bytes) {
    case 1: return take_extremes<std::uint8_t, greatest>(given, result, count);
    case 2: return take_extremes<std::uint16_t, greatest>(given, result, count);
    case 4: return take_extremes<std::uint32_t, greatest>(given, result, count);
    default: return take_extremes<std::uint64_t, greatest>(given, result, count);
  }
}

/// Made once, and freed by MPI_Finalize.
template <bool greatest>
MPI_Op make_unsigned_extreme() {
  MPI_Op op = MPI_OP_NULL;
  if constexpr (has_large_counts) {
    auto const create = [](auto* result) {  // a template: not every library declares the function
      check(MPI_Op_create_c(+[](void* in, void* inout, MPI_Count* count, MPI_Datatype* type) {
        unsigned_extremes<greatest>(in, inout, *count, *type);
      }, 1, result), "MPI_Op_create_c");
    };
    create(&op);
  } else {
    check(MPI_Op_create(+[](void* in, void* inout, int* count, MPI_Datatype* type) {
      unsigned_extremes<greatest>(in, inout, *count, *type);
    }, 1, &op), "MPI_Op_create");
  }
  free_at_finalize<MPI_Op_free>(op);
  return op;
}
template <bool greatest>
MPI_Op unsigned_extreme() {
  static MPI_Op const op = make_unsigned_extreme<greatest>();
  return op;
}

}  // namespace detail

/// For elements that `reduction_type` knows; MPI_OP_NULL for operators that MPI lacks.
inline MPI_Op reduction_op(Operator op, DType dtype) {
  bool const is_unsigned = dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32 ||
                           dtype == DType::uint64 ||
                           (dtype == DType::character && reduction_type(dtype) == MPI_UNSIGNED_CHAR);
  switch (op) {
    case Operator::sum: return MPI_SUM;
    case Operator::prod: return MPI_PROD;
    case Operator::min: return is_unsigned ? detail::unsigned_extreme<false>() : MPI_MIN;
    case Operator::max: return is_unsigned ? detail::unsigned_extreme<true>() : MPI_MAX;
    case Operator::logical_and: return MPI_LAND;
    case Operator::logical_or: return MPI_LOR;
    case Operator::none: case Operator::avg: case Operator::callable: case Operator::logical_xor:
    case Operator::bitwise_and: case Operator::bitwise_or: case Operator::bitwise_xor: case Operator::min_location:
    case Operator::max_location:
      break;
  }
  return MPI_OP_NULL;
}

}  // namespace tutti::mpi
