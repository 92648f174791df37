// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operators of reductions, and the one loop that applies them: `fold` combines the ranks' elements in rank order, so a
/// result never depends on message size or algorithm. 16-bit floats are accumulated in float and rounded once.

#include <tutti/comm/located.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/dtype.hpp>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

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

/// A reduction with its types erased. The callable behind `state` must outlive the operation.
struct Reduction {
  Operator op = Operator::none;
  bool commutative = false;  ///< all named operators are, callables where they are declared so
  void const* state = nullptr;
  /// out[i] = inputs[0][i] op inputs[1][i] op ... for i < count; avg divides by `ranks`. `out` may be one of the
  /// inputs. Buffers hold elements as they travel (comm/wire.hpp).
  void (*fold)(void const* state, void const* const* inputs, int ranks, void* out, std::int64_t count) = nullptr;
  /// Of avg, the fold of a sum, and data[i] /= ranks: for backends that can only sum. Set for avg alone.
  void (*sum)(void const* state, void const* const* inputs, int ranks, void* out, std::int64_t count) = nullptr;
  void (*divide)(void* data, std::int64_t count, int ranks) = nullptr;
};

namespace detail {

template <class T, class Op>
using FoldType = std::conditional_t<NamedOperator<Op> || Combines<Op, Accumulator<T>>, Accumulator<T>, T>;

/// A callable as it travels with its type erased; a function is its address.
template <class Op>
void const* state_of(Op const& op) noexcept {
  if constexpr (std::is_function_v<Op>) return reinterpret_cast<void const*>(&op);
  else return &op;
}
template <class Op>
Op const& operator_at(void const* state) noexcept {
  if constexpr (std::is_function_v<Op>) return *reinterpret_cast<Op*>(const_cast<void*>(state));
  else return *static_cast<Op const*>(state);
}

template <class Op, class A>
inline A combine(Op const& op, A a, A b) {
  if constexpr (!NamedOperator<Op>) {
    return static_cast<A>(op(a, b));
  } else if constexpr (Op::kind == Operator::min) {
    return b < a ? b : a;
  } else if constexpr (Op::kind == Operator::max) {
    return a < b ? b : a;
  } else if constexpr (Op::kind == Operator::logical_and) {
    return static_cast<A>(a && b);
  } else if constexpr (Op::kind == Operator::logical_or) {
    return static_cast<A>(a || b);
  } else if constexpr (Op::kind == Operator::logical_xor) {
    return static_cast<A>(!a != !b);
  } else if constexpr (Op::kind == Operator::bitwise_and) {
    return static_cast<A>(a & b);
  } else if constexpr (Op::kind == Operator::bitwise_or) {
    return static_cast<A>(a | b);
  } else if constexpr (Op::kind == Operator::bitwise_xor) {
    return static_cast<A>(a ^ b);
  } else if constexpr (Op::kind == Operator::min_location) {
    return b.value < a.value || (!(a.value < b.value) && b.index < a.index) ? b : a;
  } else if constexpr (Op::kind == Operator::max_location) {
    return a.value < b.value || (!(b.value < a.value) && b.index < a.index) ? b : a;
  } else if constexpr (std::integral<A>) {
    // Unsigned arithmetic of at least 32 bits wraps where signed arithmetic would be undefined.
    using Wide = std::conditional_t<(sizeof(A) > 4), std::uint64_t, std::uint32_t>;
    if constexpr (Op::kind == Operator::prod) return static_cast<A>(static_cast<Wide>(a) * static_cast<Wide>(b));
    else return static_cast<A>(static_cast<Wide>(a) + static_cast<Wide>(b));
  } else {
    if constexpr (Op::kind == Operator::prod) return a * b;
    else return a + b;
  }
}

template <class A>
inline A divided(A value, int ranks) {
  if constexpr (std::floating_point<A>) return value / static_cast<A>(ranks);
  else if constexpr (Complex<A>) return value / static_cast<typename A::value_type>(ranks);
  else if constexpr (std::is_signed_v<A>) return static_cast<A>(std::int64_t{value} / ranks);
  else return static_cast<A>(std::uint64_t{value} / static_cast<std::uint64_t>(ranks));
}

/// `Count` elements, or `n` where Count is 0. A constant trip count on a local array is what -O2 vectorises.
template <int Count, class T, class Op, class Out>
inline void fold_block(Op const& op, void const* const* inputs, int ranks, Out* out, std::int64_t at, int n) {
  using A = FoldType<T, Op>;
  constexpr int capacity = Count != 0 ? Count : 64;
  int const count = Count != 0 ? Count : n;
  alignas(64) A sum_of[capacity];
  T const* const first = static_cast<T const*>(inputs[0]) + at;
  for (int i = 0; i < count; ++i) sum_of[i] = static_cast<A>(first[i]);
  for (int rank = 1; rank < ranks; ++rank) {
    T const* const next = static_cast<T const*>(inputs[rank]) + at;
    for (int i = 0; i < count; ++i) sum_of[i] = combine<Op, A>(op, sum_of[i], static_cast<A>(next[i]));
  }
  if constexpr (operator_kind<Op>() == Operator::avg)
    for (int i = 0; i < count; ++i) sum_of[i] = divided(sum_of[i], ranks);
  for (int i = 0; i < count; ++i) out[at + i] = static_cast<Out>(sum_of[i]);
}

template <class T>
T unpacked(void const* input, std::int64_t at) {
  T element{};
  unpack(static_cast<std::byte const*>(input) + at * wire_bytes<T>(), element);
  return element;
}

/// Of structs and complex numbers: element by element, from and to what travels.
template <class T, class Op>
void fold_compound(Op const& op, void const* const* inputs, int ranks, void* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    T result = unpacked<T>(inputs[0], i);
    for (int rank = 1; rank < ranks; ++rank) result = combine<Op, T>(op, result, unpacked<T>(inputs[rank], i));
    if constexpr (operator_kind<Op>() == Operator::avg) result = divided(result, ranks);
    pack(result, static_cast<std::byte*>(out) + i * wire_bytes<T>());
  }
}

