// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A node before it has a place in a graph, and how a mistake in it is refused.
///
/// A mistake throws; in a constant expression the call of `refuse` is the compile error, and the compiler prints its
/// line with its sentence, then the user's line. So the sentence stands literally in each call.

#include <tutti/core/error.hpp>
#include <tutti/graph/ir.hpp>

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::graph {

/// A node before it has a place.
struct Draft {
  Op op = Op::constant;
  List<Id> operands;
  List<std::int64_t> integers;
  List<double> reals;
  Type type;  ///< wanted result where it does not follow from the operands: leaves, reshape, convert, broadcasts,
              ///< dynamic_slice
  std::int32_t name = none;
  std::int32_t body = none;
  CustomOperation const* custom = nullptr;
};
constexpr Draft draft(Op op, List<Id> operands, List<std::int64_t> integers = {}, List<double> reals = {},
                      Type const& type = {}) {
  return Draft{op, std::move(operands), std::move(integers), std::move(reals), type};
}

/// Who refuses: an operation, or a function on graphs.
struct Refusing {
  std::string name;
  /// A template, as what it asks: graph/op/table.hpp.
  template <std::same_as<Op> T>
  Refusing(T op) : name(graph::name(op)) {}
  Refusing(char const* function) : name(function) {}
};
[[noreturn]] inline void refuse(std::source_location where, Refusing const& who, ErrorKind kind,
                                std::string const& sentence) {
  throw Error(kind, who.name, sentence, where);
}
[[noreturn]] inline void refuse(std::source_location where, Refusing const& who, std::string const& sentence,
                                Shape const& a) {
  throw Error(ErrorKind::shape, who.name, sentence + " (shape here: " + to_string(a) + ")", where);
}
[[noreturn]] inline void refuse(std::source_location where, Refusing const& who, std::string const& sentence,
                                Shape const& a, Shape const& b) {
  throw Error(ErrorKind::shape, who.name,
              sentence + " (shapes here: " + to_string(a) + " and " + to_string(b) + ")", where);
}
[[noreturn]] inline void refuse(std::source_location where, Refusing const& who, std::string const& sentence, DType a,
                                DType b) {
  throw Error(ErrorKind::dtype, who.name,
              sentence + " (here: " + std::string(tutti::name(a)) + " and " + std::string(tutti::name(b)) + ")", where);
}

}  // namespace tutti::graph
