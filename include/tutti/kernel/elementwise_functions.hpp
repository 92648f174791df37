// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a table of elementwise functions is, and what interpreters of chains share: limits and checks, and how values
/// become elements.
///
/// A table `Functions` numbers types: `Functions::count`, and `Functions::body<number>`, void where the number is no
/// function. Such a body has
///   arity                  how many operands it reads; 0: the constant `value`, which needs nothing else
///   attributed             whether `scalar` and `precise` take the instruction's `value` before the operands
///   scalar(a, ...)         of float or double, for devices and, without `precise`, in double for processors
///   precise(a, ...)        of double, for processors
///   vector(a, ...)         of vectors of every level, made by TUTTI_VECTOR_BODY; without it processors compute one
///                          element at a time, in double
///   with_variant(value, f) instead of `vector`: f.operator()<Body>() of the body for this value; false: there is none
/// A type with integers also has `integer(a, ...)`, of std::int64_t and std::uint64_t, modulo 2^64.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/isa.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

/// Member functions `vector` for every instruction set: `TUTTI_VECTOR_BODY((V a, V b) { return mul(a, b); })`. The text
/// calls functions of exec/isa/levels.hpp that take a vector, whose level they follow; like(a, 1.0f) makes constants.
#if TUTTI_HAS_X86
#define TUTTI_VECTOR_BODY(...)                                                                           \
  template <class V>                                                                                     \
  requires(V::level == 0) TUTTI_ALWAYS_INLINE static V vector __VA_ARGS__                                \
  template <class V>                                                                                     \
  requires(V::level == 1) TUTTI_TARGET_AVX2 TUTTI_ALWAYS_INLINE static V vector __VA_ARGS__              \
  template <class V>                                                                                     \
  requires(V::level == 2) TUTTI_TARGET_AVX512 TUTTI_ALWAYS_INLINE static V vector __VA_ARGS__
#else
#define TUTTI_VECTOR_BODY(...) \
  template <class V>           \
  TUTTI_ALWAYS_INLINE static V vector __VA_ARGS__
#endif

