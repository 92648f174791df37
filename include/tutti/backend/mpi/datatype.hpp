// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `mpi::datatype<T>()`: the MPI datatype of an element, complex number or described struct, for programs that mix
/// MPI's own calls with those of a communicator.

#include <tutti/backend/mpi/at_finalize.hpp>
#include <tutti/backend/mpi/calls.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/wire.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace tutti::mpi {

namespace detail {

template <Element T>
MPI_Datatype element_type() noexcept {
  switch (dtype_of<T>) {
    case DType::character: return MPI_CHAR;
    case DType::byte: return MPI_BYTE;
    case DType::bfloat16: case DType::float16: return MPI_UINT16_T;
    default: return reduction_type(dtype_of<T>);
  }
}

template <class T>
MPI_Datatype type_of();

template <class T>
MPI_Datatype committed(MPI_Datatype type) {
  MPI_Datatype resized = MPI_DATATYPE_NULL;  // so that in arrays of T the next element lies where it lies in C++
  check(MPI_Type_create_resized(type, 0, static_cast<MPI_Aint>(sizeof(T)), &resized), "MPI_Type_create_resized");
  check(MPI_Type_free(&type), "MPI_Type_free");
  check(MPI_Type_commit(&resized), "MPI_Type_commit");
  free_at_finalize<MPI_Type_free>(resized);
  return resized;
}

template <class T>
MPI_Datatype struct_type() {
  constexpr auto count = static_cast<int>(reflect::member_count<T>);
  T const sample{};
  int lengths[count];
  MPI_Aint offsets[count];
  MPI_Datatype types[count];
  int member = 0;
  reflect::for_each_member(sample, [&](std::string_view, auto const& part) {
    lengths[member] = 1;
    offsets[member] = reinterpret_cast<std::byte const*>(&part) - reinterpret_cast<std::byte const*>(&sample);
    types[member++] = type_of<std::remove_cvref_t<decltype(part)>>();
  });
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check(MPI_Type_create_struct(count, lengths, offsets, types, &type), "MPI_Type_create_struct");
  return committed<T>(type);
}

template <class T>
MPI_Datatype array_type() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(static_cast<int>(std::tuple_size_v<T>), type_of<typename T::value_type>(), &type),
        "MPI_Type_contiguous");
  return committed<T>(type);
}

template <class T>
MPI_Datatype type_of() {
  if constexpr (Element<T>) {
    return element_type<T>();
  } else if constexpr (Complex<T>) {
    return sizeof(T) == 8 ? MPI_C_FLOAT_COMPLEX : MPI_C_DOUBLE_COMPLEX;
  } else if constexpr (std::is_enum_v<T>) {
    return element_type<std::underlying_type_t<T>>();
  } else if constexpr (Record<T>) {
    static MPI_Datatype const type = struct_type<T>();
    return type;
  } else {
    static MPI_Datatype const type = array_type<T>();
    return type;
  }
}

}  // namespace detail

/// Moves the described members and nothing else: padding is neither sent nor written. Committed, and kept until
/// MPI_Finalize; not to be freed. 16-bit floats are 16-bit integers: for movement, not for MPI's reductions.
/// Errors   configuration, before MPI is initialised and after it is finalised.
template <class T>
  requires Element<T> || Complex<T> || Record<T>
MPI_Datatype datatype() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0)
    throw Error(ErrorKind::configuration, "mpi::datatype",
                "MPI is not initialised. Make an mpi::Environment first, and ask while it is alive");
  static_assert(comm::is_sendable<T>(),
                "tutti: a datatype is made of members: elements, complex numbers, enumerations, described structs, and "
                "std::arrays of these. One of this struct's is something else");
  return detail::type_of<T>();
}

}  // namespace tutti::mpi
