// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the pools of a graph hold: nodes with their operations and types, and what is listed of parameters, states,
/// outputs and updates.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::exec {
class Context;
}

namespace tutti::graph {

/// Index of a node in its graph. Operands come before their users: ids are a topological order.
using Id = std::int32_t;
inline constexpr Id none = -1;

/// How a parameter or state starts.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double deviation = 0;  ///< of normal

  friend constexpr bool operator==(Init const&, Init const&) = default;
};
constexpr Init zeros() noexcept { return {}; }
constexpr Init ones() noexcept { return {Init::Kind::ones, 0}; }
constexpr Init normal(double deviation) noexcept { return {Init::Kind::normal, deviation}; }

/// What the ranks that train together make of a state which a run updates.
enum class StateUpdate : std::uint8_t {
  replicated,  ///< the new value is the same on all ranks; one that is not is refused
  averaged,    ///< the new value is the average over ranks of theirs
  per_rank,    ///< each rank has its own, which no broadcast or comparison touches
  part,        ///< each rank has a part of one tensor, as it has of the parameter to which the state belongs
};

struct Type {
  DType dtype = DType::float32;
  Replications replication;
  Shape shape;

  friend constexpr bool operator==(Type const&, Type const&) = default;
};

/// Part of a pool.
struct Range {
  std::int32_t first = 0, count = 0;
};

template <class T>
constexpr std::span<T const> part(List<T> const& pool, Range range) noexcept {
  return {pool.data() + range.first, static_cast<std::size_t>(range.count)};
}

struct Back;
struct CustomArguments;
namespace detail {
struct Operands;
}
namespace naive {
struct Call;
}

/// An operation from outside of the library; graph/custom.hpp makes it of a type.
struct CustomOperation {
  std::string_view name;
  Type (*type)(detail::Operands const&) = nullptr;
  bool has_gradient = false;
  void (*gradient)(Back const&) = nullptr;
  std::vector<double> (*reference)(naive::Call const&) = nullptr;
  void (*run)(exec::Context&, CustomArguments const&) = nullptr;  ///< on processors
  std::uint32_t updates = 0;  ///< bit i: operand i, a state that nothing else in the graph uses, changes in place
};

struct Node {
  Op op = Op::constant;
  Range operands;           ///< of Graph::operands
  Range integers;           ///< of Graph::integers; meaning: the comment at Op
  Range reals;              ///< of Graph::reals
  Range types;              ///< of Graph::types, one per result
  std::int32_t name = none;  ///< of leaves: index into Graph::names
  std::int32_t body = none;  ///< of repeat: index into Graph::bodies
  std::int32_t file = none;  ///< Graph::source: index into Graph::names; not part of equality
  std::int32_t line = 0;
  CustomOperation const* custom = nullptr;  ///< of Op::custom
};

struct Parameter {
  Id node = none;
  Init init;
  /// The first axis is the layer of a Stack: repeat hands slices of it to its body.
  bool stacked = false;
};

struct Output {
  std::int32_t name = none;
  Id node = none;
};

/// A parameter or state that a run of the program overwrites. Every other use of `target` in the graph reads the value
/// from before the run.
struct Update {
  Id target = none, value = none;
};

}  // namespace tutti::graph
