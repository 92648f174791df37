// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tensors of another element type. The rounding of each element is that of `convert` in core.

#include <tutti/core/convert.hpp>
#include <tutti/tensor/copy.hpp>

#include <cstdint>
#include <source_location>

namespace tutti {

/// A new host tensor with every element converted. Errors: as `convert`; then nothing is returned.
template <Element To, TensorLike From>
Tensor<To, Cpu> convert_elements(From const& from, Rounding rounding = Rounding::exact,
                                 std::source_location where = std::source_location::current()) {
  static_assert(std::same_as<DeviceOf<From>, Cpu>, "tutti: convert_elements works in host memory; use to_host first");
  Tensor<To, Cpu> result(from.shape());
  detail::for_each_piece(detail::as_view(from), result.view(),
                         [&](To* target, ValueOf<From> const* source, std::int64_t count) {
                           for (std::int64_t i = 0; i < count; ++i) target[i] = convert<To>(source[i], rounding, where);
                         });
  return result;
}

}  // namespace tutti
