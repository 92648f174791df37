// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Elementwise chains as kernels see them: operands of any type and stride, instructions, four elements a thread.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/activation.hpp>
#include <tutti/kernel/cuda/vector.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::kernel::cuda::detail {

inline constexpr int chain_width = 4;  ///< consecutive elements of one thread

enum class Access : std::uint8_t { contiguous, repeated, strided };

struct ChainInput {
  void const* data;
  std::int64_t strides[Shape::max_rank];
  DType dtype;
  Access access;
  bool vectors;  ///< contiguous, and four elements are one aligned access
  std::uint8_t slot;
};
struct ChainInstruction {
  double value;
  ElementwiseOp op;
  std::uint8_t a, b, c, to;  ///< slots
};
struct ChainOutput {
  void* data;
  DType dtype;
  bool vectors;
  std::uint8_t slot;
};

/// A chain with what is the same for all elements. Passed to kernels by value: 2.7 KB of the 4 that are possible.
struct Chain {
  std::int64_t count;
  std::int64_t extents[Shape::max_rank];
  int rank, inputs, instructions, outputs;
  ChainInput input[ElementwiseLimits::inputs];
  ChainInstruction instruction[ElementwiseLimits::instructions];
  ChainOutput output[ElementwiseLimits::outputs];
};
static_assert(sizeof(Chain) <= 4096);

template <class Real, class T>
__device__ Real element(void const* data, std::int64_t index) {
  T const value = static_cast<T const*>(data)[index];
  if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) return static_cast<Real>(float(value));
  else return static_cast<Real>(value);
}
template <class Real>
__device__ Real load_element(DType dtype, void const* data, std::int64_t index) {
  switch (dtype) {
    case DType::boolean: return element<Real, bool>(data, index);
    case DType::character: return element<Real, char>(data, index);
    case DType::byte: case DType::uint8: return element<Real, std::uint8_t>(data, index);
    case DType::int8: return element<Real, std::int8_t>(data, index);
    case DType::int16: return element<Real, std::int16_t>(data, index);
    case DType::uint16: return element<Real, std::uint16_t>(data, index);
    case DType::int32: return element<Real, std::int32_t>(data, index);
    case DType::uint32: return element<Real, std::uint32_t>(data, index);
    case DType::int64: return element<Real, std::int64_t>(data, index);
    case DType::uint64: return element<Real, std::uint64_t>(data, index);
    case DType::bfloat16: return element<Real, bfloat16>(data, index);
    case DType::float16: return element<Real, float16>(data, index);
    case DType::float32: return element<Real, float>(data, index);
    case DType::float64: return element<Real, double>(data, index);
  }
  return 0;
}
template <class Real>
__device__ void store_element(DType dtype, void* data, std::int64_t index, Real value) {
  auto const put = [&]<class T>(T) { static_cast<T*>(data)[index] = element_of<T>(value); };
  switch (dtype) {
    case DType::boolean: return put(bool{});
    case DType::character: return put(char{});
    case DType::byte: case DType::uint8: return put(std::uint8_t{});
    case DType::int8: return put(std::int8_t{});
    case DType::int16: return put(std::int16_t{});
    case DType::uint16: return put(std::uint16_t{});
    case DType::int32: return put(std::int32_t{});
    case DType::uint32: return put(std::uint32_t{});
    case DType::int64: return put(std::int64_t{});
    case DType::uint64: return put(std::uint64_t{});
    case DType::bfloat16: return put(bfloat16{});
    case DType::float16: return put(float16{});
    case DType::float32: return put(float{});
    case DType::float64: return put(double{});
  }
}

/// Elements [position, position + n) of an operand, n at most four; what is beyond n is 0.
template <class Index, class Real>
__device__ void read_input(Chain const& chain, ChainInput const& input, std::int64_t position, int n,
                           Real (&to)[chain_width]) {
  if (input.access == Access::repeated) {
    Real const value = load_element<Real>(input.dtype, input.data, 0);
#pragma unroll
    for (Real& each : to) each = value;
    return;
  }
  if (input.vectors && n == chain_width) {
    float four[chain_width];
    if (input.dtype == DType::float32) load(static_cast<float const*>(input.data) + position, four);
    else load(static_cast<bfloat16 const*>(input.data) + position, four);
#pragma unroll
    for (int j = 0; j < chain_width; ++j) to[j] = four[j];
    return;
  }
#pragma unroll
  for (int j = 0; j < chain_width; ++j) {
    to[j] = 0;
    if (j >= n) continue;
    std::int64_t offset = position + j;
    if (input.access == Access::strided) {
      Index rest = static_cast<Index>(offset);
      offset = 0;
      for (int axis = chain.rank - 1; axis > 0; --axis) {
        Index const extent = static_cast<Index>(chain.extents[axis]), outer = rest / extent;
        offset += static_cast<std::int64_t>(rest - outer * extent) * input.strides[axis];
        rest = outer;
      }
      offset += static_cast<std::int64_t>(rest) * input.strides[0];
    }
    to[j] = load_element<Real>(input.dtype, input.data, offset);
  }
}

template <class Real>
__device__ void write_output(ChainOutput const& output, std::int64_t position, int n, Real const (&from)[chain_width]) {
  if (output.vectors && n == chain_width) {
    float four[chain_width];
#pragma unroll
    for (int j = 0; j < chain_width; ++j) four[j] = static_cast<float>(from[j]);
    if (output.dtype == DType::float32) store(static_cast<float*>(output.data) + position, four);
    else store(static_cast<bfloat16*>(output.data) + position, four);
    return;
  }
#pragma unroll
  for (int j = 0; j < chain_width; ++j)
    if (j < n) store_element(output.dtype, output.data, position + j, from[j]);
}

/// f.template operator()<Body>() for the body of `op`. It is the same for all threads, so none diverges.
template <class Functions, class F>
__device__ void with_body(ElementwiseOp op, F&& f) {
  switch (op.number) { TUTTI_FUNCTION_CASES }
}

}  // namespace tutti::kernel::cuda::detail
