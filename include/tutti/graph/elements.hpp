// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Elements whose type is known at run time only: on processors and, as functions of constant expressions, in kernels
/// of devices.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace tutti::graph::generic {

/// Element as an integer, modulo 2^64; booleans are 0 and 1.
constexpr std::int64_t integer_at(DType dtype, void const* data, std::int64_t index) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
    case DType::byte:
    case DType::character: return static_cast<std::uint8_t const*>(data)[index];
    case DType::int8: return static_cast<std::int8_t const*>(data)[index];
    case DType::int16: return static_cast<std::int16_t const*>(data)[index];
    case DType::uint16: return static_cast<std::uint16_t const*>(data)[index];
    case DType::int32: return static_cast<std::int32_t const*>(data)[index];
    case DType::uint32: return static_cast<std::uint32_t const*>(data)[index];
    case DType::int64: return static_cast<std::int64_t const*>(data)[index];
    case DType::uint64: return static_cast<std::int64_t>(static_cast<std::uint64_t const*>(data)[index]);
    case DType::bfloat16: return static_cast<std::int64_t>(float(static_cast<bfloat16 const*>(data)[index]));
    case DType::float16: return static_cast<std::int64_t>(float(static_cast<float16 const*>(data)[index]));
    case DType::float32: return static_cast<std::int64_t>(static_cast<float const*>(data)[index]);
    case DType::float64: return static_cast<std::int64_t>(static_cast<double const*>(data)[index]);
  }
  return 0;
}
/// The same for what counts rows: unsigned ones above the largest signed number are that.
constexpr std::int64_t index_at(DType dtype, void const* data, std::int64_t index) {
  std::int64_t const value = integer_at(dtype, data, index);
  return dtype == DType::uint64 && value < 0 ? INT64_MAX : value;
}
constexpr double number_at(DType dtype, void const* data, std::int64_t index) {
  switch (dtype) {
    case DType::bfloat16: return double{float(static_cast<bfloat16 const*>(data)[index])};
    case DType::float16: return double{float(static_cast<float16 const*>(data)[index])};
    case DType::float32: return double{static_cast<float const*>(data)[index]};
    case DType::float64: return static_cast<double const*>(data)[index];
    case DType::uint64: return static_cast<double>(static_cast<std::uint64_t const*>(data)[index]);
    default: return static_cast<double>(integer_at(dtype, data, index));
  }
}
constexpr std::int64_t added(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
/// Integers wrap to their width.
constexpr void store_integer(DType dtype, void* data, std::int64_t index, std::int64_t value) {
  switch (size_of(dtype)) {
    case 1:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(dtype == DType::boolean ? value != 0 : value);
      return;
    case 2: static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(value); return;
    case 4: static_cast<std::uint32_t*>(data)[index] = static_cast<std::uint32_t>(value); return;
    case 8: static_cast<std::uint64_t*>(data)[index] = static_cast<std::uint64_t>(value); return;
    default: return;
  }
}
/// Requires   an integer type that holds the whole part of `value`
constexpr std::int64_t as_integer(DType dtype, double value) {
  return dtype == DType::uint64 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(value))
                                : static_cast<std::int64_t>(value);
}
constexpr void store_number(DType dtype, void* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::bfloat16: static_cast<bfloat16*>(data)[index] = bfloat16(static_cast<float>(value)); return;
    case DType::float16: static_cast<float16*>(data)[index] = float16(static_cast<float>(value)); return;
    case DType::float32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::float64: static_cast<double*>(data)[index] = value; return;
    case DType::boolean: store_integer(dtype, data, index, value != 0); return;
    default: store_integer(dtype, data, index, as_integer(dtype, value)); return;
  }
}

/// The maximum of none.
inline std::int64_t lowest_integer(DType dtype) {
  return with_dtype(dtype, [](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>)
      return static_cast<std::int64_t>(std::numeric_limits<decltype(zero)>::lowest());
    else return std::int64_t{0};
  });
}

/// Whether chains of integers can compute it.
constexpr bool is_integer_function(kernel::ElementwiseOp op) noexcept {
  bool found = false;
  kernel::with_function<ElementwiseFunctions>(op, [&]<class Body>() {
    std::uint64_t const x = 0;
    found = Body::arity == 0 || requires { Body::integer(x); } || requires { Body::integer(x, x); } ||
            requires { Body::integer(x, x, x); };
  });
  return found;
}
/// Errors: unavailable (a function that integers do not have).
inline void require_integer_functions(std::span<kernel::ElementwiseInstruction const> instructions) {
  for (kernel::ElementwiseInstruction const& in : instructions)
    if (!is_integer_function(in.op))
      throw Error(ErrorKind::unavailable, "graph::Executor",
                  "this function is not defined for integers. Convert to float32 first");
}
/// Modulo 2^64; what is divided by zero is zero. `Register` is std::uint64_t or std::int64_t, `value` a constant's.
/// Requires   is_integer_function of the operation
template <class Body, class Register>
constexpr Register compute_integer(std::int64_t value, Register a, Register b, Register c) {
  if constexpr (Body::arity == 0) return static_cast<Register>(value);
  else if constexpr (requires { Body::integer(a); }) return static_cast<Register>(Body::integer(a));
  else if constexpr (requires { Body::integer(a, b); }) return static_cast<Register>(Body::integer(a, b));
  else if constexpr (requires { Body::integer(a, b, c); }) return static_cast<Register>(Body::integer(a, b, c));
  else return a;
}

}  // namespace tutti::graph::generic
