// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Element types of ONNX files.
/// Source  https://onnx.ai/onnx/repo-docs/IR.html

#include <tutti/core/dtype.hpp>

#include <optional>
#include <utility>

namespace tutti::io {

namespace detail {

inline constexpr std::pair<int, DType> onnx_types[] = {
    {1, DType::float32}, {2, DType::uint8},    {3, DType::int8},     {4, DType::uint16},
    {5, DType::int16},   {6, DType::int32},    {7, DType::int64},    {9, DType::boolean},
    {10, DType::float16}, {11, DType::float64}, {12, DType::uint32}, {13, DType::uint64},
    {16, DType::bfloat16}};

/// 0: ONNX has no such elements.
constexpr int onnx_type(DType dtype) noexcept {
  for (auto const& [number, one] : onnx_types)
    if (one == dtype) return number;
  return 0;
}
constexpr std::optional<DType> onnx_dtype(int number) noexcept {
  for (auto const& [one, dtype] : onnx_types)
    if (one == number) return dtype;
  return std::nullopt;
}

}  // namespace detail

}  // namespace tutti::io
