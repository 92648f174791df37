// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One tensor of a State: its type, what it is to a program, and where it lies.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/view.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>

namespace tutti::graph {

/// One tensor of a State.
struct Field {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  bool parameter = false;  ///< trained; otherwise moments, accumulators
  bool stacked = false;    ///< the first axis counts layers
  bool per_rank = false;   ///< each rank's own: never shared, sent or compared
  bool part = false;       ///< of one tensor, of which ranks of the data axis have a part each
  bool sections = false;   ///< each rank has sections of it, and zeros elsewhere: likewise
  Init init;
  Memory memory;
  std::byte* together = nullptr;  ///< in the place of `memory`: in what ranks have together, see State::share
  std::byte* outside = nullptr;   ///< in the place of `memory`: the caller's, see State::refer

  bool shared() const noexcept { return together != nullptr; }
  void* data() const noexcept { return shared() ? together : outside != nullptr ? outside : memory.data(); }
  std::int64_t bytes() const noexcept { return shape.size() * static_cast<std::int64_t>(size_of(dtype)); }
  /// Errors: dtype.
  template <class T>
  TensorView<T> view(std::source_location where = std::source_location::current()) const {
    if (dtype_of<std::remove_const_t<T>> != dtype)
      throw Error(ErrorKind::dtype, "State",
                  "field '" + name + "' holds " + std::string(tutti::name(dtype)) + ", not " +
                      std::string(tutti::name(dtype_of<std::remove_const_t<T>>)),
                  where);
    return {static_cast<T*>(data()), shape};
  }
};

}  // namespace tutti::graph