namespace tutti::kernel {

struct ElementwiseLimits {
  static constexpr int inputs = 16, instructions = 64, outputs = 8;
};

namespace detail {
template <class Functions, int Number>
constexpr int arity_of_body() {
  using Body = typename Functions::template body<Number>;
  if constexpr (std::is_void_v<Body>) return 0;
  else return Body::arity;
}
template <class Functions>
inline constexpr auto arities = []<int... Number>(std::integer_sequence<int, Number...>) {
  return std::array<int, sizeof...(Number)>{arity_of_body<Functions, Number>()...};
}(std::make_integer_sequence<int, Functions::count>{});
}  // namespace detail

/// Operands that an instruction reads.
template <class Functions>
constexpr int arity(ElementwiseOp op) {
  return detail::arities<Functions>[op.number];
}

// A switch, of which compilers for devices make a table of jumps; kernel/cuda/chain.hpp has one too.
#define TUTTI_FUNCTION_CASE(number)                                          \
  case number:                                                               \
    if constexpr (number < Functions::count) {                               \
      using Body = typename Functions::template body<number>;                \
      if constexpr (!std::is_void_v<Body>) f.template operator()<Body>();    \
    }                                                                        \
    return;
#define TUTTI_FUNCTION_CASES_8(first)                                                                      \
  TUTTI_FUNCTION_CASE(first) TUTTI_FUNCTION_CASE(first + 1) TUTTI_FUNCTION_CASE(first + 2)                 \
  TUTTI_FUNCTION_CASE(first + 3) TUTTI_FUNCTION_CASE(first + 4) TUTTI_FUNCTION_CASE(first + 5)             \
  TUTTI_FUNCTION_CASE(first + 6) TUTTI_FUNCTION_CASE(first + 7)
#define TUTTI_FUNCTION_CASES                                                                               \
  TUTTI_FUNCTION_CASES_8(0) TUTTI_FUNCTION_CASES_8(8) TUTTI_FUNCTION_CASES_8(16) TUTTI_FUNCTION_CASES_8(24) \
  TUTTI_FUNCTION_CASES_8(32) TUTTI_FUNCTION_CASES_8(40) TUTTI_FUNCTION_CASES_8(48) TUTTI_FUNCTION_CASES_8(56)

/// f.operator()<Body>() for the body of `op`.
template <class Functions, class F>
constexpr void with_function(ElementwiseOp op, F&& f) {
  static_assert(Functions::count <= 64, "add eight cases to TUTTI_FUNCTION_CASES");
  switch (op.number) { TUTTI_FUNCTION_CASES }
}

/// Body's result for the operands that it reads.
template <class Body, class T>
constexpr T compute(double value, T a, T b, T c) {
  if constexpr (Body::arity == 0) return static_cast<T>(value);
  else if constexpr (Body::attributed) return Body::scalar(value, a);
  else if constexpr (Body::arity == 1) return Body::scalar(a);
  else if constexpr (Body::arity == 2) return Body::scalar(a, b);
  else return Body::scalar(a, b, c);
}
namespace detail {
template <class Body>
struct PreciseBody : Body {
  static double scalar(auto... operands) { return Body::precise(operands...); }
};
}  // namespace detail
template <class Body>
double compute_precisely(double value, double a, double b, double c) {
  if constexpr (requires { &Body::precise; }) return compute<detail::PreciseBody<Body>>(value, a, b, c);
  else return compute<Body>(value, a, b, c);
}

/// Errors: internal (a limit of the chain, a register that does not exist).
template <class Functions>
void check_elementwise(Elementwise const& args) {
  auto const refuse = [](std::string const& why) { throw Error(ErrorKind::internal, "elementwise", why); };
  using Limits = ElementwiseLimits;
  if (args.inputs.size() > Limits::inputs || args.instructions.size() > Limits::instructions ||
      args.outputs.size() > Limits::outputs)
    refuse(concat(args.inputs.size(), " inputs, ", args.instructions.size(), " instructions, ", args.outputs.size(),
                  " outputs: a chain has at most ", Limits::inputs, ", ", Limits::instructions, " and ",
                  Limits::outputs, ". Split it"));
  int const inputs = static_cast<int>(args.inputs.size());
  for (int index = 0; index < static_cast<int>(args.instructions.size()); ++index) {
    ElementwiseInstruction const& instruction = args.instructions[static_cast<std::size_t>(index)];
    std::int16_t const operands[3] = {instruction.a, instruction.b, instruction.c};
    for (int k = 0; k < 3; ++k)
      if (operands[k] >= inputs + index || (k < arity<Functions>(instruction.op) && operands[k] < 0))
        refuse(concat("instruction ", index, " reads register ", operands[k], ", but there are ", inputs + index,
                      " before it"));
  }
  for (ElementwiseOutput const& output : args.outputs)
    if (output.source < 0 || output.source >= inputs + static_cast<int>(args.instructions.size()))
      refuse(concat("an output reads register ", output.source, ", which does not exist"));
}

/// Whether the chain runs in double.
inline bool runs_in_double(Elementwise const& args) {
  bool wide = args.double_precision;
  for (ElementwiseInput const& input : args.inputs) wide = wide || input.dtype == DType::float64;
  for (ElementwiseOutput const& output : args.outputs) wide = wide || output.dtype == DType::float64;
  return wide;
}

/// Toward zero into integers, which saturate; NaN becomes 0. Nonzero is true.
template <class T, class Real>
constexpr T element_of(Real value) {
  if constexpr (std::same_as<T, bool>) return value != 0;
  else if constexpr (std::same_as<T, std::byte>) return static_cast<std::byte>(element_of<std::uint8_t>(value));
  else if constexpr (std::integral<T>) {
    constexpr Real low = static_cast<Real>(std::numeric_limits<T>::min());
    constexpr Real above = static_cast<Real>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    if (value != value) return 0;
    if (value < low) return std::numeric_limits<T>::min();
    return value >= above ? std::numeric_limits<T>::max() : static_cast<T>(value);
  } else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) return T(static_cast<float>(value));
  else return static_cast<T>(value);
}

}  // namespace tutti::kernel
