// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which step of a program gives the first NaN or infinity.

#include <tutti/core/concat.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

namespace tutti::graph {

/// What the worst element of a tensor is.
enum class Finite : std::uint8_t { yes, infinite, nan };

/// Of a strided box in memory. Integers are finite.
inline Finite finite(Ref const& box, void const* memory) {
  Finite worst = Finite::yes;
  if (!is_floating(box.dtype) || box.shape.size() == 0) return worst;
  auto const look = [&](std::int64_t at) {
    double const x = box.dtype == DType::float32 ? static_cast<double>(static_cast<float const*>(memory)[at])
                                                 : generic::number_at(box.dtype, memory, at);
    if (!std::isfinite(x)) worst = std::max(worst, std::isnan(x) ? Finite::nan : Finite::infinite);
  };
  if (box.contiguous()) {
    for (std::int64_t at = 0; at < box.shape.size() && worst != Finite::nan; ++at) look(at);
    return worst;
  }
  std::array<std::int64_t, Shape::max_rank> index{};
  for (std::int64_t left = box.shape.size(); left > 0; --left) {
    std::int64_t at = 0;
    for (int axis = 0; axis < box.shape.rank(); ++axis)
      at += index[lowering::at(axis)] * box.strides[lowering::at(axis)];
    look(at);
    for (int axis = box.shape.rank(); axis-- > 0;) {
      if (++index[lowering::at(axis)] < box.shape[axis]) break;
      index[lowering::at(axis)] = 0;
    }
  }
  return worst;
}

/// What an executor finds while it runs: ExecutorOptions::not_finite. A mask of infinities is found as well; what
/// spoils a result is a NaN, or an infinity where there is none.
/// Cost  reads the results of every step once more, in one thread
struct NotFinite {
  std::int32_t nan = -1, infinite = -1;  ///< the first step that gives one; -1: none does

  bool found() const noexcept { return nan >= 0 || infinite >= 0; }
  void look(std::int32_t step, Ref const& result, void const* memory) {
    if (!result || nan >= 0) return;
    Finite const worst = finite(result, memory);
    if (worst == Finite::nan) nan = step;
    if (worst == Finite::infinite && infinite < 0) infinite = step;
  }
  /// "the first NaN comes of log (model.cpp:31, layer 2), behind the first infinity of exp (model.cpp:30, layer 2)".
  /// Of a program that is compiled without fusion, operations have the names that the model calls them by.
  std::string text(StepList const& list) const {
    auto const place = [&](std::int32_t at) {
      Step const& step = list.steps[lowering::at(at)];
      bool const element = step.kind == StepKind::elementwise && !step.instructions.empty();
      std::string text(element ? name(static_cast<Op>(step.instructions.back().op.number)) : name(step.kind));
      std::string where = step.where;
      if (!step.scope.empty()) where += concat(where.empty() ? "" : ", ", "in ", step.scope);
      if (step.layer >= 0) where += concat(where.empty() ? "" : ", ", "layer ", step.layer);
      return where.empty() ? text : concat(text, " (", where, ")");
    };
    if (!found()) return {};
    if (nan < 0) return concat("the first infinity comes of ", place(infinite));
    if (infinite < 0 || infinite >= nan) return concat("the first NaN comes of ", place(nan));
    return concat("the first NaN comes of ", place(nan), ", behind the first infinity of ", place(infinite));
  }
};

}  // namespace tutti::graph
