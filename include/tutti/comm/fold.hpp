// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The one loop that applies operators: `fold` combines the ranks' elements in rank order, so a result never depends on
/// message size or algorithm. 16-bit floats are accumulated in float and rounded once.

#include <tutti/comm/lanes.hpp>
#include <tutti/comm/operators.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/dtype.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tutti::comm {

/// A reduction with its types erased. The callable behind `state` must outlive the operation.
struct Reduction {
  Operator op = Operator::none;
  bool commutative = false;  ///< all named operators are, callables where they are declared so
  std::uint16_t callable = 0;  ///< callable_number of its type
  void const* state = nullptr;
  /// outputs[k][i] = inputs[0][i] op inputs[1][i] op ... for i < count and k < copies; avg divides by `ranks`. Outputs
  /// may be inputs. Buffers hold elements as they travel (comm/wire.hpp).
  using Fold = void(void const* state, void const* const* inputs, int ranks, void* const* outputs, int copies,
                    std::int64_t count);
  Fold* fold = nullptr;
  /// outputs[r][i] = inputs[0][i] op ... op inputs[r][i] for r < ranks, or without inputs[r] where not `inclusive`;
  /// avg divides by the number of inputs. An output that is null is not written; others may be the input of their own
  /// rank. Set for scans, but not where an average is asked for as a sum.
  using Prefixes = void(void const* state, void const* const* inputs, int ranks, void* const* outputs, bool inclusive,
                        std::int64_t count);
  Prefixes* prefixes = nullptr;
  /// Of avg, the fold of a sum, and data[i] /= ranks: for backends that can only sum. Set for avg alone.
  Fold* sum = nullptr;
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

/// Operators and elements that `fold_lanes` takes. An average of integers is divided one by one.
template <class T, class Op>
constexpr bool has_lanes() noexcept {
  if constexpr (!NamedOperator<Op> || !is_number<T>) return false;
  else if constexpr (std::integral<T>) return !is_logical(Op::kind) && Op::kind != Operator::avg;
  else return std::floating_point<T> || is_half_float<T>;
}

/// x = x op y.
template <class Op, class V>
TUTTI_ALWAYS_INLINE void combine_lanes(V& x, V const& y) {
  if constexpr (Op::kind == Operator::min) x = y < x ? y : x;
  else if constexpr (Op::kind == Operator::max) x = x < y ? y : x;
  else if constexpr (Op::kind == Operator::prod) x *= y;
  else if constexpr (Op::kind == Operator::bitwise_and) x &= y;
  else if constexpr (Op::kind == Operator::bitwise_or) x |= y;
  else if constexpr (Op::kind == Operator::bitwise_xor) x ^= y;
  else x += y;
}

/// As many elements as fill whole blocks; returns their number.
template <int Bytes, class T, class Op>
TUTTI_ALWAYS_INLINE std::int64_t fold_lanes(void const* const* inputs, int ranks, void* const* outputs, int copies,
                                            std::int64_t count) {
  constexpr bool compares = Op::kind == Operator::min || Op::kind == Operator::max;
  using Lane = typename LaneOf<T, compares>::type;
  using Block = Lanes<T, Lane, Bytes>;
  std::int64_t at = 0;
  for (; at + Block::count <= count; at += Block::count) {
    Block x, y;
    x.load(static_cast<T const*>(inputs[0]) + at);
    for (int rank = 1; rank < ranks; ++rank) {
      y.load(static_cast<T const*>(inputs[rank]) + at);
      combine_lanes<Op>(x.a, y.a);
      combine_lanes<Op>(x.b, y.b);
      combine_lanes<Op>(x.c, y.c);
      combine_lanes<Op>(x.d, y.d);
    }
    if constexpr (Op::kind == Operator::avg) {
      Lane const divisor = static_cast<Lane>(ranks);
      x.a /= divisor;
      x.b /= divisor;
      x.c /= divisor;
      x.d /= divisor;
    }
    x.store(outputs, copies, at);
  }
  return at;
}
#if TUTTI_HAS_X86
template <class T, class Op>
[[gnu::target("avx2")]] std::int64_t fold_wide_lanes(void const* const* inputs, int ranks, void* const* outputs,
                                                     int copies, std::int64_t count) {
  return fold_lanes<32, T, Op>(inputs, ranks, outputs, copies, count);
}
#endif

/// f(block, at, 0) for all whole blocks from `at` on, then f(0, at, n) for the n elements that are left; the first
/// argument is a constant. A constant trip count on a local array is what -O2 vectorises.
template <int block, class F>
inline void in_blocks(std::int64_t at, std::int64_t count, F&& f) {
  for (; at + block <= count; at += block) f(std::integral_constant<int, block>{}, at, 0);
  if constexpr (block > 1)
    if (at < count) f(std::integral_constant<int, 0>{}, at, static_cast<int>(count - at));
}

/// `Count` elements, or `n` where Count is 0.
template <int Count, class T, class Op, class Out>
inline void fold_block(Op const& op, void const* const* inputs, int ranks, void* const* outputs, int copies,
                       std::int64_t at, int n) {
  using A = FoldType<T, Op>;
  constexpr int capacity = Count != 0 ? Count : 64;
  int const count = Count != 0 ? Count : n;
  alignas(64) A sum_of[capacity];
  T const* const first = static_cast<T const*>(inputs[0]) + at;
  if (ranks < 2) {
    for (int i = 0; i < count; ++i) sum_of[i] = static_cast<A>(first[i]);
  } else {  // two at once: the array is written once less
    T const* const second = static_cast<T const*>(inputs[1]) + at;
    for (int i = 0; i < count; ++i) sum_of[i] = combine<Op, A>(op, static_cast<A>(first[i]), static_cast<A>(second[i]));
  }
  for (int rank = 2; rank < ranks; ++rank) {
    T const* const next = static_cast<T const*>(inputs[rank]) + at;
    for (int i = 0; i < count; ++i) sum_of[i] = combine<Op, A>(op, sum_of[i], static_cast<A>(next[i]));
  }
  if constexpr (operator_kind<Op>() == Operator::avg)
    for (int i = 0; i < count; ++i) sum_of[i] = divided(sum_of[i], ranks);
  for (int copy = 0; copy < copies; ++copy) {
    Out* const out = static_cast<Out*>(outputs[copy]) + at;
    for (int i = 0; i < count; ++i) out[i] = static_cast<Out>(sum_of[i]);
  }
}

template <class T>
T unpacked(void const* input, std::int64_t at) {
  T element{};
  unpack(static_cast<std::byte const*>(input) + at * wire_bytes<T>(), element);
  return element;
}

/// Of structs and complex numbers: element by element, from and to what travels.
template <class T, class Op>
void fold_compound(Op const& op, void const* const* inputs, int ranks, void* const* outputs, int copies,
                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    T result = unpacked<T>(inputs[0], i);
    for (int rank = 1; rank < ranks; ++rank) result = combine<Op, T>(op, result, unpacked<T>(inputs[rank], i));
    if constexpr (operator_kind<Op>() == Operator::avg) result = divided(result, ranks);
    for (int copy = 0; copy < copies; ++copy)
      pack(result, static_cast<std::byte*>(outputs[copy]) + i * wire_bytes<T>());
  }
}

