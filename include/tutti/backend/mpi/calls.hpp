// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The calls of MPI that take counts, with 64-bit counts. Where mpi.h declares the `_c` functions of MPI-4 they are
/// used, told by asking for the function and not by a version number; elsewhere counts above the limit are expressed
/// by derived types (movement) or split (reductions).

#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/checked.hpp>

#include <mpi.h>

#include <climits>
#include <cstdint>
#include <utility>

namespace tutti::mpi {

template <class Count>
concept LargeCountCalls = requires(Count n, void* p, MPI_Request* request) {
  MPI_Ibcast_c(p, n, MPI_BYTE, 0, MPI_COMM_WORLD, request);
  MPI_Iallreduce_c(p, p, n, MPI_BYTE, MPI_SUM, MPI_COMM_WORLD, request);
};
inline constexpr bool has_large_counts = LargeCountCalls<MPI_Count>;
/// Counts above this one take the other path; tests lower it.
inline constexpr std::int64_t default_count_limit = has_large_counts ? INT64_MAX : INT_MAX;

/// `n` bytes as (count, type): plain bytes up to the limit, above it one element of a type of that size.
class Bytes {
 public:
  Bytes(std::int64_t n, std::int64_t limit) : count_(n) {
    if (n <= limit) return;
    std::int64_t const whole = n / limit;
    MPI_Datatype block = MPI_DATATYPE_NULL;
    MPI_Datatype blocks = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(limit), MPI_BYTE, &block), "MPI_Type_contiguous");
    check(MPI_Type_contiguous(checked_cast<int>(whole), block, &blocks), "MPI_Type_contiguous");
    int lengths[2] = {1, static_cast<int>(n % limit)};
    MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(whole * limit)};
    MPI_Datatype types[2] = {blocks, MPI_BYTE};
    check(MPI_Type_create_struct(2, lengths, offsets, types, &type_), "MPI_Type_create_struct");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    MPI_Type_free(&block);
    MPI_Type_free(&blocks);
    count_ = 1;
    owned_ = true;
  }
  Bytes(Bytes const&) = delete;
  Bytes& operator=(Bytes const&) = delete;
  /// Operations that were started with the type keep it alive.
  ~Bytes() {
    if (owned_) MPI_Type_free(&type_);
  }
  MPI_Count count() const noexcept { return static_cast<MPI_Count>(count_); }
  MPI_Datatype type() const noexcept { return type_; }

 private:
  std::int64_t count_;
  MPI_Datatype type_ = MPI_BYTE;
  bool owned_ = false;
};

// Count is always MPI_Count. It is a template parameter so that the `_c` functions need not be declared.

template <class Count>
int isend(void const* p, Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Isend_c(p, n, type, to, tag, comm, request);
  else return MPI_Isend(p, static_cast<int>(n), type, to, tag, comm, request);
}
template <class Count>
int irecv(void* p, Count n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Irecv_c(p, n, type, from, tag, comm, request);
  else return MPI_Irecv(p, static_cast<int>(n), type, from, tag, comm, request);
}
template <class Count>
int imrecv(void* p, Count n, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Imrecv_c(p, n, type, message, request);
  else return MPI_Imrecv(p, static_cast<int>(n), type, message, request);
}
template <class Count>
int ibcast(void* p, Count n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Ibcast_c(p, n, type, root, comm, request);
  else return MPI_Ibcast(p, static_cast<int>(n), type, root, comm, request);
}
template <class Count>
int igather(void const* from, void* to, Count n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Igather_c(from, n, type, to, n, type, root, comm, request);
  else return MPI_Igather(from, static_cast<int>(n), type, to, static_cast<int>(n), type, root, comm, request);
}
template <class Count>
int iallgather(void const* from, void* to, Count n, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Iallgather_c(from, n, type, to, n, type, comm, request);
  else return MPI_Iallgather(from, static_cast<int>(n), type, to, static_cast<int>(n), type, comm, request);
}
template <class Count>
int iscatter(void const* from, void* to, Count n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Iscatter_c(from, n, type, to, n, type, root, comm, request);
  else return MPI_Iscatter(from, static_cast<int>(n), type, to, static_cast<int>(n), type, root, comm, request);
}
template <class Count>
int ialltoall(void const* from, void* to, Count n, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Ialltoall_c(from, n, type, to, n, type, comm, request);
  else return MPI_Ialltoall(from, static_cast<int>(n), type, to, static_cast<int>(n), type, comm, request);
}
template <class Count>
int ireduce(void const* from, void* to, Count n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
            MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Ireduce_c(from, to, n, type, op, root, comm, request);
  else return MPI_Ireduce(from, to, static_cast<int>(n), type, op, root, comm, request);
}
template <class Count>
int iallreduce(void const* from, void* to, Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Iallreduce_c(from, to, n, type, op, comm, request);
  else return MPI_Iallreduce(from, to, static_cast<int>(n), type, op, comm, request);
}
template <class Count>
int ireduce_scatter(void const* from, void* to, Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    MPI_Request* request) {
  if constexpr (has_large_counts) return MPI_Ireduce_scatter_block_c(from, to, n, type, op, comm, request);
  else return MPI_Ireduce_scatter_block(from, to, static_cast<int>(n), type, op, comm, request);
}

/// Types that MPI reduces itself. 16-bit floats are not among them: the library accumulates them in float.
inline MPI_Datatype reduction_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean: return MPI_C_BOOL;
    case DType::character: return static_cast<char>(-1) < 0 ? MPI_SIGNED_CHAR : MPI_UNSIGNED_CHAR;
    case DType::int8: return MPI_INT8_T;
    case DType::uint8: return MPI_UINT8_T;
    case DType::int16: return MPI_INT16_T;
    case DType::uint16: return MPI_UINT16_T;
    case DType::int32: return MPI_INT32_T;
    case DType::uint32: return MPI_UINT32_T;
    case DType::int64: return MPI_INT64_T;
    case DType::uint64: return MPI_UINT64_T;
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    case DType::byte: case DType::bfloat16: case DType::float16: break;
  }
  return MPI_DATATYPE_NULL;
}
}  // namespace tutti::mpi
