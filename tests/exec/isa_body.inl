// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What isa.cpp stamps per instruction set: the vector layer behind plain pointers.

TUTTI_KERNEL_INLINE F32 apply(int function, F32 x) {
  switch (function) {
    case 0: return exp(x);
    case 1: return log(x);
    case 2: return tanh(x);
    case 3: return logistic(x);
    case 4: return gelu(x);
    case 5: return gelu_gradient(x);
    case 6: return sin(x);
    case 7: return cos(x);
    case 8: return silu(x);
    default: return silu_gradient(x);
  }
}
TUTTI_TARGET inline void map(int function, float const* x, float* y, int n) {
  for (int i = 0; i < n; i += F32::lanes) {
    int const left = n - i < F32::lanes ? n - i : F32::lanes;
    store_partial(y + i, apply(function, load_partial(x + i, left)), left);
  }
}
TUTTI_TARGET inline void reduce(float const* x, float* out) {
  F32 const v = load(x);
  out[0] = sum(v);
  out[1] = max_lane(v);
  out[2] = min_lane(v);
}
TUTTI_TARGET inline void compare(float const* a, float const* b, int n, float* out) {
  for (int i = 0; i < n; i += F32::lanes) {
    int const left = n - i < F32::lanes ? n - i : F32::lanes;
    F32 const x = load_partial(a + i, left), y = load_partial(b + i, left), one = set(1.0f), two = add(one, one);
    F32 const results[9] = {select(less(x, y), one, two),
                            select(less_equal(x, y), one, two),
                            select(equal(x, y), one, two),
                            select(not_equal(x, y), one, two),
                            min(x, y),
                            max(x, y),
                            copysign(x, y),
                            sqrt(abs(x)),
                            neg(x)};
    for (int r = 0; r < 9; ++r) {
      float lane[F32::lanes];
      store(lane, results[r]);
      for (int l = 0; l < left; ++l) out[9 * (i + l) + r] = lane[l];
    }
  }
}
TUTTI_TARGET inline void integers(std::int32_t const* a, std::int32_t const* b, int n, std::int32_t* out) {
  for (int i = 0; i < n; i += F32::lanes) {
    int const left = n - i < F32::lanes ? n - i : F32::lanes;
    I32 const x = load_partial(a + i, left), y = load_partial(b + i, left);
    I32 const results[9] = {add(x, y),
                            sub(x, y),
                            mul(x, y),
                            bit_xor(x, bit_and(x, y)),
                            shift_left<3>(x),
                            shift_right<3>(x),
                            shift_right_logical<3>(x),
                            select(less(x, y), x, y),
                            to_i32(to_f32(shift_right<8>(y)))};
    for (int r = 0; r < 9; ++r) {
      std::int32_t lane[F32::lanes];
      store(lane, results[r]);
      for (int l = 0; l < left; ++l) out[9 * (i + l) + r] = lane[l];
    }
  }
}
TUTTI_TARGET inline void dots(std::int32_t const* a, std::int32_t const* b, int n, float* two, std::int32_t* four,
                              std::int32_t* small) {
  for (int i = 0; i < n; i += F32::lanes) {
    I32 const six_bits = bit_and(load(a + i), set_i32(0x3f3f3f3f));
    I32 const pairs = add_i16(dot2_u8(six_bits, load(b + i)), dot2_u8(six_bits, load(b + i)));
    store(small + i, dot2_i16(set_i32(1), pairs, set_i32(0x00010001)));
    store(two + i, dot2(set(1.0f), load(a + i), load(b + i)));
    store(four + i, dot4(set_i32(1), load(a + i), load(b + i)));
  }
}
/// Signed and unsigned bytes to integers and back, and products of their pairs as halves.
TUTTI_TARGET inline void bytes(std::int8_t const* a, std::uint8_t const* b, int n, std::int32_t* wide, std::int8_t* low,
                               std::int32_t* two) {
  for (int i = 0; i < n; i += F32::lanes) {
    int const left = n - i < F32::lanes ? n - i : F32::lanes;
    I32 const x = left == F32::lanes ? load(a + i) : load_partial(a + i, left);
    I32 const y = left == F32::lanes ? load(b + i) : load_partial(b + i, left);
    I32 const pairs = bit_or(shift_left<16>(y), bit_and(x, set_i32(0xffff)));
    I32 const mixed = add(mul(x, set_i32(1000)), y);
    store_partial(wide + i, mixed, left);
    if (left == F32::lanes) store(low + i, mixed);
    else store_partial(low + i, mixed, left);
    store_partial(two + i, dot2_i16(y, pairs, pairs), left);
  }
}
TUTTI_TARGET inline void doubles(double const* a, double const* b, int n, double* out) {
  for (int i = 0; i < n; i += F64::lanes) {
    int const left = n - i < F64::lanes ? n - i : F64::lanes;
    if (left == F64::lanes) store(out + i, fma(load(a + i), load(b + i), mul(set_f64(0.5), load(b + i))));
    else {
      F64 const x = load_partial(a + i, left), y = load_partial(b + i, left);
      store_partial(out + i, fma(x, y, mul(set_f64(0.5), y)), left);
    }
  }
}
TUTTI_TARGET inline void transpose(double const* p, std::int64_t stride, int rows, double* out) {
  F64 columns[4];
  load_transposed(p, stride, rows, columns);
  for (int c = 0; c < 4; ++c) store(out + c * F64::lanes, columns[c]);
}
TUTTI_TARGET inline int double_lanes() { return F64::lanes; }
TUTTI_TARGET inline void transpose(float const* p, std::int64_t stride, int rows, float* out) {
  F32 columns[4];
  load_transposed(p, stride, rows, columns);
  for (int c = 0; c < 4; ++c) store(out + c * F32::lanes, columns[c]);
}
/// Of 2 * lanes elements: the even ones, the odd ones, and the two put together again.
TUTTI_TARGET inline void interleaving(float const* x, float* even, float* odd, float* again) {
  F32 e, o, a, b;
  deinterleave(load(x), load(x + F32::lanes), e, o);
  store(even, e);
  store(odd, o);
  interleave(e, o, a, b);
  store(again, a);
  store(again + F32::lanes, b);
}
TUTTI_TARGET inline int lanes() { return F32::lanes; }
template <class T>
TUTTI_TARGET void round_trip(float const* x, T* narrow, float* wide, int n) {
  int i = 0;
  for (; i + F32::lanes <= n; i += F32::lanes) {
    store(narrow + i, load(x + i));
    store(wide + i, load(narrow + i));
  }
  if (i < n) {
    store_partial(narrow + i, load_partial(x + i, n - i), n - i);
    store_partial(wide + i, load_partial(narrow + i, n - i), n - i);
  }
}
