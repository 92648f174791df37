// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the body of an operation from outside the library gets (graph/custom.hpp).

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/view.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

namespace tutti::graph {

/// Operands and result, contiguous, and the node's reals.
struct CustomArguments {
  struct Memory {
    std::byte* data = nullptr;
    DType dtype = DType::float32;
    Shape shape;
  };
  List<Memory> operands;
  Memory result;
  List<double> reals;

  /// Errors    dtype (T is another type than the tensor's)
  template <class T>
  TensorView<T const> in(int i) const {
    return view<T const>(operands[static_cast<std::size_t>(i)]);
  }
  template <class T>
  TensorView<T> out() const {
    return view<T>(result);
  }

 private:
  template <class T>
  static TensorView<T> view(Memory const& memory) {
    if (memory.dtype != dtype_of<std::remove_const_t<T>>)
      throw Error(ErrorKind::dtype, "graph::CustomArguments",
                  "the tensor is of " + std::string(name(memory.dtype)) + ", asked for as " +
                      std::string(name(dtype_of<std::remove_const_t<T>>)) + ". Let `type` refuse it");
    return TensorView<T>(reinterpret_cast<T*>(memory.data), memory.shape);
  }
};

}  // namespace tutti::graph