/// `Out` is T, or what T is accumulated in where more will be combined with the result before it is rounded.
template <class T, class Op, class Out = T>
void fold_elements(Op const& op, void const* const* inputs, int ranks, void* out, std::int64_t count) {
  Out* const to = static_cast<Out*>(out);
  constexpr std::int64_t block = 64;
  std::int64_t at = 0;
  for (; at + block <= count; at += block) fold_block<int{block}, T>(op, inputs, ranks, to, at, 0);
  if (at < count) fold_block<0, T>(op, inputs, ranks, to, at, static_cast<int>(count - at));
}

template <class T, class Op>
void fold(void const* state, void const* const* inputs, int ranks, void* out, std::int64_t count) {
  Op const& op = operator_at<Op>(state);
  if constexpr (!Element<T>) return fold_compound<T>(op, inputs, ranks, out, count);
  else fold_elements<T>(op, inputs, ranks, out, count);
}

/// inputs[first] op ... op inputs[last - 1] as a balanced tree, whose form depends on their number alone.
template <class T, class Op, class A>
void fold_subtree(Op const& op, void const* const* inputs, int first, int last, std::int64_t at, int count, A* out) {
  if (last - first == 1) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<A>(unpacked<T>(inputs[first], at + i));
    return;
  }
  constexpr int capacity = Element<T> ? 64 : 8;
  A right[capacity];
  int const middle = first + (last - first) / 2;
  fold_subtree<T, Op, A>(op, inputs, first, middle, at, count, out);
  fold_subtree<T, Op, A>(op, inputs, middle, last, at, count, right);
  for (int i = 0; i < count; ++i) out[i] = combine<Op, A>(op, out[i], right[i]);
}

template <class T, class Op>
void fold_tree(void const* state, void const* const* inputs, int number, void* out, std::int64_t count) {
  using A = FoldType<T, Op>;
  Op const& op = operator_at<Op>(state);
  constexpr int capacity = Element<T> ? 64 : 8;
  A result[capacity];
  for (std::int64_t at = 0; at < count; at += capacity) {
    int const n = count - at < capacity ? static_cast<int>(count - at) : capacity;
    fold_subtree<T, Op, A>(op, inputs, 0, number, at, n, result);
    for (int i = 0; i < n; ++i) {
      if constexpr (operator_kind<Op>() == Operator::avg) result[i] = divided(result[i], number);
      pack(static_cast<T>(result[i]), static_cast<std::byte*>(out) + (at + i) * wire_bytes<T>());
    }
  }
}

template <class T>
void divide(void* data, std::int64_t count, int ranks) {
  T* const elements = static_cast<T*>(data);
  for (std::int64_t i = 0; i < count; ++i)
    elements[i] = static_cast<T>(divided(static_cast<Accumulator<T>>(elements[i]), ranks));
}

}  // namespace detail

/// The erased form of `op` for elements of type T, which it must be able to reduce.
template <Storable T, class Op>
Reduction reduction_of(Op const& op) {
  Reduction reduction{.op = operator_kind<Op>(), .commutative = commutes<Op>(), .state = detail::state_of(op)};
  if constexpr (reducible<T, Op>()) {
    reduction.fold = &detail::fold<T, Op>;
    if constexpr (operator_kind<Op>() == Operator::avg && Element<T>) {
      reduction.sum = &detail::fold<T, Sum>;
      reduction.divide = &detail::divide<T>;
    }
  }
  return reduction;
}

/// The same with a fold that combines as a balanced tree over its inputs instead of one after another.
template <Storable T, class Op>
Reduction tree_reduction_of(Op const& op) {
  Reduction reduction{.op = operator_kind<Op>(), .commutative = commutes<Op>(), .state = detail::state_of(op)};
  if constexpr (reducible<T, Op>()) reduction.fold = &detail::fold_tree<T, Op>;
  return reduction;
}

}  // namespace comm
}  // namespace tutti
