// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Elements of ONNX tensors: the number of their type, and their bytes.
/// Source  https://onnx.ai/onnx/repo-docs/IR.html, TensorProto.DataType

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/float16.hpp>

#include <string>
#include <type_traits>

namespace tutti::graph::onnx {

/// The number of an element type in ONNX files; 0: there is none.
constexpr int element_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32: return 1;
    case DType::uint8: return 2;
    case DType::int8: return 3;
    case DType::uint16: return 4;
    case DType::int16: return 5;
    case DType::int32: return 6;
    case DType::int64: return 7;
    case DType::boolean: return 9;
    case DType::float16: return 10;
    case DType::float64: return 11;
    case DType::uint32: return 12;
    case DType::uint64: return 13;
    case DType::bfloat16: return 16;
    case DType::character:
    case DType::byte: break;
  }
  return 0;
}

/// Elements of a constant, all of them `value`.
inline std::string number_bytes(DType dtype, double value) {
  std::string bytes;
  with_dtype(dtype, [&](auto of) {
    using T = decltype(of);
    if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T> || std::is_same_v<T, bfloat16> ||
                  std::is_same_v<T, float16>) {
      T stored{};
      if constexpr (std::is_arithmetic_v<T>) stored = static_cast<T>(value);
      else stored = T(static_cast<float>(value));
      bytes.assign(reinterpret_cast<char const*>(&stored), sizeof stored);
    }
  });
  return bytes;
}

}  // namespace tutti::graph::onnx
