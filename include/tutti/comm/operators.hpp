// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operators of reductions, and the one loop that applies them: `fold` combines the ranks' elements in rank order, so a
/// result never depends on message size or algorithm. 16-bit floats are accumulated in float and rounded once.

#include <tutti/core/dtype.hpp>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tutti {

/// Run-time name of an operator. The values are part of messages' fingerprints: append only.
enum class Operator : std::uint8_t { none, sum, prod, min, max, avg, logical_and, logical_or, callable };

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

/// Type in which elements of type T are accumulated.
template <class T>
using Accumulator = std::conditional_t<std::same_as<T, bfloat16> || std::same_as<T, float16>, float, T>;

/// Whether a callable can be applied to two A with a result that becomes an A again.
template <class Op, class A>
concept Combines = requires(Op const& op, A a, A b) { static_cast<A>(op(a, b)); };

template <class T>
inline constexpr bool is_number =
    !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, std::byte>;

/// Whether elements of type T can be reduced with Op. A callable for 16-bit floats may take float (accumulated there,
/// rounded once) or the type itself.
template <class T, class Op>
constexpr bool reducible() noexcept {
  if constexpr (!NamedOperator<Op>) return Combines<Op, Accumulator<T>> || Combines<Op, T>;
  else if constexpr (Op::kind == Operator::logical_and || Op::kind == Operator::logical_or)
    return std::integral<T> && !std::same_as<T, char>;
  else if constexpr (Op::kind == Operator::min || Op::kind == Operator::max)
    return is_number<T> || std::same_as<T, char>;
  else return is_number<T>;
}

/// A reduction with its types erased. The callable behind `state` must outlive the operation.
struct Reduction {
  Operator op = Operator::none;
  void const* state = nullptr;
  /// out[i] = inputs[0][i] op inputs[1][i] op ... for i < count; avg divides by `ranks`. `out` may be one of the
  /// inputs.
  void (*fold)(void const* state, void const* const* inputs, int ranks, void* out, std::int64_t count) = nullptr;
  /// data[i] /= ranks, where the backend could only sum. Set for avg alone.
  void (*divide)(void* data, std::int64_t count, int ranks) = nullptr;
};

namespace detail {

template <class T, class Op>
using FoldType = std::conditional_t<NamedOperator<Op> || Combines<Op, Accumulator<T>>, Accumulator<T>, T>;

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
  else if constexpr (std::is_signed_v<A>) return static_cast<A>(std::int64_t{value} / ranks);
  else return static_cast<A>(std::uint64_t{value} / static_cast<std::uint64_t>(ranks));
}

/// `Count` elements, or `n` where Count is 0. A constant trip count on a local array is what -O2 vectorises.
template <int Count, class T, class Op>
inline void fold_block(Op const& op, void const* const* inputs, int ranks, T* out, std::int64_t at, int n) {
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
  for (int i = 0; i < count; ++i) out[at + i] = static_cast<T>(sum_of[i]);
}

template <class T, class Op>
void fold(void const* state, void const* const* inputs, int ranks, void* out, std::int64_t count) {
  auto const& op = *static_cast<Op const*>(state);
  T* const to = static_cast<T*>(out);
  constexpr std::int64_t block = 64;
  std::int64_t at = 0;
  for (; at + block <= count; at += block) fold_block<int{block}>(op, inputs, ranks, to, at, 0);
  if (at < count) fold_block<0>(op, inputs, ranks, to, at, static_cast<int>(count - at));
}

template <class T>
void divide(void* data, std::int64_t count, int ranks) {
  T* const elements = static_cast<T*>(data);
  for (std::int64_t i = 0; i < count; ++i)
    elements[i] = static_cast<T>(divided(static_cast<Accumulator<T>>(elements[i]), ranks));
}

}  // namespace detail

/// The erased form of `op` for elements of type T, which it must be able to reduce.
template <Element T, class Op>
Reduction reduction_of(Op const& op) {
  Reduction reduction{operator_kind<Op>(), &op, nullptr, nullptr};
  if constexpr (reducible<T, Op>()) {
    reduction.fold = &detail::fold<T, Op>;
    if constexpr (operator_kind<Op>() == Operator::avg) reduction.divide = &detail::divide<T>;
  }
  return reduction;
}

}  // namespace comm
}  // namespace tutti