/// One by one, where there are too few elements for anything else.
template <class T, class Op, class Out>
inline void fold_few(Op const& op, void const* const* inputs, int ranks, void* const* outputs, int copies,
                     std::int64_t count) {
  using A = FoldType<T, Op>;
  for (std::int64_t i = 0; i < count; ++i) {
    A sum = static_cast<A>(static_cast<T const*>(inputs[0])[i]);
    for (int rank = 1; rank < ranks; ++rank)
      sum = combine<Op, A>(op, sum, static_cast<A>(static_cast<T const*>(inputs[rank])[i]));
    if constexpr (operator_kind<Op>() == Operator::avg) sum = divided(sum, ranks);
    for (int copy = 0; copy < copies; ++copy) static_cast<Out*>(outputs[copy])[i] = static_cast<Out>(sum);
  }
}

/// `Out` is T, or what T is accumulated in where more will be combined with the result before it is rounded.
template <class T, class Op, class Out = T>
void fold_elements(Op const& op, void const* const* inputs, int ranks, void* const* outputs, int copies,
                   std::int64_t count) {
  constexpr int block = 64;
  if (count <= 4) return fold_few<T, Op, Out>(op, inputs, ranks, outputs, copies, count);
  std::int64_t at = 0;
  if constexpr (std::same_as<T, Out> && has_lanes<T, Op>()) {
#if TUTTI_HAS_X86
    if (count >= block && has_wide_vectors()) at = fold_wide_lanes<T, Op>(inputs, ranks, outputs, copies, count);
    else
#endif
      at = fold_lanes<16, T, Op>(inputs, ranks, outputs, copies, count);
  }
  in_blocks<block>(at, count, [&](auto whole, std::int64_t begin, int n) {
    fold_block<whole, T, Op, Out>(op, inputs, ranks, outputs, copies, begin, n);
  });
}

