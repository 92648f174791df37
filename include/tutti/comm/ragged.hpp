// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Ragged<T, Device>`: one block of rows from each rank, of different lengths, one after another.

#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <utility>

namespace tutti {

/// What gather_v, all_gather_v and all_to_all_v return. Move-only. Default constructed it has no blocks: what ranks
/// other than the root get of gather_v.
template <Storable T, Device D = Cpu>
class Ragged {
 public:
  Ragged() = default;
  /// Shapes: values (counts[0] + counts[1] + ..., ...).
  Ragged(Tensor<T, D> values, List<std::int64_t> counts) : values_(std::move(values)), counts_(std::move(counts)) {}

  /// The rows of all ranks, in rank order.
  Tensor<T, D>& values() noexcept { return values_; }
  Tensor<T, D> const& values() const noexcept { return values_; }
  /// Rows of each rank.
  List<std::int64_t> const& counts() const noexcept { return counts_; }
  int blocks() const noexcept { return static_cast<int>(counts_.size()); }

  /// The rows of rank r. Errors: out_of_range.
  TensorView<T, D> block(int r, std::source_location where = std::source_location::current()) {
    std::int64_t const begin = begin_of(r, where);
    return values_.slice(0, begin, begin + counts_[static_cast<std::size_t>(r)], where);
  }
  TensorView<T const, D> block(int r, std::source_location where = std::source_location::current()) const {
    std::int64_t const begin = begin_of(r, where);
    return values_.slice(0, begin, begin + counts_[static_cast<std::size_t>(r)], where);
  }

 private:
  std::int64_t begin_of(int r, std::source_location where) const {
    if (r < 0 || r >= blocks())
      throw Error(ErrorKind::out_of_range, "Ragged::block",
                  concat("block ", r, " does not exist. There are ", blocks()), where);
    std::int64_t begin = 0;
    for (int before = 0; before < r; ++before) begin += counts_[static_cast<std::size_t>(before)];
    return begin;
  }

  Tensor<T, D> values_;
  List<std::int64_t> counts_;
};

}  // namespace tutti
