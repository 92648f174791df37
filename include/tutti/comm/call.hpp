// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective call made of its arguments: what a rank can check alone is checked here, at compile time or when it is
/// called.

#include <tutti/comm/call_checks.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/operand_checks.hpp>
#include <tutti/comm/operators.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tutti::comm {

/// From elements to the parts as which they travel.
template <std::int64_t parts>
void scale(Call& call) {
  if constexpr (parts == 1) return;
  call.collective.count *= parts;
  for (std::int64_t& count : call.counts.from) count *= parts;
  for (std::int64_t& count : call.counts.to) count *= parts;
}

/// The call as a value, with shapes, counts, root and overlap checked.
template <Kind kind, class B, class From, class To, class Op>
Call call_of(B const& backend, From const& from, To const& to, Op const& op, int root, Rows rows,
             CallSite const& where) {
  using Device = typename B::Device;
  static_assert(is_here<From, Device> && is_here<To, Device>,
                "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                "communicator's device first");
  constexpr bool collects = kind == Kind::reduce || kind == Kind::gather || kind == Kind::gather_v;
  constexpr bool hands_out = kind == Kind::scatter || kind == Kind::scatter_v;
  // Made for each check: the shortest calls load no number of ranks for a sentence.
  auto const checked = [&] { return CallChecks{name(kind).data(), backend.rank(), backend.size(), where}; };
  int const own = backend.rank();
  if constexpr (rooted(kind)) checked().check_rank("root", root);
  bool const root_here = own == root;
  Call result;
  Collective& made = result.collective;
  made.kind = kind;
  made.root = root;
  made.where = where;
  if constexpr (!std::same_as<To, NoOperand>) {
    constexpr bool in_place = std::same_as<From, NoOperand>;
    if (in_place || !collects || root_here) checked().check_here(to);
    if constexpr (!in_place)
      if (!hands_out || root_here) checked().check_here(from);
    checked().check_target(to);
    using T = typename To::Value;
    made.dtype = wire_dtype<T>;
    made.layout = layout_of<T>();
    made.to = to.wire();
    made.count = to.size();
    made.from = to.wire();
    if constexpr (!std::same_as<From, NoOperand>) {
      static_assert(one_type<From, To> || !To::writable,
                    "tutti: the two buffers of this collective have different element types");
      made.from = from.wire();
      constexpr bool to_counts = kind == Kind::scatter || kind == Kind::reduce_scatter || kind == Kind::scatter_v ||
                                 kind == Kind::reduce_scatter_v || kind == Kind::all_reduce_contributions;
      if constexpr (!to_counts) made.count = from.size();
      if ((!collects && !hands_out) || root_here) {
        if constexpr (has_counts(kind)) check_rows<kind>(checked(), from, to, rows, result, own);
        else check_shapes<kind>(checked(), from, to, made, own);
      }
    }
    if constexpr (reduces(kind)) {
      constexpr bool has_sentence = !one_type<From, To> || !To::writable;  // of its buffers, already
      constexpr bool given = !std::is_same_v<Op, NoOperator> || has_sentence;
      static_assert(given, "tutti: a reduction needs an operator, such as tutti::sum, behind its buffers");
      constexpr bool possible = reducible<T, Op>() || has_sentence;
      static_assert(!std::is_same_v<T, bool> || !NamedOperator<Op> || possible,
                    "tutti: bool is reduced by logical_and, logical_or, logical_xor or a callable. Convert it to an "
                    "integer to count");
      static_assert(std::is_same_v<T, bool> || !NamedOperator<Op> || possible,
                    "tutti: this operator has no meaning for elements of this type. Pass a callable or convert the "
                    "tensor");
      static_assert(
          NamedOperator<Op> || possible || !given,
          "tutti: an operator is one of tutti::sum, prod, min, max, avg, logical_*, bitwise_*, *_location, or "
          "a const callable that takes two elements and returns one");
      if constexpr (!Device::host_accessible)
        static_assert(B::provides(kind, wire_dtype<T>, operator_kind<Op>()),
                      "tutti: this backend cannot reduce elements of this type with this operator");
      constexpr bool by_parts =
          Element<T> || (Complex<T> && (operator_kind<Op>() == Operator::sum || operator_kind<Op>() == Operator::avg));
      using Folded = std::conditional_t<by_parts, WireElement<T>, T>;
      if constexpr (!one_type<From, To>) {
      } else if constexpr (kind == Kind::all_reduce_contributions) made.reduction = tree_reduction_of<Folded>(op);
      else if constexpr (kind == Kind::scan || kind == Kind::exscan) made.reduction = scan_reduction_of<Folded>(op);
      else made.reduction = reduction_of<Folded>(op);
      if constexpr (!by_parts) made.compound_bytes = wire_bytes<T>();
      else scale<wire_parts<T>>(result);
    } else {
      scale<wire_parts<T>>(result);
    }
  }
  if (collects && !root_here) made.to = nullptr;
  if ((hands_out || kind == Kind::broadcast) && !root_here) made.from = nullptr;
  return result;
}

}  // namespace tutti::comm
