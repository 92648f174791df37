// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The instructions of elementwise chains on one tile, stamped per instruction set.

namespace tile {

struct Add { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return add(a, b); } };
struct Subtract { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return sub(a, b); } };
struct Multiply { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return mul(a, b); } };
struct Divide { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return div(a, b); } };
struct Maximum {  // NaN where either is
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return select(not_equal(a, a), a, max(a, b)); }
};
struct Negate { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return neg(a); } };
struct Exponential { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return exp(a); } };
struct Logarithm { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return log(a); } };
struct Tanh { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return tanh(a); } };
struct Logistic { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return logistic(a); } };
struct Sine { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return sin(a); } };
struct Cosine { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return cos(a); } };
struct SquareRoot { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return sqrt(a); } };
struct ReciprocalSquareRoot {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return div(set(1.0f), sqrt(a)); }
};
struct Reciprocal { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return div(set(1.0f), a); } };
struct Cube { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return mul(mul(a, a), a); } };
struct Gelu { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return gelu(a); } };
struct GeluGradient {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return mul(a, gelu_gradient(b)); }
};
struct Silu { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return silu(a); } };
struct SiluGradient {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return mul(a, silu_gradient(b)); }
};
TUTTI_KERNEL_INLINE F32 one_or_zero(Mask mask) { return select(mask, set(1.0f), zero()); }
struct Less { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return one_or_zero(less(a, b)); } };
struct LessEqual {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return one_or_zero(less_equal(a, b)); }
};
struct Equal { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return one_or_zero(equal(a, b)); } };
struct NotEqual {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32) const { return one_or_zero(not_equal(a, b)); }
};
struct Select {
  TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32 b, F32 c) const { return select(not_equal(a, zero()), b, c); }
};
struct Identity { TUTTI_KERNEL_INLINE F32 operator()(F32 a, F32, F32) const { return a; } };

/// out[i] = f(a[i], b[i], c[i]); operands beyond Arity are not read.
template <int Arity, class F>
TUTTI_TARGET inline void map(float* out, TileOperand<float> const* in, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  F const f;
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
    store(out + i, f(a0, b0, c0));
    store(out + i + width, f(a1, b1, c1));
    a += 2 * step_a;
    b += 2 * step_b;
    c += 2 * step_c;
  }
  for (; i + width <= n; i += width) {
    F32 const va = load(a), vb = Arity > 1 ? load(b) : va, vc = Arity > 2 ? load(c) : va;
    store(out + i, f(va, vb, vc));
    a += step_a;
    b += step_b;
    c += step_c;
  }
  if (i < n) {
    int const rest = static_cast<int>(n - i);
    F32 const va = load_partial(a, rest), vb = Arity > 1 ? load_partial(b, rest) : va;
    store_partial(out + i, f(va, vb, Arity > 2 ? load_partial(c, rest) : va), rest);
  }
}

TUTTI_TARGET inline void power(double value, float* out, TileOperand<float> const* in, std::int64_t n) {
  TileOperand<float> const twice[3] = {in[0], in[0], in[0]};
  if (value == 2) return map<2, Multiply>(out, twice, n);
  if (value == 3) return map<1, Cube>(out, in, n);
  if (value == 1) return map<1, Identity>(out, in, n);
  if (value == -1) return map<1, Reciprocal>(out, in, n);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(__builtin_pow(double{in[0].data[in[0].repeats ? 0 : i]}, value));
}

}  // namespace tile

TUTTI_TARGET inline void run_tile(ElementwiseOp op, double value, float* out, TileOperand<float> const* in,
                                  std::int64_t n) {
  using namespace tile;
  switch (op) {
    case ElementwiseOp::constant: break;
    case ElementwiseOp::add: return map<2, Add>(out, in, n);
    case ElementwiseOp::subtract: return map<2, Subtract>(out, in, n);
    case ElementwiseOp::multiply: return map<2, Multiply>(out, in, n);
    case ElementwiseOp::divide: return map<2, Divide>(out, in, n);
    case ElementwiseOp::maximum: return map<2, Maximum>(out, in, n);
    case ElementwiseOp::negate: return map<1, Negate>(out, in, n);
    case ElementwiseOp::exponential: return map<1, Exponential>(out, in, n);
    case ElementwiseOp::logarithm: return map<1, Logarithm>(out, in, n);
    case ElementwiseOp::tanh: return map<1, Tanh>(out, in, n);
    case ElementwiseOp::logistic: return map<1, Logistic>(out, in, n);
    case ElementwiseOp::sine: return map<1, Sine>(out, in, n);
    case ElementwiseOp::cosine: return map<1, Cosine>(out, in, n);
    case ElementwiseOp::square_root: return map<1, SquareRoot>(out, in, n);
    case ElementwiseOp::reciprocal_square_root: return map<1, ReciprocalSquareRoot>(out, in, n);
    case ElementwiseOp::power: return power(value, out, in, n);
    case ElementwiseOp::less: return map<2, Less>(out, in, n);
    case ElementwiseOp::less_equal: return map<2, LessEqual>(out, in, n);
    case ElementwiseOp::equal: return map<2, Equal>(out, in, n);
    case ElementwiseOp::not_equal: return map<2, NotEqual>(out, in, n);
    case ElementwiseOp::select: return map<3, Select>(out, in, n);
    case ElementwiseOp::gelu: return map<1, Gelu>(out, in, n);
    case ElementwiseOp::gelu_gradient: return map<2, GeluGradient>(out, in, n);
    case ElementwiseOp::silu: return map<1, Silu>(out, in, n);
    case ElementwiseOp::silu_gradient: return map<2, SiluGradient>(out, in, n);
    case ElementwiseOp::identity: return map<1, Identity>(out, in, n);
  }
}

/// Conversion of contiguous 16-bit elements.
template <class From, class To>
TUTTI_TARGET inline void convert_tile(From const* from, To* to, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t i = 0;
  for (; i + width <= n; i += width) store(to + i, load(from + i));
  if (i < n) store_partial(to + i, load_partial(from + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

inline TileFunctions tile_functions() {
  return {run_tile, convert_tile<bfloat16, float>, convert_tile<float16, float>, convert_tile<float, bfloat16>,
          convert_tile<float, float16>};
}
