// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operators of reductions, and which elements they take.

#include <tutti/comm/located.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/fnv1a.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace tutti {

/// Run-time name of an operator. The values are part of messages' fingerprints: append only.
enum class Operator : std::uint8_t {
  none, sum, prod, min, max, avg, logical_and, logical_or, callable,
  logical_xor, bitwise_and, bitwise_or, bitwise_xor, min_location, max_location
};
inline constexpr int operator_count = 15;

constexpr std::string_view name(Operator op) noexcept {
  switch (op) {
    case Operator::none: return "none";
    case Operator::sum: return "sum";
    case Operator::prod: return "prod";
    case Operator::min: return "min";
    case Operator::max: return "max";
    case Operator::avg: return "avg";
    case Operator::logical_and: return "logical_and";
    case Operator::logical_or: return "logical_or";
    case Operator::callable: return "callable";
    case Operator::logical_xor: return "logical_xor";
    case Operator::bitwise_and: return "bitwise_and";
    case Operator::bitwise_or: return "bitwise_or";
    case Operator::bitwise_xor: return "bitwise_xor";
    case Operator::min_location: return "min_location";
    case Operator::max_location: return "max_location";
  }
  return "unknown";
}

struct Sum { static constexpr Operator kind = Operator::sum; };
struct Prod { static constexpr Operator kind = Operator::prod; };
struct Min { static constexpr Operator kind = Operator::min; };
struct Max { static constexpr Operator kind = Operator::max; };
struct Avg { static constexpr Operator kind = Operator::avg; };
struct LogicalAnd { static constexpr Operator kind = Operator::logical_and; };
struct LogicalOr { static constexpr Operator kind = Operator::logical_or; };
struct LogicalXor { static constexpr Operator kind = Operator::logical_xor; };
struct BitwiseAnd { static constexpr Operator kind = Operator::bitwise_and; };
struct BitwiseOr { static constexpr Operator kind = Operator::bitwise_or; };
struct BitwiseXor { static constexpr Operator kind = Operator::bitwise_xor; };
struct MinLocation { static constexpr Operator kind = Operator::min_location; };
struct MaxLocation { static constexpr Operator kind = Operator::max_location; };

/// Integers wrap around on overflow.
inline constexpr Sum sum{};
inline constexpr Prod prod{};
/// With a NaN among the elements the result is unspecified.
inline constexpr Min min{};
inline constexpr Max max{};
/// The sum divided by the number of ranks; integers are truncated towards zero.
inline constexpr Avg avg{};
/// For bool and integers; a result is 0 or 1.
inline constexpr LogicalAnd logical_and{};
inline constexpr LogicalOr logical_or{};
inline constexpr LogicalXor logical_xor{};
/// For integers and std::byte.
inline constexpr BitwiseAnd bitwise_and{};
inline constexpr BitwiseOr bitwise_or{};
inline constexpr BitwiseXor bitwise_xor{};
/// For Located<T>: the least or greatest value with its index; among equal values the lowest index. With a NaN among
/// the values the result is unspecified.
inline constexpr MinLocation min_location{};
inline constexpr MaxLocation max_location{};

/// A callable with a declaration whether its operands may be exchanged. Without one they may not. The library's own
/// reductions, which are all that apply callables on Threads and Mpi, combine in rank order either way; a backend with
/// an engine of its own may reorder what is declared commutative.
template <class F, bool Commutes>
struct Declared {
  F f;
  static constexpr bool commutes = Commutes;
  template <class A, class B>
  auto operator()(A const& a, B const& b) const -> decltype(f(a, b)) {
    return f(a, b);
  }
};
template <class F>
constexpr Declared<F, true> commutative(F f) {
  return {static_cast<F&&>(f)};
}
template <class F>
constexpr Declared<F, false> non_commutative(F f) {
  return {static_cast<F&&>(f)};
}

namespace comm {

template <class Op>
concept NamedOperator = requires {
  { Op::kind } -> std::same_as<Operator const&>;
};

template <class Op>
constexpr Operator operator_kind() noexcept {
  if constexpr (NamedOperator<Op>) return Op::kind;
  else return Operator::callable;
}

/// For the comparison of calls: a number for the type of a callable, 0 of named operators. Two callables have one in a
/// thousand times the same.
inline constexpr int callables = 1 << 10;
template <class Op>
std::uint16_t callable_number() noexcept {
  if constexpr (NamedOperator<Op>) return 0;
  else {
#if defined(__cpp_rtti)
    static std::uint64_t const hash = Fnv1a().add(typeid(Op).name()).value();
#else
    static std::uint64_t const hash = Fnv1a().add(__PRETTY_FUNCTION__).value();  // lambdas of a function alike
#endif
    return static_cast<std::uint16_t>(1 + hash % (callables - 1));
  }
}

template <class Op>
constexpr bool commutes() noexcept {
  if constexpr (requires { Op::commutes; }) return Op::commutes;
  else return NamedOperator<Op>;
}

/// Type in which elements of type T are accumulated.
template <class T>
using Accumulator = std::conditional_t<std::same_as<T, bfloat16> || std::same_as<T, float16>, float, T>;

/// Whether a callable can be applied to two A with a result that becomes an A again.
template <class Op, class A>
concept Combines = requires(Op const& op, A a, A b) { static_cast<A>(op(a, b)); };

template <class T>
inline constexpr bool is_number =
    !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, std::byte>;

constexpr bool is_logical(Operator op) noexcept {
  return op == Operator::logical_and || op == Operator::logical_or || op == Operator::logical_xor;
}
constexpr bool is_bitwise(Operator op) noexcept {
  return op == Operator::bitwise_and || op == Operator::bitwise_or || op == Operator::bitwise_xor;
}

/// Whether elements of type T can be reduced with Op. A callable for 16-bit floats may take float (accumulated there,
/// rounded once) or the type itself.
template <class T, class Op>
constexpr bool reducible() noexcept {
  if constexpr (!NamedOperator<Op>) return Combines<Op, Accumulator<T>> || Combines<Op, T>;
  else if constexpr (Op::kind == Operator::min_location || Op::kind == Operator::max_location) return is_located<T>;
  else if constexpr (Complex<T>)
    return Op::kind == Operator::sum || Op::kind == Operator::prod || Op::kind == Operator::avg;
  else if constexpr (!Element<T>) return false;
  else if constexpr (is_logical(Op::kind)) return std::integral<T> && !std::same_as<T, char>;
  else if constexpr (is_bitwise(Op::kind)) return std::same_as<T, std::byte> || (std::integral<T> && is_number<T>);
  else if constexpr (Op::kind == Operator::min || Op::kind == Operator::max)
    return is_number<T> || std::same_as<T, char>;
  else return is_number<T>;
}

/// Movement: no operator.
struct NoOperator {};

}  // namespace comm
}  // namespace tutti
