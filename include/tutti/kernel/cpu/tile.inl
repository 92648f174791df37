// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The instructions of elementwise chains on one tile, stamped per instruction set.

namespace tile {

template <class Body>
TUTTI_KERNEL_INLINE F32 apply(F32 a, F32 b, F32 c) {
  if constexpr (Body::arity == 1) return Body::vector(a);
  else if constexpr (Body::arity == 2) return Body::vector(a, b);
  else return Body::vector(a, b, c);
}

/// out[i] = Body(a[i], b[i], c[i]); operands beyond its arity are not read.
template <class Body>
TUTTI_TARGET inline void map(float* out, TileOperand<float> const* in, std::int64_t n) {
  constexpr int Arity = Body::arity;
  constexpr std::int64_t width = F32::lanes;
  float const* a = in[0].data;
  float const* b = Arity > 1 ? in[1].data : a;
  float const* c = Arity > 2 ? in[2].data : a;
  std::int64_t const step_a = in[0].repeats ? 0 : width;
  std::int64_t const step_b = Arity > 1 && !in[1].repeats ? width : 0;
  std::int64_t const step_c = Arity > 2 && !in[2].repeats ? width : 0;
  std::int64_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {  // twice, for what the loop itself costs
    F32 const a0 = load(a), b0 = Arity > 1 ? load(b) : a0, c0 = Arity > 2 ? load(c) : a0;
    F32 const a1 = load(a + step_a), b1 = Arity > 1 ? load(b + step_b) : a1, c1 = Arity > 2 ? load(c + step_c) : a1;
    store(out + i, apply<Body>(a0, b0, c0));
    store(out + i + width, apply<Body>(a1, b1, c1));
    a += 2 * step_a;
    b += 2 * step_b;
    c += 2 * step_c;
  }
  for (; i + width <= n; i += width) {
    F32 const va = load(a), vb = Arity > 1 ? load(b) : va, vc = Arity > 2 ? load(c) : va;
    store(out + i, apply<Body>(va, vb, vc));
    a += step_a;
    b += step_b;
    c += step_c;
  }
  if (i < n) {
    int const rest = static_cast<int>(n - i);
    F32 const va = load_partial(a, rest), vb = Arity > 1 ? load_partial(b, rest) : va;
    store_partial(out + i, apply<Body>(va, vb, Arity > 2 ? load_partial(c, rest) : va), rest);
  }
}

template <class Body>
TUTTI_TARGET inline void run(double value, float* out, TileOperand<float> const* in, std::int64_t n) {
  if constexpr (requires { Body::vector(F32{}); } || requires { Body::vector(F32{}, F32{}); } ||
                requires { Body::vector(F32{}, F32{}, F32{}); }) {
    map<Body>(out, in, n);
  } else {
    if constexpr (requires { Body::with_variant(value, [] {}); })
      if (Body::with_variant(value, [&]<class Variant>() { map<Variant>(out, in, n); })) return;
    for (std::int64_t i = 0; i < n; ++i) {
      double x[3] = {};
      for (int k = 0; k < Body::arity; ++k) x[k] = double{in[k].data[in[k].repeats ? 0 : i]};
      out[i] = static_cast<float>(compute_precisely<Body>(value, x[0], x[1], x[2]));
    }
  }
}
template <class Functions, int Number>
constexpr RunTile<float> run_of() {
  using Body = typename Functions::template body<Number>;
  if constexpr (kernel::detail::arity_of_body<Functions, Number>() == 0) return nullptr;
  else return run<Body>;
}

}  // namespace tile

/// By number of the function; null for what computes nothing.
template <class Functions>
inline constexpr auto tile_runs = []<int... Number>(std::integer_sequence<int, Number...>) {
  return std::array<RunTile<float>, sizeof...(Number)>{tile::run_of<Functions, Number>()...};
}(std::make_integer_sequence<int, Functions::count>{});

/// Conversion of contiguous 16-bit elements.
template <class From, class To>
TUTTI_TARGET inline void convert_tile(From const* from, To* to, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t i = 0;
  for (; i + width <= n; i += width) store(to + i, load(from + i));
  if (i < n) store_partial(to + i, load_partial(from + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

inline TileFunctions tile_functions() {
  return {convert_tile<bfloat16, float>, convert_tile<float16, float>, convert_tile<float, bfloat16>,
          convert_tile<float, float16>};
}
