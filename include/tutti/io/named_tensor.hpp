// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A tensor as files know it: a name, an element type as data, a shape, and where the bytes lie.

#include <tutti/core/dtype.hpp>
#include <tutti/tensor/view.hpp>

#include <cstddef>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::io {

/// A reference; the memory must outlive it.
struct NamedTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  void const* data = nullptr;

  std::size_t bytes() const {
    return static_cast<std::size_t>(checked_multiply(shape.size(), static_cast<std::int64_t>(size_of(dtype))));
  }
};

/// Errors: shape, unless the view is contiguous.
template <class T>
NamedTensor named(std::string name, TensorView<T> view, std::source_location where = std::source_location::current()) {
  if (!view.contiguous())
    throw Error(ErrorKind::shape, "io::named",
                "tensor '" + name + "' of shape " + to_string(view.shape()) + " is not contiguous. Clone it first",
                where);
  return {std::move(name), dtype_of<std::remove_const_t<T>>, view.shape(), view.data()};
}

}  // namespace tutti::io
