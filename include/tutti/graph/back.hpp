// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Back`: one node during the reverse pass.

#include <tutti/graph/composites.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace tutti::graph {

class Reverse;

/// One node during the reverse pass.
struct Back {
  Builder& builder;
  Reverse& reverse;
  Id id = none;
  List<Id> operands;
  List<Id> cotangents;  ///< per result; none where nothing depends on it
  Where where = Where::current();

  constexpr Var in(int i) const { return {&builder, operands[static_cast<std::size_t>(i)]}; }
  constexpr int count() const { return static_cast<int>(operands.size()); }
  constexpr Var out() const { return {&builder, id}; }
  constexpr Var out(int i) const { return detail::result(out(), i, where); }
  constexpr bool has_g(int i) const { return cotangents[static_cast<std::size_t>(i)] != none; }
  constexpr Var g(int i = 0) const {
    if (has_g(i)) return {&builder, cotangents[static_cast<std::size_t>(i)]};
    Type const type = builder.graph().type(id, i);
    return constant(builder, 0, type.shape, type.dtype, where);
  }
  constexpr std::int64_t integer(int i = 0) const { return builder.graph().integer(id, i); }
  constexpr List<std::int64_t> integers() const {
    auto const values = builder.graph().integers(id);
    return {values.begin(), values.end()};
  }
  constexpr double real(int i = 0) const { return builder.graph().real(id, i); }
  /// Of an operation of ranks.
  constexpr MeshAxis axis() const { return mesh_axis(builder.graph(), id); }
  constexpr Var make(Op op, std::initializer_list<Var> of) const { return detail::composite(op, of, {}, {}, where); }
  constexpr bool wants(int i) const;
  constexpr void give(int i, Var cotangent) const;
};

}  // namespace tutti::graph
