// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The element type of a message, in the bits of MPI's tag above the user's fifteen. MPI libraries compare types
/// neither in what they match nor in what they deliver, and compare tags anyway: this costs nothing. Four bits hold a
/// type's number plus one; 0 is a message that says none.

#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/dtype.hpp>

#include <mpi.h>

#include <cstdint>

namespace tutti::mpi {

inline constexpr int user_tag_bits = 15;
inline constexpr int user_tag_mask = (1 << user_tag_bits) - 1;
inline constexpr int greatest_tag = (1 << (user_tag_bits + 4)) - 1;
static_assert(dtype_count < 16);

constexpr int typed_tag(int tag, DType dtype) noexcept {
  return tag | ((static_cast<int>(dtype) + 1) << user_tag_bits);
}
constexpr int user_tag(int tag) noexcept { return tag & user_tag_mask; }
constexpr int type_code(int tag) noexcept { return (tag >> user_tag_bits) & 15; }

/// Whether the library has tags that large; the standard promises the user's fifteen bits alone.
inline bool tags_hold_types() {
  int found = 0;
  int* greatest = nullptr;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &greatest, &found), "MPI_Comm_get_attr");
  return found != 0 && *greatest >= greatest_tag;
}

inline MessageInfo info_of(MPI_Status& status) noexcept {
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
  MessageInfo info{status.MPI_SOURCE, user_tag(status.MPI_TAG), static_cast<std::int64_t>(bytes)};
  if (int const code = type_code(status.MPI_TAG); code != 0) {
    info.has_dtype = true;
    info.dtype = static_cast<DType>(code - 1);
  }
  return info;
}

/// Finds a message of `from`, or of anybody, with this user's tag and any type but that of `expected`; -1 is any.
inline bool other_type_has_come(MPI_Comm comm, int from, int expected, MPI_Status& status) {
  int const source = from < 0 ? MPI_ANY_SOURCE : from;
  auto const look = [&](int tag) {
    int flag = 0;
    check(MPI_Iprobe(source, tag, comm, &flag, &status), "MPI_Iprobe");
    return flag != 0;
  };
  if (!look(MPI_ANY_TAG)) return false;
  if (user_tag(status.MPI_TAG) == user_tag(expected) && status.MPI_TAG != expected) return true;
  for (int code = 0; code <= dtype_count; ++code)
    if (code != type_code(expected) && look(user_tag(expected) | code << user_tag_bits)) return true;
  return false;
}

}  // namespace tutti::mpi
