// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contracts of elementwise chains and of the structural primitives: what the graph executor runs where no composite
/// stands.

#include <tutti/core/dtype.hpp>
#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tutti::kernel {

/// A function of elements: its number in the table of functions with which an interpreter of chains is instantiated
/// (kernel/elementwise_functions.hpp). Made from the enumerator that names it there.
struct ElementwiseOp {
  std::uint8_t number = 0;

  constexpr ElementwiseOp() noexcept = default;
  template <class Name>
  requires std::is_enum_v<Name>
  constexpr ElementwiseOp(Name name) noexcept : number(static_cast<std::uint8_t>(name)) {}
  friend constexpr bool operator==(ElementwiseOp, ElementwiseOp) noexcept = default;
};

/// Registers are numbered: inputs first, then one per instruction.
struct ElementwiseInstruction {
  ElementwiseOp op{};
  std::int16_t a = -1, b = -1, c = -1;
  double value = 0;
};
/// Strides in elements of the common shape; 0 broadcasts.
struct ElementwiseInput {
  void const* data = nullptr;
  DType dtype = DType::float32;
  std::array<std::int64_t, Shape::max_rank> strides{};
};
/// Contiguous, of the common shape.
struct ElementwiseOutput {
  std::int16_t source = -1;  ///< register
  void* data = nullptr;
  DType dtype = DType::float32;
};

/// Computes  every instruction for every element of `shape`, in tiles that stay in L1.
/// Aliasing  an output may be a contiguous input of the same dtype.
/// Numerics  fp32 registers (integers and bool up to 2^24 are exact in them; wider integer chains are not elementwise
/// work);
///           float64 inputs or outputs make the chain run in double, and so does `double_precision`. Functions within 4
///           ulp or 1e-7 absolute.
/// Limits    16 inputs, 64 instructions, 8 outputs.
struct Elementwise {
  Shape shape;
  std::span<ElementwiseInput const> inputs;
  std::span<ElementwiseInstruction const> instructions;
  std::span<ElementwiseOutput const> outputs;
  bool double_precision = false;
};

/// Computes  out = sum or max over the axes whose bit is set in `axes`; out is contiguous over the kept axes.
/// Numerics  fp32 accumulation in row-major order in blocks, independent of the number of threads. Max of nothing is
/// -inf.
struct Reduce {
  Shape shape;
  std::array<std::int64_t, Shape::max_rank> strides{};
  unsigned axes = 0;
  bool maximum = false;
  float const* x = nullptr;
  float* out = nullptr;
};

/// Strided copy of `element_size`-byte elements: transposes, slices, pads and concatenations are copies between strided
/// boxes.
struct StridedCopy {
  Shape shape;
  std::int64_t element_size = 4;
  void const* from = nullptr;
  std::array<std::int64_t, Shape::max_rank> from_strides{};
  void* to = nullptr;
  std::array<std::int64_t, Shape::max_rank> to_strides{};
};

}  // namespace tutti::kernel