template <class T, class Op>
void fold(void const* state, void const* const* inputs, int ranks, void* const* outputs, int copies,
          std::int64_t count) {
  Op const& op = operator_at<Op>(state);
  if constexpr (!Element<T>) return fold_compound<T>(op, inputs, ranks, outputs, copies, count);
  else fold_elements<T>(op, inputs, ranks, outputs, copies, count);
}

/// Elements from `at` on, as what they are accumulated in; and back, rounded. Typed pointers, where elements travel as
/// they are, let a compiler take many at once.
template <class T, class A>
inline void load_some(void const* input, std::int64_t at, int count, A* to) {
  if constexpr (Element<T>) {
    T const* const from = static_cast<T const*>(input) + at;
    for (int i = 0; i < count; ++i) to[i] = static_cast<A>(from[i]);
  } else {
    for (int i = 0; i < count; ++i) to[i] = static_cast<A>(unpacked<T>(input, at + i));
  }
}
template <class T, class A>
inline void store_some(A const* from, void* output, std::int64_t at, int count) {
  if constexpr (Element<T>) {
    T* const to = static_cast<T*>(output) + at;
    for (int i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  } else {
    for (int i = 0; i < count; ++i)
      pack(static_cast<T>(from[i]), static_cast<std::byte*>(output) + (at + i) * wire_bytes<T>());
  }
}

/// Elements that are combined at a time where each input or output is looked at on its own. Structs and complex numbers
/// one by one, as fold_compound does: they may be large, and a compiler rounds products differently in a loop of
/// several.
template <class T>
inline constexpr int block_of = Element<T> ? 64 : 1;
/// inputs[first] op ... op inputs[last - 1] as a balanced tree, whose form depends on their number alone. `Count`
/// elements, or `n` where Count is 0.
template <int Count, class T, class Op, class A>
void fold_subtree(Op const& op, void const* const* inputs, int first, int last, std::int64_t at, int n, A* out) {
  int const count = Count != 0 ? Count : n;
  if (last - first == 1) return load_some<T>(inputs[first], at, count, out);
  alignas(64) A right[block_of<T>];
  int const middle = first + (last - first) / 2;
  fold_subtree<Count, T, Op, A>(op, inputs, first, middle, at, n, out);
  fold_subtree<Count, T, Op, A>(op, inputs, middle, last, at, n, right);
  for (int i = 0; i < count; ++i) out[i] = combine<Op, A>(op, out[i], right[i]);
}
template <int Count, class T, class Op>
void fold_tree_block(Op const& op, void const* const* inputs, int number, void* const* outputs, int copies,
                     std::int64_t at, int n) {
  using A = FoldType<T, Op>;
  int const count = Count != 0 ? Count : n;
  alignas(64) A result[block_of<T>];
  fold_subtree<Count, T, Op, A>(op, inputs, 0, number, at, n, result);
  if constexpr (operator_kind<Op>() == Operator::avg)
    for (int i = 0; i < count; ++i) result[i] = divided(result[i], number);
  for (int copy = 0; copy < copies; ++copy) store_some<T>(result, outputs[copy], at, count);
}
template <class T, class Op>
void fold_tree(void const* state, void const* const* inputs, int number, void* const* outputs, int copies,
               std::int64_t count) {
  Op const& op = operator_at<Op>(state);
  in_blocks<block_of<T>>(0, count, [&](auto whole, std::int64_t at, int n) {
    fold_tree_block<whole, T>(op, inputs, number, outputs, copies, at, n);
  });
}

/// `Count` elements, or `n` where Count is 0.
template <int Count, class T, class Op>
void prefixes_block(Op const& op, void const* const* inputs, int ranks, void* const* outputs, bool inclusive,
                    std::int64_t at, int n) {
  using A = FoldType<T, Op>;
  int const count = Count != 0 ? Count : n;
  alignas(64) A sum_of[block_of<T>];
  alignas(64) A next[block_of<T>];
  for (int rank = 0; rank < ranks; ++rank) {
    auto const write = [&](int combined) {
      if (outputs[rank] == nullptr || combined == 0) return;
      if constexpr (operator_kind<Op>() == Operator::avg) {
        alignas(64) A average[block_of<T>];
        for (int i = 0; i < count; ++i) average[i] = divided(sum_of[i], combined);
        store_some<T>(average, outputs[rank], at, count);
      } else {
        store_some<T>(sum_of, outputs[rank], at, count);
      }
    };
    if (!inclusive && rank == ranks - 1) {  // its input is in nobody's result, and the operator may not be for it
      write(rank);
      break;
    }
    load_some<T>(inputs[rank], at, count, next);  // before it is written over
    if (!inclusive) write(rank);
    if (rank == 0)
      for (int i = 0; i < count; ++i) sum_of[i] = next[i];
    else
      for (int i = 0; i < count; ++i) sum_of[i] = combine<Op, A>(op, sum_of[i], next[i]);
    if (inclusive) write(rank + 1);
  }
}
template <class T, class Op>
void prefixes(void const* state, void const* const* inputs, int ranks, void* const* outputs, bool inclusive,
              std::int64_t count) {
  Op const& op = operator_at<Op>(state);
  in_blocks<block_of<T>>(0, count, [&](auto whole, std::int64_t at, int n) {
    prefixes_block<whole, T>(op, inputs, ranks, outputs, inclusive, at, n);
  });
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
  Reduction reduction{.op = operator_kind<Op>(), .commutative = commutes<Op>(), .callable = callable_number<Op>(),
                      .state = detail::state_of(op)};
  if constexpr (reducible<T, Op>()) {
    reduction.fold = &detail::fold<T, Op>;
    if constexpr (operator_kind<Op>() == Operator::avg && Element<T>) {
      reduction.sum = &detail::fold<T, Sum>;
      reduction.divide = &detail::divide<T>;
    }
  }
  return reduction;
}

/// The same with `prefixes`.
template <Storable T, class Op>
Reduction scan_reduction_of(Op const& op) {
  Reduction reduction = reduction_of<T>(op);
  if constexpr (reducible<T, Op>()) reduction.prefixes = &detail::prefixes<T, Op>;
  return reduction;
}

/// The same with a fold that combines as a balanced tree over its inputs instead of one after another.
template <Storable T, class Op>
Reduction tree_reduction_of(Op const& op) {
  Reduction reduction{.op = operator_kind<Op>(), .commutative = commutes<Op>(), .callable = callable_number<Op>(),
                      .state = detail::state_of(op)};
  if constexpr (reducible<T, Op>()) reduction.fold = &detail::fold_tree<T, Op>;
  return reduction;
}

}  // namespace tutti::comm
